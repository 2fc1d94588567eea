"""How generated code calls a norm, and what its functions take because norms differ."""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.emit.layout_text import bracketed
from boundaryc.language.model import NormSpec, Stack
from boundaryc.operations import Operation
from boundaryc.plan.kernels import NormKind


def function_of(norm: NormSpec) -> NormKind:
    """The function of a norm."""
    if norm.bias:
        return "biased_layer_norm"
    return "layer_norm" if norm.kind == "layer" else "rms_norm"


def type_of(norm: NormSpec) -> str:
    """What a model binds for a norm."""
    return "BiasedNorm" if norm.bias else "Norm"


def bias_of(norm: NormSpec, operation: Operation, param: str) -> bool | None:
    """Whether what is bound as ``param`` has a bias, as ``norm`` says; None if no layer norm is."""
    return norm.bias if _normed(operation, param) and norm.kind == "layer" else None


def eps_of(norm: NormSpec, operation: Operation, param: str) -> float | None:
    """The eps with which generated code uses what is bound as ``param``; None if no norm is."""
    return norm.eps if _normed(operation, param) and norm.kind != "none" else None


def _normed(operation: Operation, param: str) -> bool:
    """Whether an operation takes a norm as ``param``, and does what that does."""
    return operation.facts.plain_norm or operation.param_type(param, "Norm") == "Norm"


@dataclass(frozen=True, slots=True)
class NormCall:
    """Calls of one norm. ``own`` and ``summed`` say in what it differs from the stack's.

    Both are keyword arguments, each behind a comma; ``summed`` are those where a sum is read.
    """

    function: NormKind = "rms_norm"
    own: str = ""
    summed: str = ""
    type: str = "Norm"

    def of(self, value: str, norm: str) -> str:
        """The norm of ``value``, whose parameters are ``norm``."""
        return f"{self.function}({value}, {', '.join(self.params(norm))}{self.own})"

    def params(self, norm: str) -> tuple[str, ...]:
        """The tensors of ``norm``, as arguments."""
        bias = (f"{norm}.bias",) if self.type == "BiasedNorm" else ()
        return (f"{norm}.weight", *bias)


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

    def arguments(self, *, summed: bool, of_output: bool = False) -> list[str]:
        """What a function takes behind the tensors and a factor; first for a norm of outputs."""
        given = {"eps": "eps: float = EPS", "offset": "offset: float = OFFSET"}
        own = [text for name, text in given.items() if name in self.varies]
        taken = [f"output_{text}" for text in own] * of_output + own
        rounded = summed and "rounded" in self.varies
        return taken + [f"rounded: bool = {self.rounded}"] * rounded

    def in_torch(self, name: NormKind) -> tuple[str, ...]:
        """The statement that computes a norm in torch."""
        offset = f", {self._name('offset')}" if self.offset else ""
        call, bias = _runtime(name)
        return (f"return runtime.{call}(x, weight, {self._name('eps')}{offset}{bias})",)

    def read_in_torch(self, name: NormKind) -> tuple[str, ...]:
        """The statements that compute a norm in torch, where it stands alone."""
        if name != "rms_norm":
            return self.in_torch(name)
        wide = "wide = x if kind is torch.float64 else x.float()"
        return (*_refusing(), wide, *self._root_mean_square(), "return normed.to(kind)")

    def output_in_torch(self, name: NormKind) -> str:
        """The statement that normalises a contribution in torch."""
        call, bias = _runtime(name, "output_")
        offset = f", {self._name('offset', 'output_')}" if self.offset else ""
        return f"x = runtime.{call}(x, output_weight, {self._name('eps', 'output_')}{offset}{bias})"

    def sum_in_torch(
        self, name: NormKind, *, scaled: bool, addition: bool = False
    ) -> tuple[str, ...]:
        """The statements that compute a sum and its norm in torch."""
        call, bias = _runtime(name)
        offset = f", {self._name('offset')}" if self.offset else ""
        eps, scale = self._name("eps"), ", scale" if scaled else ""
        seen = self.rounded or "rounded" in self.varies
        if name == "rms_norm" and not (scaled or addition or seen):
            return (
                *_refusing("residual"),
                "wide = (x if kind is torch.float64 else x.float()) + residual",
                *self._root_mean_square(),
                "return normed.to(kind), wide.to(residual.dtype)",
            )
        if addition or (self.rounded and "rounded" not in self.varies):
            norm = f"runtime.{call}(total, weight, {eps}{offset}{bias}).to(x.dtype)"
            return (
                f"total = {summed(scaled=scaled, addition=addition)}",
                f"return {norm}, total",
            )
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

    def _root_mean_square(self) -> tuple[str, ...]:
        """The statements that normalise ``wide``, in one piece: a layer needs no more calls."""
        scale, weight = f"(wide.square().mean(-1, True) + {self._name('eps')}).rsqrt()", "weight"
        lines: tuple[str, ...] = ()
        if self.offset:  # 1 plus a small number is 1 in bfloat16; else torch widens the weight
            lines, weight = (f"factor = weight.to(wide.dtype) + {self._name('offset')}",), "factor"
        return (*lines, f"normed = wide * {scale} * {weight}")

    def _name(self, what: str, of: str = "") -> str:
        return f"{of}{what}" if what in self.varies else what.upper()


def summed(*, scaled: bool, addition: bool) -> str:
    """The sum of a contribution and the residual in torch, each addition rounded."""
    total = f"runtime.add(x, residual{', scale' if scaled else ''})"
    return f"runtime.add(addition, {total})" if addition else total


def _refusing(*others: str) -> tuple[str, ...]:
    """Refuses shapes that torch would broadcast."""
    differs = [f"{other}.shape != shape" for other in others] + ["weight.numel() != shape[-1]"]
    given = ", ".join(("x", "weight", *others))
    refusal = (f"if {' or '.join(differs)}:", f"    runtime.reject_shapes({given})")
    return ("kind, shape = x.dtype, x.shape", *refusal)


def _runtime(name: str, of: str = "") -> tuple[str, str]:
    """The runtime's function, and the argument that it is given for a bias, behind a comma."""
    return ("layer_norm", f", bias={of}bias") if name == "biased_layer_norm" else (name, "")
