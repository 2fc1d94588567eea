"""Whether compute did the sum that its exit left to it, asked where ``BOUNDARYC_CHECK`` is set.

Where an exit says neither ``fuse_mlp_allreduce`` nor ``mlp_reduce_scatter``, and where a stage runs
without an exit, nobody sums behind compute: an output that it left unsummed is this rank's partial,
and goes on as if it were the sum. The members of the group hold the same rows, and so the same
output once it is complete, but for rounding. Partials of sharded compute differ by as much as they
are large.

What pads hold says nothing. So an output is refused only where more rows than the batch has pads
differ, and rows that are no numbers are left to others to find. Missed are a batch that is mostly
pads, and a stage without an exit behind which a sum would not be an all-reduce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from boundaryc.runtime.batch import Batch
from boundaryc.runtime.boundaries import FfnBoundary, onward
from boundaryc.runtime.collectives import Collective
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.exits import ExitDecision
from boundaryc.runtime.left import Left, Move

GROSS = 0.1
"""A difference, in shares of a row's largest value, that no order of adding explains."""

IN_EXIT = (
    "its exit leaves the sum to compute: inside it return `exit.reduce_output(hidden)` of all "
    "parts of the output, or sum over `{group}` in compute where `skips_reduction` is False"
)
WITHOUT_EXIT = (
    "a stage that runs without an exit sums its output itself: sum over `{group}` before "
    "`postprocess`, or compute inside its exit"
)


@dataclass(frozen=True, slots=True)
class Completed:
    """The end of a stage that first sees whether its output is the sum over a group.

    ``leave`` is that end, ``sums`` the function that would do the sum in ``batch.groups``;
    ``boundary`` and ``remedy`` are for people.
    """

    leave: Callable[..., Any]
    sums: Move
    boundary: str
    remedy: str

    def __call__(self, hidden: Any, batch: Batch[Any, Any], *update: Any, **terms: Tensor) -> Any:
        """As ``leave``; BoundaryError on all members of the group where their outputs differ."""
        if isinstance(hidden, Tensor) and hidden.numel() and batch.has_tokens():
            asked = _Asked(batch.groups)
            self.sums(hidden, asked)
            for name, group in asked.groups.summed:
                self._compare(hidden, batch, name, group)
        return self.leave(hidden, batch, *update, **terms)

    def _compare(
        self, hidden: Tensor, batch: Batch[Any, Any], name: str, group: Collective
    ) -> None:
        members = group.all_gather(hidden.unsqueeze(0)).flatten(2)
        members = members.to(torch.promote_types(hidden.dtype, torch.float32))
        numbers = members.isfinite().all(dim=2).all(dim=0)
        spread = (members - members[0]).abs().amax(dim=(0, 2))
        differ = int((numbers & (spread > GROSS * members.abs().amax(dim=(0, 2)))).sum())
        if differ > batch.global_rows - sum(batch.facts.rows_per_dp):
            raise BoundaryError(
                f"{self.boundary}: the output must be complete, and {differ} of its {len(hidden)} "
                f"rows differ between the {group.size} ranks of `{name}`; "
                f"{self.remedy.format(group=name)}"
            )


class _Asked:
    """A batch for a function that sums, which only tells over which groups it would."""

    def __init__(self, groups: object) -> None:
        self.groups = _AskedGroups(groups)


class _AskedGroups:
    """Groups that note who is asked for a sum, and do none."""

    def __init__(self, groups: object) -> None:
        self._groups = groups
        self.summed: list[tuple[str, Collective]] = []

    def __getattr__(self, name: str) -> _AskedGroup:
        return _AskedGroup(name, getattr(self._groups, name), self.summed)


@dataclass(frozen=True, slots=True)
class _AskedGroup:
    """One of them."""

    name: str
    group: Collective
    summed: list[tuple[str, Collective]]

    def all_reduce(self, x: Tensor) -> Tensor:
        """``x``: nothing is sent."""
        self.summed.append((self.name, self.group))
        return x


def completed(layer: Any, behind: Iterable[tuple[str, str]]) -> Any:
    """The boundaries of ``layer``, which no one else has, with ends that see what compute left.

    ``behind`` are the names of its stages, each with what follows it.
    """
    for name, following in behind:
        boundary = getattr(layer, name)
        if isinstance(boundary._leave[0], ExitDecision):
            _see(boundary, f"{boundary.position.name} to {following}")
    return layer


def _see(boundary: Any, told: str) -> None:
    decisions: tuple[ExitDecision, ...] = boundary._leave
    boundary._leave = tuple(_seen(decision, told) for decision in decisions)
    boundary._onward = onward(boundary._leave, boundary.position)
    if isinstance(boundary, FfnBoundary) and boundary._postprocess:
        boundary._postprocess = tuple(
            end if sums is None else Completed(end, sums, told, WITHOUT_EXIT)
            for end, sums in zip(boundary._postprocess, map(_sum, decisions), strict=True)
        )


def _seen(decision: ExitDecision, told: str) -> ExitDecision:
    """The decision; with an end that sees the output where it leaves a sum to compute."""
    if decision.fuse_mlp_allreduce or decision.mlp_reduce_scatter:
        return decision
    return replace(decision, leave=Completed(decision.leave, decision.reduce, told, IN_EXIT))


def _sum(decision: ExitDecision) -> Move | None:
    """What would complete a partial of the stage; None where that is no function of its own."""
    leave = decision.leave
    if isinstance(leave, Left) and leave.owes:
        return None if leave.access is None else leave.access.complete
    return None if decision.mlp_reduce_scatter else decision.reduce
