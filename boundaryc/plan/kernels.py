"""The row-wise work of a boundary as kernels: what stands side by side is done in one pass.

Planned operations go in, in their order; they come out in groups of neighbours. A group of several
is one kernel: the residual is added, the sum is normed, the norm is quantised, and each row is read
once and every result written once. Nothing moves: where a plan sends rows between a norm and its
quantisation, these stay apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from boundaryc.language.model import Quantize
from boundaryc.plan import ops

NormKind = Literal["rms_norm", "layer_norm", "biased_layer_norm"]
NORMS: tuple[NormKind, ...] = ("rms_norm", "layer_norm", "biased_layer_norm")


@dataclass(frozen=True, slots=True)
class RowKernel:
    """One pass over rows, part by part in the order in which the parts are applied.

    ``adds``: a contribution, scaled where the call says so, is added to the residual, and the sum
    is a result of its own. Then ``norm``, then ``quantize``, which may keep what it quantises.
    What rounds, eps and the offset of weights are those of the stack's norm, or the call's.
    """

    norm: NormKind
    adds: bool = False
    quantize: Quantize | None = None

    @property
    def name(self) -> str:
        """Its parts as a word, by which generated functions call it."""
        parts = ["add"] if self.adds else []
        parts.append(self.norm)
        if self.quantize is not None:
            parts.append(self.quantize.format)
            parts += [self.quantize.scale] if self.quantize.scale != "token" else []
            parts += ["and_norm"] if self.quantize.keep else []
        return "_".join(parts)


@dataclass(frozen=True, slots=True)
class Fusible:
    """Which operations of an edge a kernel has parts for."""

    update: bool
    read: bool
    quantize: bool


def _formats() -> tuple[Quantize, ...]:
    scales: tuple[tuple[Literal["fp8", "int8"], Literal["token", "group128", "static"]], ...] = (
        ("fp8", "token"),
        ("fp8", "group128"),
        ("fp8", "static"),
        ("int8", "token"),
    )
    return tuple(Quantize(form, scale, keep) for form, scale in scales for keep in (False, True))


KERNELS = {
    kernel.name: kernel
    for norm in NORMS
    for quantize in (None, *_formats())
    for kernel in (RowKernel(norm, False, quantize), RowKernel(norm, True, quantize))
}
"""Every kernel that a boundary may need, by name."""

_ORDER = (ops.Update, ops.Read, ops.Quantize)


def grouped(
    operations: Sequence[ops.Operation], fusible: Fusible
) -> tuple[tuple[ops.Operation, ...], ...]:
    """The operations in groups of neighbours, each of several one kernel.

    >>> both = Fusible(update=True, read=True, quantize=True)
    >>> grouped([ops.Update(), ops.Read(), ops.Quantize()], both)
    ((Update(), Read(), Quantize()),)
    >>> len(grouped([ops.Update(), ops.Read(), ops.AllGather(1, False), ops.Quantize()], both))
    3
    """
    allowed = dict(zip(_ORDER, (fusible.update, fusible.read, fusible.quantize), strict=True))
    groups: list[tuple[ops.Operation, ...]] = []
    for op in operations:
        before = groups[-1][-1] if groups else None
        joins = isinstance(op, ops.Read) and isinstance(before, ops.Update)
        joins |= isinstance(op, ops.Quantize) and isinstance(before, ops.Read)
        if joins and before is not None and allowed[type(op)] and allowed[type(before)]:
            groups[-1] = (*groups[-1], op)
        else:
            groups.append((op,))
    return tuple(groups)
