"""What a MoE has not finalised, as rows of its experts, and how it is finalised.

The row of a token is the sum of its experts' rows, each times its weight, and of a shared expert's
row, in this order and in float32 or wider, rounded once to the dtype of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundaryc.runtime.handoffs import HandoffOutput

Parts = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""The rows of experts, the weights, the index of rows and the shared expert's rows."""


@dataclass(frozen=True, slots=True)
class ExpertRows(HandoffOutput):
    """A hand-off of a MoE that has computed its experts: k of them for each of T tokens.

    ``weights`` are [T, k], float32 or float64. ``rows`` are [any, width]: the k rows of a token are
    next to each other, in the order of its weights, or ``index`` [T, k], int32 or int64, says where
    each is, negative where this rank has none. It is within ``rows``, which is not checked.
    ``shared`` [T, width] is added last, once. ValueError for other shapes or dtypes.
    """

    rows: Tensor
    weights: Tensor
    index: Tensor | None = None
    shared: Tensor | None = None

    def __post_init__(self) -> None:
        check_expert_rows(*self.parts)

    @property
    def parts(self) -> Parts:
        """All of it, as `finalize` takes it."""
        return self.rows, self.weights, self.index, self.shared

    def complete(self) -> Tensor:
        """The output [T, width] in the dtype of the rows."""
        return finalize(*self.parts)


def finalize(rows: Tensor, weights: Tensor, index: Tensor | None, shared: Tensor | None) -> Tensor:
    """The output of a MoE from its `ExpertRows`: [T, width], in the dtype of the rows."""
    accumulate = torch.promote_types(rows.dtype, torch.float32)
    tokens, slots = weights.shape
    total = rows.new_zeros((tokens, rows.shape[1]), dtype=accumulate)
    for slot in range(slots):
        weight = weights[:, slot : slot + 1].to(accumulate)
        if index is None:
            total = total + weight * rows[slot::slots].to(accumulate)
        elif rows.shape[0]:
            place = index[:, slot]
            part = weight * rows.index_select(0, place.clamp(min=0)).to(accumulate)
            total = total + part.masked_fill(place.unsqueeze(1) < 0, 0.0)
    if shared is not None:
        total = total + shared.to(accumulate)
    return total.to(rows.dtype)


def finished(kernel: Callable[..., Tensor] | None) -> Callable[[HandoffOutput], Tensor]:
    """What completes a hand-off: ``kernel`` where it is rows of experts, else the hand-off."""

    def complete(value: HandoffOutput) -> Tensor:
        if kernel is not None and isinstance(value, ExpertRows):
            return kernel(*value.parts)
        return value.complete()

    return complete


def check_expert_rows(
    rows: Tensor, weights: Tensor, index: Tensor | None, shared: Tensor | None
) -> None:
    """Refuses what is no `ExpertRows`: ValueError."""
    if rows.dim() != 2 or not rows.is_floating_point():
        raise ValueError(f"rows of experts are floating [any, width], not {_said(rows)}")
    if weights.dim() != 2 or weights.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"weights of experts are float32 [tokens, experts], not {_said(weights)}")
    tokens, slots = weights.shape
    if index is None:
        if rows.shape[0] != tokens * slots:
            raise ValueError(f"{tokens} x {slots} weights meet {rows.shape[0]} rows of experts")
    elif index.shape != weights.shape or index.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"an index of rows is int32 or int64 like the weights, not {_said(index)}")
    if shared is not None and shared.shape != (tokens, rows.shape[1]):
        wanted = [tokens, rows.shape[1]]
        raise ValueError(f"the rows of a shared expert are {wanted}, not {list(shared.shape)}")


def _said(part: Tensor) -> str:
    return f"{part.dtype} {list(part.shape)}"
