"""What runs between the stages of `sample` on tp4_dp2, for ordinary batches.

rows attn_dp   a rank holds the rows of its attention DP group
rows all       a rank holds the rows of all ranks
owes attn_tp   the value is a partial sum, to be added over the group attn_tp
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from boundaryc.runtime import At, Left, Norm, OwedOutput

from ..rowwise import add_rms_norm, rms_norm
from .ordinary_access import COMPLETE, OWES_ATTN_TP, OWES_TP

if TYPE_CHECKING:
    from .layout import Batch


def start_to_attention(at: At[Tensor], hidden: Tensor, batch: Batch, **shows: Any) -> Tensor:
    """From start to attention: enter, norm.

    in   rows attn_dp                    no residual
    out  rows attn_dp                    residual rows attn_dp
    collectives: none
    """
    stream = batch.stream
    if stream.due is not at.here or shows:
        return at.detour(hidden, batch, **shows)
    (norm,) = at.read
    stream.residual = stream.enter(hidden)
    return rms_norm(stream.residual, norm.weight)


# Leaves the sum over attn_tp to mlp or experts.
attention_leave = Left(owes=True, access=OWES_ATTN_TP)


def attention_to_mlp_or_experts(
    at: At[Tensor], hidden: Tensor, batch: Batch, **shows: Any
) -> Tensor:
    """From attention to mlp or experts: sum over attn_tp, add, norm, gather over attn_dp.

    in   rows attn_dp, owes attn_tp      residual rows attn_dp
    out  rows all                        residual rows attn_dp
    collectives: all_reduce(attn_tp), all_gather(attn_dp)
    """
    groups, rows, stream = batch.groups, batch.rows, batch.stream
    if stream.due is not at.here or hidden is not stream.handle or shows:
        return at.detour(hidden, batch, **shows)
    hidden, stream.value, stream.handle, stream.due = stream.value, None, None, at
    (norm,) = at.read
    hidden = groups.attn_tp.all_reduce(hidden)
    hidden, stream.residual = add_rms_norm(hidden, stream.residual, norm.weight)
    return groups.attn_dp.all_gather(hidden, rows.attn_dp.sizes)


# mlp or experts -> attention


def keep_partial(hidden: Tensor, batch: Batch) -> Tensor:
    """Compute keeps its partial: the boundary owns the sum over tp."""
    return hidden


# Leaves the sum over tp to attention.
mlp_or_experts_leave = Left(owes=True, access=OWES_TP)


def mlp_or_experts_to_attention(
    at: At[Tensor], hidden: Tensor, batch: Batch, **shows: Any
) -> Tensor:
    """From mlp or experts to attention: sum over tp, slice over attn_dp, add, norm.

    in   rows all, owes attn_dp attn_tp  residual rows attn_dp
    out  rows attn_dp                    residual rows attn_dp
    collectives: all_reduce(tp)
    """
    groups, rows, stream = batch.groups, batch.rows, batch.stream
    if stream.due is not at.here or hidden is not stream.handle or shows:
        return at.detour(hidden, batch, **shows)
    hidden, stream.value, stream.handle, stream.due = stream.value, None, None, at
    (norm,) = at.read
    hidden = groups.tp.all_reduce(hidden)
    hidden = rows.attn_dp.take(hidden)
    hidden, stream.residual = add_rms_norm(hidden, stream.residual, norm.weight)
    return hidden


def mlp_or_experts_leave_rs(hidden: Tensor, batch: Batch) -> OwedOutput:
    """Scatters the sum over attn_dp in equal parts, leaves the sum over attn_tp to attention.

    collectives: reduce_scatter(attn_dp)
    """
    hidden = batch.groups.attn_dp.reduce_scatter(hidden)
    return batch.stream.owe(hidden, access=OWES_ATTN_TP)


def mlp_or_experts_leave_rsv(hidden: Tensor, batch: Batch) -> OwedOutput:
    """Scatters the sum over attn_dp to its rows, leaves the sum over attn_tp to attention.

    collectives: reduce_scatter(attn_dp)
    """
    hidden = batch.groups.attn_dp.reduce_scatter(hidden, batch.rows.attn_dp.sizes)
    return batch.stream.owe(hidden, access=OWES_ATTN_TP)


def mlp_or_experts_to_attention_rs(
    at: At[Tensor], hidden: Tensor, batch: Batch, **shows: Any
) -> Tensor:
    """From mlp or experts to attention: sum over attn_tp, add, norm.

    in   rows attn_dp, owes attn_tp      residual rows attn_dp
    out  rows attn_dp                    residual rows attn_dp
    collectives: all_reduce(attn_tp)
    """
    groups, stream = batch.groups, batch.stream
    if stream.due is not at.here or hidden is not stream.handle or shows:
        return at.detour(hidden, batch, **shows)
    hidden, stream.value, stream.handle, stream.due = stream.value, None, None, at
    (norm,) = at.read
    hidden = groups.attn_tp.all_reduce(hidden)
    hidden, stream.residual = add_rms_norm(hidden, stream.residual, norm.weight)
    return hidden


# experts -> final norm


def sum_over_tp(hidden: Tensor, batch: Batch) -> Tensor:
    """Compute sums over tp itself.

    collectives: all_reduce(tp)
    """
    return batch.groups.tp.all_reduce(hidden)


def experts_leave_last(hidden: Tensor, batch: Batch) -> Tensor:
    """Leaves its rows of the complete sum to the final norm: slice over attn_dp."""
    hidden = batch.rows.attn_dp.take(hidden)
    return batch.stream.pend(hidden, access=COMPLETE)


def experts_leave_last_rs(hidden: Tensor, batch: Batch) -> Tensor:
    """Completes the sum for the final norm: scatter over attn_dp, sum over attn_tp.

    collectives: reduce_scatter(attn_dp), all_reduce(attn_tp)
    """
    groups = batch.groups
    hidden = groups.attn_dp.reduce_scatter(hidden)
    hidden = groups.attn_tp.all_reduce(hidden)
    return batch.stream.pend(hidden, access=COMPLETE)


def experts_leave_last_rsv(hidden: Tensor, batch: Batch) -> Tensor:
    """Completes the sum for the final norm: scatter to its rows over attn_dp, sum over attn_tp.

    collectives: reduce_scatter(attn_dp), all_reduce(attn_tp)
    """
    groups, rows = batch.groups, batch.rows
    hidden = groups.attn_dp.reduce_scatter(hidden, rows.attn_dp.sizes)
    hidden = groups.attn_tp.all_reduce(hidden)
    return batch.stream.pend(hidden, access=COMPLETE)


def experts_to_norm(hidden: Tensor | OwedOutput, batch: Batch, norm: Norm) -> Tensor:
    """From experts to the final norm: add, norm.

    in   rows attn_dp                    residual rows attn_dp
    out  rows attn_dp
    collectives: none
    """
    stream = batch.stream
    hidden = stream.take(hidden)
    hidden, stream.residual = add_rms_norm(hidden, stream.residual, norm.weight)
    return hidden
