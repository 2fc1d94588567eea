"""How generated code calls a norm, and what its functions take because norms differ."""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.emit.layout_text import WIDTH, bracketed
from boundaryc.language.model import NormSpec, Stack


@dataclass(frozen=True, slots=True)
class NormCall:
    """Calls of one norm. ``own`` and ``summed`` say in what it differs from the stack's.

    Both are keyword arguments, each behind a comma; ``summed`` are those where a sum is read.
    """

    own: str = ""
    summed: str = ""

    def of(self, value: str, norm: str) -> str:
        """The norm of ``value``, whose parameters are ``norm``."""
        return f"rms_norm({value}, {norm}.weight{self.own})"

    def of_sum(self, value: str, residual: str, scale: float | None) -> str:
        """The norm of ``value``, times ``scale`` if there is one, and a residual; and that sum."""
        factor = "" if scale is None else f", {scale!r}"
        return f"add_rms_norm({value}, {residual}, norm.weight{factor}{self.own}{self.summed})"


USUAL = NormCall()
"""Calls of the stack's norm."""


def norm_call(stack: Stack, stage: str) -> NormCall:
    """How the norm of a stage is called, or that of the end of the stack."""
    norm, usual = stack.norm_of(stage), stack.norm
    own = f", eps={norm.eps!r}" if norm.eps != usual.eps else ""
    if norm.weight_offset != usual.weight_offset:
        own += f", offset={norm.weight_offset!r}"
    rounded = norm.accumulate == "rounded"
    return NormCall(own, f", rounded={rounded}" if norm.accumulate != usual.accumulate else "")


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
        every = [stack.norm_of(stage.name) for stage in stack.stages]
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

    def arguments(self, *, summed: bool) -> list[str]:
        """What the function of a norm takes behind the tensors and a factor."""
        given = {"eps": "eps: float = EPS", "offset": "offset: float = OFFSET"}
        given |= {"rounded": f"rounded: bool = {self.rounded}"} if summed else {}
        return [text for name, text in given.items() if name in self.varies]

    def passed(self, *, summed: bool) -> str:
        """What a function hands on to its kernel, behind a comma."""
        names = [name for name in self.varies if summed or name != "rounded"]
        return "".join(f", {name}" for name in names)

    def in_torch(self) -> tuple[str, ...]:
        """The statement that computes a norm in torch."""
        offset = f", {self._name('offset')}" if self.offset else ""
        return (f"return runtime.rms_norm(x, weight, {self._name('eps')}{offset})",)

    def sum_in_torch(self, *, scaled: bool) -> tuple[str, ...]:
        """The statements that compute a sum and its norm in torch."""
        offset = f", {self._name('offset')}" if self.offset else ""
        eps, scale = self._name("eps"), ", scale" if scaled else ""
        if self.rounded and "rounded" not in self.varies:
            norm = f"runtime.rms_norm(total, weight, {eps}{offset}).to(x.dtype)"
            return (f"total = runtime.add(x, residual{scale})", f"return {norm}, total")
        how = ", accumulate=seen" if "rounded" in self.varies else ""
        offset = offset.replace(", ", ", offset=")
        call = f"return runtime.add_rms_norm(x, residual, weight, {eps}{scale}{how}{offset})"
        if not how:
            return (call,)
        return ('seen: runtime.Accumulate = "rounded" if rounded else "fp32"', call)

    def _name(self, what: str) -> str:
        return what if what in self.varies else what.upper()


def head(name: str, params: list[str], returns: str) -> tuple[str, ...]:
    """The first lines of a function, as a formatter would break them."""
    whole = bracketed(f"def {name}(", params, f") -> {returns}:")
    inner = f"    {', '.join(params)}"
    if len(whole) == 1 or len(inner) > WIDTH:
        return whole
    return (f"def {name}(", inner, f") -> {returns}:")
