"""What a boundary asks of communication: groups of ranks, and who provides them.

Any object with the methods of `Collective` works, so an engine can pass its own communicators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from boundaryc.runtime.mesh import Axes, Mesh

Sizes = tuple[int, ...]
"""Rows of each member of a group, in group order."""


class Collective(Protocol):
    """The collectives of one group. Rows are dimension 0; trailing dimensions are equal.

    All members call the same methods in the same order, with equal ``sizes``. Row counts of 0 are
    legal everywhere. What is returned is the caller's: no later call may write it. Wrap a group
    that returns a buffer which it uses again in `CopiedCollective`, and one that sums 16-bit
    numbers with a rounding at every step in `WideCollective`.
    """

    @property
    def rank(self) -> int:
        """This rank's index in the group."""

    @property
    def size(self) -> int:
        """Number of members."""

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of ``x`` over the group; equal shapes. It may overwrite ``x``."""

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """The rows of all members in group order; ``sizes`` None: all have as many as ``x``."""

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """This rank's rows of the sum of ``x``; ``sizes`` None: all members get equally many."""


class GroupProvider(Protocol):
    """Gives the collectives of a mesh. Every rank asks for the same groups in the same order."""

    @property
    def rank(self) -> int:
        """This rank inside its pipeline stage, in 0..mesh.size - 1."""

    def collective(self, mesh: Mesh, axes: Axes) -> Collective:
        """The group of the ranks that agree with this one on all atoms but ``axes``."""


class SingleCollective:
    """A group of one rank: nothing to communicate."""

    rank = 0
    size = 1

    def all_reduce(self, x: Tensor) -> Tensor:
        """``x`` itself."""
        return x

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """``x`` itself."""
        return x

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """``x`` itself."""
        return x


class CopiedCollective:
    """A group whose results lie in a buffer that its next call overwrites, made safe to keep.

    Results are copied out of the buffer: two sums that are in flight do not share storage.
    """

    __slots__ = ("_group", "rank", "size")

    def __init__(self, group: Collective) -> None:
        self._group = group
        self.rank = group.rank
        self.size = group.size

    @property
    def process_group(self) -> Any:
        """The group's, see `SymmetricSums`; None where it has none."""
        return getattr(self._group, "process_group", None)

    def all_reduce(self, x: Tensor) -> Tensor:
        """The group's, copied."""
        return self._group.all_reduce(x).clone()

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """The group's, copied."""
        return self._group.all_gather(x, sizes).clone()

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """The group's, copied."""
        return self._group.reduce_scatter(x, sizes).clone()


class WideCollective:
    """A group whose sums are accumulated in float32 or wider and rounded once, for twice the bytes.

    Which way a sum is rounded then depends on no algorithm that a backend may choose.
    """

    __slots__ = ("_group", "rank", "size")

    def __init__(self, group: Collective) -> None:
        self._group = group
        self.rank = group.rank
        self.size = group.size

    @property
    def process_group(self) -> Any:
        """The group's, see `SymmetricSums`; None where it has none."""
        return getattr(self._group, "process_group", None)

    def all_reduce(self, x: Tensor) -> Tensor:
        """The group's, on wider numbers."""
        return self._group.all_reduce(wide(x)).to(x.dtype)

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """The group's: nothing is added."""
        return self._group.all_gather(x, sizes)

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """The group's, on wider numbers."""
        return self._group.reduce_scatter(wide(x), sizes).to(x.dtype)


def wide(x: Tensor) -> Tensor:
    """``x`` in the dtype in which it is summed: float32 at least, integers in their own."""
    return x.to(torch.promote_types(x.dtype, torch.float32)) if x.is_floating_point() else x


class SingleGroups:
    """Groups of a topology with one rank."""

    rank = 0

    def collective(self, mesh: Mesh, axes: Axes) -> Collective:
        """A group of one. ValueError where the mesh has more ranks."""
        if mesh.size != 1:
            raise ValueError(f"SingleGroups serves one rank; the mesh has {mesh.size}")
        return SingleCollective()


class MappedGroups:
    """Groups of an engine with its own communicators, by the label of each group.

    ``device`` is the type of device that their tensors are on.
    """

    def __init__(self, rank: int, groups: Mapping[str, Collective], *, device: str = "cpu") -> None:
        self.rank = rank
        self.device = device
        self._groups = dict(groups)

    def collective(self, mesh: Mesh, axes: Axes) -> Collective:
        """The group given for ``mesh.label(axes)``; ValueError where it is missing or misplaced."""
        label = mesh.label(axes)
        group = self._groups.get(label)
        if group is None:
            given = ", ".join(sorted(self._groups)) or "none"
            raise ValueError(f"no group is given for `{label}`; given: {given}")
        members = mesh.members(self.rank, axes)
        if (group.rank, group.size) != (members.index(self.rank), len(members)):
            raise ValueError(
                f"group `{label}` is rank {group.rank} of {group.size}; rank {self.rank} of this "
                f"mesh is {members.index(self.rank)} of {len(members)} there"
            )
        return group
