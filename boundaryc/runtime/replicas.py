"""Whether a sum is really owed, asked before it runs where ``BOUNDARYC_CHECK`` is set.

A stage whose compute is replicated, but which is declared to owe a sum, leaves the same value on
all members of the group: the sum would be that many times too large, and the text would stay
fluent. Partials of sharded compute are never bitwise equal on rows of tokens, unless they are zero.

Additive terms make equal partials of them: even parts of a term are equal on all members, and one
that the first member adds hides that all others are. So an output to which terms are added is
compared as it was before, where it is summed on the rows on which it was left.

What pads hold says nothing. So only sums of a boundary are compared, and only in a batch where each
rank's rows have a token among them, however they are cut, and where more rows than the batch has
pads are not zero. Missed are a sum of compute's own, one
that travels quantised, one at which ranks place different rows, one behind a pipeline cut, and,
with additive terms, one that is done in parts or behind a merge: an error there is seen in another
batch or not at all.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from boundaryc.runtime.batch import Batch
from boundaryc.runtime.collectives import Collective, GroupProvider, Sizes
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.handshake import device_of
from boundaryc.runtime.mesh import Axes, Mesh
from boundaryc.runtime.trace import caller, outside


class ReplicaCheckedGroups:
    """A group provider whose sums are refused where all members have the same value already."""

    def __init__(self, provider: GroupProvider) -> None:
        self.rank = provider.rank
        self.device = device_of(provider)
        self._provider = provider

    def collective(self, mesh: Mesh, axes: Axes) -> Collective:
        """The provider's group, checked."""
        return ReplicaChecked(self._provider.collective(mesh, axes), mesh.label(axes))


class ReplicaChecked:
    """One group of a `ReplicaCheckedGroups`; gathers what is to be summed before it is."""

    __slots__ = ("_group", "_label", "rank", "size")

    def __init__(self, group: Collective, label: str) -> None:
        self._group = group
        self._label = label
        self.rank = group.rank
        self.size = group.size

    def all_reduce(self, x: Tensor) -> Tensor:
        """The group's; BoundaryError on all members where their values are equal."""
        self._check(x)
        return self._group.all_reduce(x)

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """The group's: nothing is added."""
        return self._group.all_gather(x, sizes)

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """The group's; BoundaryError on all members where their values are equal."""
        self._check(x)
        return self._group.reduce_scatter(x, sizes)

    def _check(self, x: Tensor) -> None:
        batch = None if self.size == 1 else _batch(outside(sys._getframe(2)))
        if batch is None:
            return
        members = self._group.all_gather(_computed(x, batch).unsqueeze(0))
        filled = int(members[0].flatten(1).any(dim=1).sum())
        pads = batch.global_rows - sum(batch.facts.rows_per_dp)
        if filled > pads and all(member.equal(members[0]) for member in members[1:]):
            found = caller(sys._getframe(2))
            raise BoundaryError(
                f"{found['boundary']}: all {self.size} ranks of `{self._label}` hold the same "
                f"value before its sum ({found['site']}); an output that is complete on every rank "
                "owes none: let compute leave its sum, give its stage the width it is sharded "
                "by, or shard its compute"
            )


def _batch(frame: FrameType | None) -> Batch[Any, Any] | None:
    """The batch of the function that runs in ``frame``, if it has tokens; alike on all ranks."""
    batch = None if frame is None else frame.f_locals.get("batch")
    return batch if isinstance(batch, Batch) and batch.has_tokens() else None


def _computed(x: Tensor, batch: Batch[Any, Any]) -> Tensor:
    """What this rank computed of ``x``, in its shape; NaN, which equals nothing, if not known."""
    bare = batch.stream.bare if batch.exit is None else batch.exit.bare
    if bare is None:
        return x
    partial = bare[0]
    if partial is None or partial.shape != x.shape:
        return torch.full_like(x, torch.nan)
    return partial.to(x.dtype)
