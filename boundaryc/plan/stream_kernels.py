"""The work of a boundary on a residual of several streams as kernels.

A read makes a norm's input of all streams, and an update changes all of them. Where an update, a
read and a quantisation stand side by side each stream is read once and written once; where rows
move in between, these are kernels of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from boundaryc.language.model import Quantize
from boundaryc.operations import Operation
from boundaryc.operations.registry import RUNTIME
from boundaryc.plan import ops
from boundaryc.plan.kernels import KERNELS as ROW_KERNELS
from boundaryc.plan.kernels import NormKind, RowKernel

Reads = Literal["", "mixed", "mean"]
_READS: dict[str, Reads] = {"hyper_read": "mixed", "hyper_mean": "mean"}


@dataclass(frozen=True, slots=True)
class StreamKernel:
    """One pass over rows, part by part in the order in which the parts are applied.

    ``updates``: an output is added to each stream while these are mixed. ``reads`` says how one row
    is made of them, if that is done: with coefficients that are computed of the row, or as their
    mean. Then ``norm``, then ``quantize``, which may keep what it quantises. Neither: the stack's
    input is put into every stream.
    """

    updates: bool = False
    reads: Reads = ""
    norm: NormKind | None = None
    quantize: Quantize | None = None

    @property
    def name(self) -> str:
        """Its parts as a word, by which generated functions call it."""
        if not self.updates and not self.reads:
            return "hyper_enter"
        parts = ["hyper", *(["update"] if self.updates else [])]
        parts += {"": [], "mixed": ["read"], "mean": ["mean"]}[self.reads]
        if self.norm is not None:
            parts.append(_suffix(self.norm, self.quantize))
        return "_".join(parts)


def _suffix(norm: NormKind, quantize: Quantize | None) -> str:
    """What a row-wise kernel of the same norm and quantisation is called."""
    return next(
        name for name, kernel in ROW_KERNELS.items() if kernel == RowKernel(norm, False, quantize)
    )


def _every() -> tuple[StreamKernel, ...]:
    plain = [kernel for kernel in ROW_KERNELS.values() if not kernel.adds and kernel.norm]
    reads = [
        StreamKernel(updates, "mixed", kernel.norm, kernel.quantize)
        for kernel in plain
        for updates in (False, True)
    ]
    means = [StreamKernel(False, "mean", one.norm) for one in plain if one.quantize is None]
    return (StreamKernel(), StreamKernel(updates=True), *reads, *means)


STREAM_KERNELS = {kernel.name: kernel for kernel in _every()}
"""Every kernel that a boundary of hyper-connections may need, by name."""


def stream_kernel(
    operations: Sequence[ops.Operation],
    update: Operation | None,
    read: Operation,
    norm: NormKind,
    quantize: Quantize | None,
) -> tuple[StreamKernel, int] | None:
    """The kernel for what ``operations`` begin with, and for how many of them it is.

    None where they begin with something else. ``update`` is the producer's, ``read`` and ``norm``
    are the consumer's, which takes its input as ``quantize`` says.
    """
    kinds = [type(op) for op in operations[:3]]
    updates = bool(kinds) and kinds[0] is ops.Update and is_update(update)
    reads = _READS.get(read.name, "") if kinds[updates : updates + 1] == [ops.Read] else ""
    if updates and reads != "mixed":
        return StreamKernel(updates=True), 1
    if not reads:
        return None
    rest = kinds[updates + 1 : updates + 2]
    quantized = quantize if rest == [ops.Quantize] and reads == "mixed" else None
    kernel = StreamKernel(updates, reads, norm, quantized)
    return kernel, 1 + updates + (quantized is not None)


def is_update(update: Operation | None) -> bool:
    """Whether an update is that of hyper-connections, under whatever name."""
    if update is None or update.call != f"{RUNTIME}hyper_update" or update.params:
        return False
    return not update.facts.writes_stream and not update.facts.per_call
