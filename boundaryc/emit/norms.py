"""How generated code calls a norm, and what its functions take because norms differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from boundaryc.emit.layout_text import WIDTH, bracketed, listed
from boundaryc.emit.views import NormView
from boundaryc.language.model import NormSpec, Stack
from boundaryc.operations import Operation

FUNCTIONS = ("rms_norm", "layer_norm", "biased_layer_norm")
"""The functions of norms; each has one for the norm of a sum too."""
ADDED = tuple(f"add_{name}" for name in FUNCTIONS)


def function_of(norm: NormSpec) -> str:
    """The function of a norm."""
    return "biased_layer_norm" if norm.bias else f"{norm.kind}_norm"


def type_of(norm: NormSpec) -> str:
    """What a model binds for a norm."""
    return "BiasedNorm" if norm.bias else "Norm"


def bias_of(norm: NormSpec, operation: Operation, param: str) -> bool | None:
    """Whether what is bound as ``param`` has a bias, as ``norm`` says; None if no layer norm is."""
    normed = operation.facts.plain_norm or operation.param_type(param, "Norm") == "Norm"
    return norm.bias if normed and norm.kind == "layer" else None


@dataclass(frozen=True, slots=True)
class NormCall:
    """Calls of one norm. ``own`` and ``summed`` say in what it differs from the stack's.

    Both are keyword arguments, each behind a comma; ``summed`` are those where a sum is read.
    """

    function: str = "rms_norm"
    own: str = ""
    summed: str = ""
    type: str = "Norm"

    def of(self, value: str, norm: str) -> str:
        """The norm of ``value``, whose parameters are ``norm``."""
        return f"{self.function}({value}, {self._params(norm)}{self.own})"

    def of_sum(self, value: str, residual: str, norm: str, scale: float | None) -> str:
        """The norm of ``value``, times ``scale`` if there is one, and a residual; and that sum.

        ``norm`` are its parameters.
        """
        factor = "" if scale is None else f", {scale!r}"
        given = f"{value}, {residual}, {self._params(norm)}{factor}{self.own}{self.summed}"
        return f"add_{self.function}({given})"

    def _params(self, norm: str) -> str:
        bias = f", {norm}.bias" if self.type == "BiasedNorm" else ""
        return f"{norm}.weight{bias}"


USUAL = NormCall()
"""Calls of the stack's norm where that has no bias and subtracts no mean."""


def norm_call(stack: Stack, stage: str) -> NormCall:
    """How the norm of a stage is called, or that of the end of the stack."""
    norm, usual = stack.norm_of(stage), stack.norm
    own = f", eps={norm.eps!r}" if norm.eps != usual.eps else ""
    if norm.weight_offset != usual.weight_offset:
        own += f", offset={norm.weight_offset!r}"
    rounded = norm.accumulate == "rounded"
    summed = f", rounded={rounded}" if norm.accumulate != usual.accumulate else ""
    return NormCall(function_of(norm), own, summed, type_of(norm))


