"""The row-wise work of a boundary as kernels: what stands side by side is done in one pass.

Planned operations go in, in their order; they come out in groups of neighbours. A group of several
is one kernel: the residual is added, the sum is normed, the norm is quantised, and each row is read
once and every result written once. Nothing moves: where a plan sends rows between a norm and its
quantisation, these stay apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from boundaryc.language.model import Quantize
from boundaryc.plan import ops

NormKind = Literal["rms_norm", "layer_norm", "biased_layer_norm"]
NORMS: tuple[NormKind, ...] = ("rms_norm", "layer_norm", "biased_layer_norm")


_SHORT = {"rms_norm": "rms", "layer_norm": "layer", "biased_layer_norm": "biased"}


@dataclass(frozen=True, slots=True)
class RowKernel:
    """One pass over rows, part by part in the order in which the parts are applied.

    ``output_norm`` is a norm of the contribution, rounded to its dtype. ``adds``: a contribution,
    scaled where the call says so, is added to the residual, and the sum is a result of its own.
    ``finalize``: the contribution is made of the rows of experts, and rounded to their dtype.
    ``addition``: what the model gives besides is added to that sum, which is rounded before and
    after.
    Then ``norm``, None where the residual is read as it is stored, then ``quantize``, which may
    keep the norm that it quantises. What rounds, eps and the offset of weights are those of the
    stack's norm, or the call's.
    """

    norm: NormKind | None
    adds: bool = False
    quantize: Quantize | None = None
    output_norm: NormKind | None = None
    addition: bool = False
    finalize: bool = False

    @property
    def name(self) -> str:
        """Its parts as a word, by which generated functions call it.

        >>> RowKernel("rms_norm", adds=True, output_norm="layer_norm").name
        'layer_add_rms_norm'
        >>> RowKernel(None, quantize=Quantize("fp8", "token", keep=False)).name
        'to_fp8'
        """
        if self == RowKernel(None, adds=True):
            return "scaled_add"  # without a factor it is the runtime's, and one pass already
        parts = ["finalize"] if self.finalize else []
        parts += [_SHORT[self.output_norm]] if self.output_norm else []
        parts += ["add"] if self.adds else []
        parts += ["addition"] if self.addition else []
        parts += [self.norm] if self.norm else []
        parts = parts or ["to"]
        if self.quantize is not None:
            parts.append(self.quantize.format)
            parts += [self.quantize.scale] if self.quantize.scale != "token" else []
            parts += ["and_norm"] if self.quantize.keep else []
        return "_".join(parts)


@dataclass(frozen=True, slots=True)
class Fusible:
    """Which operations of an edge a kernel has parts for; ``raw``: it reads without a norm."""

    update: bool
    read: bool
    quantize: bool
    transform: bool = False
    raw: bool = False


def _formats() -> tuple[Quantize, ...]:
    scales: tuple[tuple[Literal["fp8", "int8"], Literal["token", "group128", "static"]], ...] = (
        ("fp8", "token"),
        ("fp8", "group128"),
        ("fp8", "static"),
        ("int8", "token"),
    )
    return tuple(Quantize(form, scale, keep) for form, scale in scales for keep in (False, True))


def _every() -> Iterator[RowKernel]:
    """Every kernel: with a norm of the contribution after those without."""
    for output_norm in (None, *NORMS):
        for norm in (*NORMS, None):
            for quantize in (None, *_formats()):
                kept = quantize is not None and quantize.keep
                if norm is None and kept:
                    continue  # what is kept is the residual
                if output_norm is None and (norm or quantize):
                    yield RowKernel(norm, False, quantize)
                yield RowKernel(norm, True, quantize, output_norm)
                yield RowKernel(norm, True, quantize, output_norm, addition=True)
                if output_norm is None:
                    yield RowKernel(norm, True, quantize, finalize=True)
    yield RowKernel(None, finalize=True)


KERNELS = {kernel.name: kernel for kernel in _every()}
"""Every kernel that a boundary may need, by name."""

_FOLLOWS: dict[type[ops.Operation], tuple[type[ops.Operation], ...]] = {
    ops.Update: (ops.Transform, ops.Finalize),
    ops.Addition: (ops.Update,),
    ops.Read: (ops.Update, ops.Addition),
    ops.Quantize: (ops.Read,),
}
"""What an operation may share a kernel with, if that is right before it."""


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
    allowed = {
        ops.Transform: fusible.transform,
        ops.Finalize: True,
        ops.Update: fusible.update,
        ops.Addition: fusible.update,
        ops.Read: fusible.read or fusible.raw,
        ops.Quantize: fusible.quantize,
    }
    groups: list[tuple[ops.Operation, ...]] = []
    for op in operations:
        before = groups[-1][-1] if groups else None
        joins = type(before) in _FOLLOWS.get(type(op), ())
        if joins and before is not None and allowed[type(op)] and allowed[type(before)]:
            groups[-1] = (*groups[-1], op)
        else:
            groups.append((op,))
    return tuple(groups)
