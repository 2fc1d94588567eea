"""What runs when a model uses an output between two stages of `sample` on tp4_dp2.

For each state in which a stage leaves the stream: how its sum is completed early, how it is folded
into the residual, and how the next boundary goes on from either. Ordinary batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from boundaryc.runtime import Access, Norm, OwedOutput, add

from ..rowwise import add_rms_norm, rms_norm

if TYPE_CHECKING:
    from .layout import Batch


# Left on rows attn_dp, owing attn_tp: attention, and mlp or experts under rs and rsv.


def complete_over_attn_tp(value: Tensor, batch: Batch) -> Tensor:
    """Completes the sum over attn_tp.

    collectives: all_reduce(attn_tp)
    """
    return batch.groups.attn_tp.all_reduce(value)


def fold_over_attn_tp(value: Tensor, batch: Batch) -> Tensor:
    """The written residual, rows attn_dp: sum over attn_tp, add.

    collectives: all_reduce(attn_tp)
    """
    value = batch.groups.attn_tp.all_reduce(value)
    return add(value, batch.stream.residual)


def fold_complete(value: Tensor, batch: Batch) -> Tensor:
    """The written residual, rows attn_dp: add.

    collectives: none
    """
    return add(value, batch.stream.residual)


OWES_ATTN_TP = Access(
    complete=complete_over_attn_tp,
    fold=fold_over_attn_tp,
    fold_completed=fold_complete,
)


# Left on rows all, owing tp: mlp or experts.


def complete_over_tp(value: Tensor, batch: Batch) -> Tensor:
    """Completes the sum over tp.

    collectives: all_reduce(tp)
    """
    return batch.groups.tp.all_reduce(value)


def fold_over_tp(value: Tensor, batch: Batch) -> Tensor:
    """The written residual, rows attn_dp: sum over tp, slice over attn_dp, add.

    collectives: all_reduce(tp)
    """
    value = batch.groups.tp.all_reduce(value)
    value = batch.rows.attn_dp.take(value)
    return add(value, batch.stream.residual)


def fold_complete_of_all_rows(value: Tensor, batch: Batch) -> Tensor:
    """The written residual, rows attn_dp: slice over attn_dp, add.

    collectives: none
    """
    value = batch.rows.attn_dp.take(value)
    return add(value, batch.stream.residual)


def spread_to_all_rows(extra: Tensor, batch: Batch) -> Tensor:
    """An extra contribution from rows attn_dp to all rows.

    collectives: all_gather(attn_dp)
    """
    return batch.groups.attn_dp.all_gather(extra, batch.rows.attn_dp.sizes)


OWES_TP = Access(
    complete=complete_over_tp,
    fold=fold_over_tp,
    fold_completed=fold_complete_of_all_rows,
    spread=spread_to_all_rows,
)


# Left complete on rows attn_dp: the last layer's experts.

COMPLETE = Access(fold=fold_complete)


# The next boundary, from a completed output or a written stream on rows attn_dp.


def read_written(hidden: Tensor, batch: Batch, norm: Norm) -> Tensor:
    """To attention or the final norm, from the written stream: norm.

    collectives: none
    """
    stream = batch.stream
    stream.residual = stream.take(hidden)
    return rms_norm(stream.residual, norm.weight)


def attention_to_mlp_or_experts_completed(
    hidden: Tensor | OwedOutput, batch: Batch, norm: Norm
) -> Tensor:
    """From attention's completed output to mlp or experts: add, norm, gather over attn_dp.

    collectives: all_gather(attn_dp)
    """
    groups, rows, stream = batch.groups, batch.rows, batch.stream
    hidden = stream.take(hidden)
    hidden, stream.residual = add_rms_norm(hidden, stream.residual, norm.weight)
    return groups.attn_dp.all_gather(hidden, rows.attn_dp.sizes)


def attention_to_mlp_or_experts_written(hidden: Tensor, batch: Batch, norm: Norm) -> Tensor:
    """To mlp or experts from the written stream: norm, gather over attn_dp.

    collectives: all_gather(attn_dp)
    """
    groups, rows, stream = batch.groups, batch.rows, batch.stream
    stream.residual = stream.take(hidden)
    hidden = rms_norm(stream.residual, norm.weight)
    return groups.attn_dp.all_gather(hidden, rows.attn_dp.sizes)


def mlp_or_experts_to_attention_completed(
    hidden: Tensor | OwedOutput, batch: Batch, norm: Norm
) -> Tensor:
    """From the completed output of mlp or experts to attention: slice over attn_dp, add, norm.

    collectives: none
    """
    rows, stream = batch.rows, batch.stream
    hidden = stream.take(hidden)
    hidden = rows.attn_dp.take(hidden)
    hidden, stream.residual = add_rms_norm(hidden, stream.residual, norm.weight)
    return hidden


def mlp_or_experts_to_attention_rs_completed(
    hidden: Tensor | OwedOutput, batch: Batch, norm: Norm
) -> Tensor:
    """From the completed output of mlp or experts to attention: add, norm.

    collectives: none
    """
    stream = batch.stream
    hidden = stream.take(hidden)
    hidden, stream.residual = add_rms_norm(hidden, stream.residual, norm.weight)
    return hidden
