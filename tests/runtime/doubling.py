"""A stack whose sums, norms and numbers are easy to follow by hand.

A sum is a stand-in that returns twice its input, so that each one that ran shows. The stand-in norm
gives ``2h`` of one input and ``(2(h + r), h + r)`` of two. Both write into one log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from boundaryc.runtime import (
    Access,
    At,
    AttentionBoundary,
    Column,
    Cut,
    ExitDecision,
    FfnBoundary,
    GroupProvider,
    MappedGroups,
    Mesh,
    MixerBoundary,
    OwedOutput,
    Resume,
    Sizes,
    Stack,
    Table,
    add,
)

MESH = Mesh((("attn_tp", 2, "attn_tp"),))


def filled(value: float, rows: int = 2) -> Tensor:
    """Rows x 4 of one number."""
    return torch.full((rows, 4), value)


class Doubler:
    """A group whose sum is twice what it is given."""

    rank = 0
    size = 2

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def all_reduce(self, x: Tensor) -> Tensor:
        """Twice ``x``, written over it."""
        self.log.append("sum")
        return x.mul_(2)

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """Equal rows, once per member."""
        self.log.append("gather")
        return torch.cat([x, x])

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """The first rows of twice ``x``."""
        self.log.append("scatter")
        return x[: x.shape[0] // 2] * 2


class StandInNorm:
    """A norm whose results can be checked in the head."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.weight = torch.ones(4)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Twice ``hidden``."""
        self.log.append("norm")
        return hidden * 2

    def add(self, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Twice the sum, and the sum."""
        self.log.append("norm")
        total = hidden + residual
        return total * 2, total


class Groups:
    """The one group."""

    def __init__(self, provider: GroupProvider) -> None:
        self.tp = provider.collective(MESH, ("attn_tp",))


class Rows:
    """Nothing moves."""

    def __init__(self, cut: Cut) -> None:
        pass


def planned(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function(hidden, batch, *read)`` as a boundary's prepare, which takes the output itself."""

    def prepare(at: At[Any], hidden: Any, batch: Any, **shows: Any) -> Any:
        if batch.stream.due is not at.here or shows:
            return at.detour(hidden, batch, **shows)
        return function(hidden, batch, *at.read)

    return prepare


def start(hidden: Tensor, batch: Any, norm: StandInNorm) -> Tensor:
    """Enter, norm."""
    stream = batch.stream
    stream.residual = stream.enter(hidden)
    return norm(stream.residual)


def after_sum(hidden: Tensor | OwedOutput, batch: Any, norm: StandInNorm) -> Tensor:
    """Sum, add, norm."""
    stream = batch.stream
    value = batch.groups.tp.all_reduce(stream.take(hidden))
    value, stream.residual = norm.add(value, stream.residual)
    return value


def after_complete(hidden: Tensor | OwedOutput, batch: Any, norm: StandInNorm) -> Tensor:
    """Add, norm."""
    stream = batch.stream
    value, stream.residual = norm.add(stream.take(hidden), stream.residual)
    return value


def after_written(hidden: Tensor, batch: Any, norm: StandInNorm) -> Tensor:
    """Norm."""
    stream = batch.stream
    stream.residual = stream.take(hidden)
    return norm(stream.residual)


def sum_only(hidden: Tensor | OwedOutput, batch: Any, norm: StandInNorm) -> Tensor:
    """The final norm's sum, on a rank without rows."""
    stream = batch.stream
    value = batch.groups.tp.all_reduce(stream.take(hidden))
    stream.residual = stream.residual + value
    return value


def summed(value: Tensor, batch: Any) -> Tensor:
    """The sum."""
    return batch.groups.tp.all_reduce(value)  # type: ignore[no-any-return]


def folded_sum(value: Tensor, batch: Any) -> Tensor:
    """The sum, added."""
    return add(batch.groups.tp.all_reduce(value), batch.stream.residual)


def folded(value: Tensor, batch: Any) -> Tensor:
    """Added."""
    return add(value, batch.stream.residual)


OWES = Access(complete=summed, fold=folded_sum, fold_completed=folded)
NONLINEAR = Access(complete=summed, fold=folded_sum, fold_completed=folded, plain=False)
COMPLETE = Access(fold=folded)


def leave(hidden: Tensor, batch: Any) -> OwedOutput:
    """Leave the sum."""
    return batch.stream.owe(hidden, access=OWES)  # type: ignore[no-any-return]


def leave_nonlinear(hidden: Tensor, batch: Any) -> OwedOutput:
    """Leave the sum to an update that is no addition."""
    return batch.stream.owe(hidden, access=NONLINEAR)  # type: ignore[no-any-return]


def pend(hidden: Tensor, batch: Any) -> Tensor:
    """Leave a complete contribution."""
    return batch.stream.pend(hidden, access=COMPLETE)  # type: ignore[no-any-return]


def same(hidden: Tensor, batch: Any) -> Tensor:
    """Compute keeps its partial."""
    return hidden


OWED = ExitDecision(fuse_mlp_allreduce=True, mlp_reduce_scatter=False, reduce=same, leave=leave)
SUMMED = ExitDecision(fuse_mlp_allreduce=False, mlp_reduce_scatter=False, reduce=summed, leave=pend)
RESUME = (Resume(written=after_written, completed=after_complete),)
ENTRY = AttentionBoundary((planned(start),), (leave,), resume=(Resume(written=after_written),))
ATTENTION = AttentionBoundary((planned(after_sum),), (leave,), resume=RESUME)
AFTER_COMPLETE = AttentionBoundary((planned(after_complete),), (leave,), resume=RESUME)
MIXER = MixerBoundary((planned(after_sum),), (OWED,), resume=RESUME)
FFN = FfnBoundary((planned(after_sum),), (OWED,), resume=RESUME)


class DoublingStack(Stack[Groups, Rows, AttentionBoundary]):
    """Two attention stages and a final norm that takes an owed sum."""

    mesh = MESH
    columns = (Column("ordinary"),)
    groups_type = Groups
    rows_type = Rows
    captures = ("aux",)
    tables = {  # noqa: RUF012
        "auto": Table(
            layers=((1, ENTRY), (1, ATTENTION)),
            norm=(after_sum,),
            norm_resume=RESUME,
            norm_empty=(sum_only,),
        ),
        "complete": Table(
            layers=((1, ENTRY), (1, ATTENTION)),
            norm=(after_complete,),
            norm_resume=RESUME,
            norm_empty=(None,),
        ),
    }


class Case:
    """A started forward: ``residual`` 3s once `at` was called."""

    def __init__(self, rows: int = 2, policy: str = "auto") -> None:
        self.log: list[str] = []
        self.stack = DoublingStack(MappedGroups(0, {"tp": Doubler(self.log)}), policy=policy)
        self.norm = StandInNorm(self.log)
        self.batch: Any = self.stack.batch(rows_per_dp=[rows], padding="unpadded", mode="prefill")
        self.stack.start(self.batch)

    @property
    def stream(self) -> Any:
        """The batch's stream."""
        return self.batch.stream

    def residual(self, value: float = 3.0) -> None:
        """Enters the stream with this residual; the log stays empty."""
        self.stream.residual = self.stream.enter(filled(value, self.batch.group_rows))

    def owed(self, value: float = 1.0, residual: float = 3.0) -> OwedOutput:
        """A value that owes a sum over a residual."""
        self.residual(residual)
        return leave(filled(value, self.batch.group_rows), self.batch)

    def pending(self, value: float = 1.0, residual: float = 3.0) -> Tensor:
        """A complete value over a residual."""
        self.residual(residual)
        return pend(filled(value, self.batch.group_rows), self.batch)
