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
    Resume,
    Resumes,
    Table,
)

from ..layers import AttentionExperts, AttentionMlp, Layer
from . import ordinary, ordinary_access
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

# How a boundary is crossed when the model completed, folded or wrote what arrives there.
READ_WRITTEN = Resume(written=ordinary_access.read_written)
FROM_ATTENTION = Resume(
    completed=ordinary_access.attention_to_mlp_or_experts_completed,
    written=ordinary_access.attention_to_mlp_or_experts_written,
)
FROM_ALL_ROWS = Resume(
    completed=ordinary_access.mlp_or_experts_to_attention_completed,
    written=ordinary_access.read_written,
)
FROM_OWN_ROWS = Resume(
    completed=ordinary_access.mlp_or_experts_to_attention_rs_completed,
    written=ordinary_access.read_written,
)
START_TO_ATTENTION_RESUME = (READ_WRITTEN, READ_WRITTEN)
ATTENTION_TO_MLP_OR_EXPERTS_RESUME = (FROM_ATTENTION, FROM_ATTENTION)
EXPERTS_TO_NORM_RESUME = (READ_WRITTEN, READ_WRITTEN)
# The final norm does not communicate: a rank without rows calls nothing.
EXPERTS_TO_NORM_EMPTY = (None, None)


def _table(
    *,
    mlp_or_experts_exit: Exits,
    mlp_or_experts_to_attention: Prepares,
    mlp_or_experts_to_attention_resume: Resumes,
    experts_exit_last: Exits,
) -> Table[Layer]:
    """The boundaries of all layers, from those that differ between policies."""
    return Table(
        layers=(
            (
                1,
                AttentionMlp(
                    attention=AttentionBoundary(
                        START_TO_ATTENTION,
                        ATTENTION_LEAVE,
                        resume=START_TO_ATTENTION_RESUME,
                    ),
                    mlp=FfnBoundary(
                        ATTENTION_TO_MLP_OR_EXPERTS,
                        mlp_or_experts_exit,
                        resume=ATTENTION_TO_MLP_OR_EXPERTS_RESUME,
                    ),
                ),
            ),
            (
                2,
                AttentionExperts(
                    attention=AttentionBoundary(
                        mlp_or_experts_to_attention,
                        ATTENTION_LEAVE,
                        resume=mlp_or_experts_to_attention_resume,
                    ),
                    experts=FfnBoundary(
                        ATTENTION_TO_MLP_OR_EXPERTS,
                        mlp_or_experts_exit,
                        resume=ATTENTION_TO_MLP_OR_EXPERTS_RESUME,
                    ),
                ),
            ),
            (
                1,
                AttentionExperts(
                    attention=AttentionBoundary(
                        mlp_or_experts_to_attention,
                        ATTENTION_LEAVE,
                        resume=mlp_or_experts_to_attention_resume,
                    ),
                    experts=FfnBoundary(
                        ATTENTION_TO_MLP_OR_EXPERTS,
                        experts_exit_last,
                        resume=ATTENTION_TO_MLP_OR_EXPERTS_RESUME,
                    ),
                ),
            ),
        ),
        norm=EXPERTS_TO_NORM,
        norm_resume=EXPERTS_TO_NORM_RESUME,
        norm_empty=EXPERTS_TO_NORM_EMPTY,
    )


AR = _table(
    mlp_or_experts_exit=(LEAVE, LEAVE),
    mlp_or_experts_to_attention=(
        ordinary.mlp_or_experts_to_attention,
        ordinary.mlp_or_experts_to_attention,
    ),
    mlp_or_experts_to_attention_resume=(FROM_ALL_ROWS, FROM_ALL_ROWS),
    experts_exit_last=(LEAVE_LAST, LEAVE_LAST),
)
RS = _table(
    mlp_or_experts_exit=(LEAVE_RS, LEAVE),
    mlp_or_experts_to_attention=(
        ordinary.mlp_or_experts_to_attention_rs,
        ordinary.mlp_or_experts_to_attention,
    ),
    mlp_or_experts_to_attention_resume=(FROM_OWN_ROWS, FROM_ALL_ROWS),
    experts_exit_last=(LEAVE_LAST_RS, LEAVE_LAST),
)
RSV = _table(
    mlp_or_experts_exit=(LEAVE_RSV, LEAVE_RSV),
    mlp_or_experts_to_attention=(
        ordinary.mlp_or_experts_to_attention_rs,
        ordinary.mlp_or_experts_to_attention_rs,
    ),
    mlp_or_experts_to_attention_resume=(FROM_OWN_ROWS, FROM_OWN_ROWS),
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
