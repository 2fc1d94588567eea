"""`sample` on tp4_dp2: which function runs at which boundary.

tp 4 = attn_dp 2 x attn_tp 2
"""

from __future__ import annotations

from boundaryc import runtime
from boundaryc.runtime import (
    AttentionBoundary,
    Column,
    ExitDecision,
    Exits,
    FfnBoundary,
    Prepares,
    Table,
)

from ..layers import AttentionExperts, AttentionMlp, Layer
from . import ordinary
from .layout import MESH, Batch, Groups, Rows

# Batches that have plans of their own: every tuple of boundaries below has one entry for each.
COLUMNS = (
    Column("ordinary", even=("attn_dp",)),
    Column("ordinary"),
)

# What happens to the sum of an FFN.
LEAVE = ExitDecision(
    fuse_mlp_allreduce=True,
    mlp_reduce_scatter=False,
    reduce=ordinary.keep_partial,
    leave=ordinary.mlp_or_experts_leave,
)
LEAVE_RS = ExitDecision(
    fuse_mlp_allreduce=False,
    mlp_reduce_scatter=True,
    reduce=ordinary.keep_partial,
    leave=ordinary.mlp_or_experts_leave_rs,
)
LEAVE_RSV = ExitDecision(
    fuse_mlp_allreduce=False,
    mlp_reduce_scatter=True,
    reduce=ordinary.keep_partial,
    leave=ordinary.mlp_or_experts_leave_rsv,
)
LEAVE_LAST = ExitDecision(
    fuse_mlp_allreduce=False,
    mlp_reduce_scatter=False,
    reduce=ordinary.sum_over_tp,
    leave=ordinary.experts_leave_last,
)
LEAVE_LAST_RS = ExitDecision(
    fuse_mlp_allreduce=False,
    mlp_reduce_scatter=True,
    reduce=ordinary.keep_partial,
    leave=ordinary.experts_leave_last_rs,
)
LEAVE_LAST_RSV = ExitDecision(
    fuse_mlp_allreduce=False,
    mlp_reduce_scatter=True,
    reduce=ordinary.keep_partial,
    leave=ordinary.experts_leave_last_rsv,
)

# Boundaries that are the same under every policy.
START_TO_ATTENTION = (
    ordinary.start_to_attention,
    ordinary.start_to_attention,
)
ATTENTION_LEAVE = (
    ordinary.attention_leave,
    ordinary.attention_leave,
)
ATTENTION_TO_MLP_OR_EXPERTS = (
    ordinary.attention_to_mlp_or_experts,
    ordinary.attention_to_mlp_or_experts,
)
EXPERTS_TO_NORM = (
    ordinary.experts_to_norm,
    ordinary.experts_to_norm,
)


def _table(
    *,
    mlp_or_experts_exit: Exits,
    mlp_or_experts_to_attention: Prepares,
    experts_exit_last: Exits,
) -> Table[Layer]:
    """The boundaries of all layers, from those that differ between policies."""
    return Table(
        layers=(
            (
                1,
                AttentionMlp(
                    attention=AttentionBoundary(START_TO_ATTENTION, ATTENTION_LEAVE),
                    mlp=FfnBoundary(ATTENTION_TO_MLP_OR_EXPERTS, mlp_or_experts_exit),
                ),
            ),
            (
                2,
                AttentionExperts(
                    attention=AttentionBoundary(mlp_or_experts_to_attention, ATTENTION_LEAVE),
                    experts=FfnBoundary(ATTENTION_TO_MLP_OR_EXPERTS, mlp_or_experts_exit),
                ),
            ),
            (
                1,
                AttentionExperts(
                    attention=AttentionBoundary(mlp_or_experts_to_attention, ATTENTION_LEAVE),
                    experts=FfnBoundary(ATTENTION_TO_MLP_OR_EXPERTS, experts_exit_last),
                ),
            ),
        ),
        norm=EXPERTS_TO_NORM,
    )


AR = _table(
    mlp_or_experts_exit=(LEAVE, LEAVE),
    mlp_or_experts_to_attention=(
        ordinary.mlp_or_experts_to_attention,
        ordinary.mlp_or_experts_to_attention,
    ),
    experts_exit_last=(LEAVE_LAST, LEAVE_LAST),
)
RS = _table(
    mlp_or_experts_exit=(LEAVE_RS, LEAVE),
    mlp_or_experts_to_attention=(
        ordinary.mlp_or_experts_to_attention_rs,
        ordinary.mlp_or_experts_to_attention,
    ),
    experts_exit_last=(LEAVE_LAST_RS, LEAVE_LAST),
)
RSV = _table(
    mlp_or_experts_exit=(LEAVE_RSV, LEAVE_RSV),
    mlp_or_experts_to_attention=(
        ordinary.mlp_or_experts_to_attention_rs,
        ordinary.mlp_or_experts_to_attention_rs,
    ),
    experts_exit_last=(LEAVE_LAST_RSV, LEAVE_LAST_RSV),
)

TABLES = {
    "auto": RSV,
    "ar": AR,
    "rs": RS,
    "rsv": RSV,
    "rs+rsv": RSV,
}


class Stack(runtime.Stack[Groups, Rows, Layer]):
    """The boundaries of `sample` on tp4_dp2, for one rank."""

    mesh = MESH
    columns = COLUMNS
    groups_type = Groups
    rows_type = Rows
    tables = TABLES


__all__ = ["COLUMNS", "MESH", "Batch", "Groups", "Rows", "Stack"]