@dataclass(frozen=True, slots=True)
class Norms:
    """The norms of a stack, as its row-wise functions see them.

    Of ``eps``, ``offset`` and ``rounded``, the stack's, those are arguments of a call in which some
    stage's norm differs.
    """

    usual: NormSpec
    varies: tuple[str, ...] = ()

    @classmethod
    def of(cls, stack: Stack) -> Norms:
        """Those of a stack and all of its stages."""
        every = [norm for stage in stack.stages if (norm := stage.norm) and norm.kind != "none"]
        varies = {
            "eps": any(norm.eps != stack.norm.eps for norm in every),
            "offset": any(norm.weight_offset != stack.norm.weight_offset for norm in every),
            "rounded": any(norm.accumulate != stack.norm.accumulate for norm in every),
        }
        return cls(stack.norm, tuple(name for name, differs in varies.items() if differs))

    @property
    def offset(self) -> str:
        """The constant that is added to weights, empty where none is."""
        offset = self.usual.weight_offset
        return repr(offset) if offset or "offset" in self.varies else ""

    @property
    def rounded(self) -> bool:
        """Whether the stack's own norm sees a sum as it was rounded."""
        return self.usual.accumulate == "rounded"

    def view(self, name: str, needs: Collection[str], *, scaled: bool) -> NormView:
        """The functions called ``name``; ``scaled``: what is added may have a factor."""
        biased = name == "biased_layer_norm"
        params = ["weight: Tensor", *(["bias: Tensor"] if biased else [])]
        own = [*params, *self._arguments(summed=False)]
        factor = ["scale: float = 1.0"] if scaled else []
        summed = ["residual: Tensor", *params, *factor, *self._arguments(summed=True)]
        bias = ", bias" if biased else ""
        return NormView(
            name=name,
            centred=name != "rms_norm",
            biased=biased,
            head=head(name, ["x: Tensor", *own], "Tensor"),
            add_head=head(f"add_{name}", ["x: Tensor", *summed], "tuple[Tensor, Tensor]"),
            passed=bias + self._passed(summed=False),
            add_passed=f"{bias}{', scale' if scaled else ''}{self._passed(summed=True)}",
            in_torch=self._in_torch(name),
            add_in_torch=self._sum_in_torch(name, scaled=scaled),
            jit=_jit(name, '["x_stride"]'),
            add_jit=_jit(f"add_{name}", '["x_stride", "residual_stride"]'),
            alone=name in needs,
            added=f"add_{name}" in needs,
        )

    def _arguments(self, *, summed: bool) -> list[str]:
        """What a function takes behind the tensors and a factor."""
        given = {"eps": "eps: float = EPS", "offset": "offset: float = OFFSET"}
        given |= {"rounded": f"rounded: bool = {self.rounded}"} if summed else {}
        return [text for name, text in given.items() if name in self.varies]

    def _passed(self, *, summed: bool) -> str:
        """What a function hands on to its kernel behind these, after a comma."""
        names = [name for name in self.varies if summed or name != "rounded"]
        return "".join(f", {name}" for name in names)

    def _in_torch(self, name: str) -> tuple[str, ...]:
        """The statement that computes a norm in torch."""
        offset = f", {self._name('offset')}" if self.offset else ""
        call, bias = _runtime(name)
        return (f"return runtime.{call}(x, weight, {self._name('eps')}{offset}{bias})",)

    def _sum_in_torch(self, name: str, *, scaled: bool) -> tuple[str, ...]:
        """The statements that compute a sum and its norm in torch."""
        call, bias = _runtime(name)
        offset = f", {self._name('offset')}" if self.offset else ""
        eps, scale = self._name("eps"), ", scale" if scaled else ""
        if self.rounded and "rounded" not in self.varies:
            norm = f"runtime.{call}(total, weight, {eps}{offset}{bias}).to(x.dtype)"
            return (f"total = runtime.add(x, residual{scale})", f"return {norm}, total")
        how = ", accumulate=seen" if "rounded" in self.varies else ""
        given = f"{eps}{scale}{how}{offset.replace(', ', ', offset=')}{bias}"
        lines = bracketed(
            f"return runtime.add_{call}(",
            ["x", "residual", "weight", *given.split(", ")],
            ")",
            indent=4,
        )
        if not how:
            return lines
        return ('seen: runtime.Accumulate = "rounded" if rounded else "fp32"', *lines)

    def _name(self, what: str) -> str:
        return what if what in self.varies else what.upper()


def _runtime(name: str) -> tuple[str, str]:
    """The runtime's function, and the argument that it is given for a bias, behind a comma."""
    return ("layer_norm", ", bias=bias") if name == "biased_layer_norm" else (name, "")


def _jit(name: str, counted: str) -> tuple[str, ...]:
    """The kernel of a function; ``counted`` are arguments for whose values none is compiled."""
    items = [f"_{name}", f"do_not_specialize={counted}"]
    whole = bracketed(f"_{name.upper()}: Any = triton.jit(", items, ")")
    if len(whole) == 1:
        return whole
    return (whole[0], f"    {', '.join(items)}", whole[-1])


def titled(needs: Collection[str]) -> str:
    """The norms that are called, for people."""
    kinds = {"rms_norm": "RMS", "layer_norm": "layer", "biased_layer_norm": "layer"}
    called = (kinds[name] for name in FUNCTIONS if {name, f"add_{name}"} & {*needs})
    return f"{listed(list(dict.fromkeys(called)) or ['RMS'])} norms"


def head(name: str, params: Iterable[str], returns: str) -> tuple[str, ...]:
    """The first lines of a function, as a formatter would break them."""
    params = list(params)
    whole = bracketed(f"def {name}(", params, f") -> {returns}:")
    inner = f"    {', '.join(params)}"
    if len(whole) == 1 or len(inner) > WIDTH:
        return whole
    return (f"def {name}(", inner, f") -> {returns}:")
