"""How the rows of one batch are cut: leaf counts, and the rows that the members of a group hold.

The rows of a DP group are cut over attn_cp, contiguously unless the batch is context parallel
(see `shards`), then each part contiguously over attn_tp; a *leaf* is what one rank gets when its
rows are sharded over every atom. A rank whose value has rows ``R`` holds the leaves of all ranks
that agree with it on the atoms of ``R``, in rank order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from boundaryc.runtime.mesh import Axes, Mesh
from boundaryc.runtime.orders import IDENTITY, Order, by_token
from boundaryc.runtime.shards import Sharding


@dataclass(frozen=True, slots=True)
class Members:
    """Rows that the members of one group hold, in group order, and where this rank's rows are.

    ``sizes`` has one row count per member; ``index`` is this rank's place in the group. In the
    ``total`` rows of the group this rank's are ``start:stop``.
    """

    sizes: tuple[int, ...]
    index: int
    start: int = field(init=False)
    stop: int = field(init=False)
    total: int = field(init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.index < len(self.sizes):
            raise ValueError(f"member {self.index} is not one of {len(self.sizes)}")
        ends = tuple(accumulate(self.sizes))
        object.__setattr__(self, "start", ends[self.index] - self.sizes[self.index])
        object.__setattr__(self, "stop", ends[self.index])
        object.__setattr__(self, "total", ends[-1])

    def take(self, rows: Tensor) -> Tensor:
        """This rank's own rows of ``rows`` [total, ...]: a view. ValueError for other rows."""
        if rows.shape[0] != self.total:
            raise ValueError(f"{rows.shape[0]} rows where the group has {self.total}")
        return rows[self.start : self.stop]

    def place(self, rows: Tensor) -> Tensor:
        """``rows`` [stop - start, ...] at their place in [total, ...] zeros: new storage."""
        placed = rows.new_zeros((self.total, *rows.shape[1:]))
        placed[self.start : self.stop] = rows
        return placed


def split_evenly(rows: int, parts: int) -> tuple[int, ...]:
    """Row counts of ``parts`` contiguous parts, balanced: the first ``rows % parts`` are longer.

    >>> split_evenly(7, 3)
    (3, 2, 2)
    """
    each, longer = divmod(rows, parts)
    return tuple(each + (index < longer) for index in range(parts))


def leaf_counts(mesh: Mesh, rows_per_dp: tuple[int, ...]) -> tuple[int, ...]:
    """Rows of each rank's leaf, by rank, from the padded rows of each DP group, cut in sequence."""
    parts = mesh.extent("attn_cp")
    return shard_leaves(mesh, tuple(split_evenly(rows, parts) for rows in rows_per_dp))


def shard_leaves(mesh: Mesh, shards: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Rows of each rank's leaf, by rank, from the padded rows of each shard of each DP group."""
    slots = mesh.extent("attn_tp")
    leaves = [[split_evenly(rows, slots) for rows in of_group] for of_group in shards]
    return tuple(
        leaves[mesh.along(rank, "attn_dp")][mesh.along(rank, "attn_cp")][
            mesh.along(rank, "attn_tp")
        ]
        for rank in range(mesh.size)
    )


def even_atoms(mesh: Mesh, leaves: tuple[int, ...]) -> frozenset[str]:
    """Atoms along which all leaves are equal, so that every cut over them has equal sizes.

    It depends on nothing but the leaves of all ranks: every rank finds the same atoms.
    """
    found, stride = set(), 1
    for name, size, _ in reversed(mesh.atoms):
        first = (rank - rank // stride % size * stride for rank in range(len(leaves)))
        if all(leaves[other] == own for other, own in zip(first, leaves, strict=True)):
            found.add(name)
        stride *= size
    return frozenset(found)


class Cutter:
    """What does not change between batches: whose leaves make up the rows of each member."""

    __slots__ = ("_shares", "mesh", "rank")

    def __init__(self, mesh: Mesh, rank: int) -> None:
        self.mesh = mesh
        self.rank = rank
        self._shares: dict[tuple[Axes, Axes], tuple[int, tuple[tuple[int, ...], ...]]] = {}

    def shares(self, moved: Axes, finer: Axes) -> tuple[int, tuple[tuple[int, ...], ...]]:
        """This rank's index in its group over ``moved``, and the leaves of each member."""
        known = self._shares.get((moved, finer))
        if known is None:
            group = self.mesh.members(self.rank, moved)
            whole = tuple(name for name in self.mesh.names if name not in finer)
            leaves = tuple(self.mesh.members(member, whole) for member in group)
            known = self._shares[moved, finer] = (group.index(self.rank), leaves)
        return known


class Cut:
    """The cut of one batch; a generated ``Rows`` asks it for the members of each move.

    ``leaves`` are the rows of each rank's leaf; ``sharding`` is how shards interleave tokens, None
    where they do not. ``real`` are the tokens of each DP group.
    """

    __slots__ = ("_cutter", "leaves", "real", "sharding")

    def __init__(
        self,
        cutter: Cutter,
        leaves: tuple[int, ...],
        sharding: Sharding | None = None,
        real: tuple[int, ...] = (),
    ) -> None:
        self._cutter = cutter
        self.leaves = leaves
        self.sharding = sharding
        self.real = real

    def members(self, moved: Axes, *, finer: Axes) -> Members:
        """Rows of each member of this rank's group over ``moved``.

        ``finer`` are the rows of the finer side of the move: what a gather starts from, what a
        scatter or a slice ends with.
        """
        index, shares = self._cutter.shares(moved, finer)
        sizes = tuple(sum(self.leaves[leaf] for leaf in share) for share in shares)
        return Members(sizes, index)

    def order(self, *, rows: Axes) -> Order:
        """The order by shard and by token of rows that are sharded on the atoms ``rows``.

        Where the rows of several DP groups are held, each group keeps its place. ValueError where
        ``rows`` names an atom of attn_cp: such rows are only a part of the shards.
        """
        mesh = self._cutter.mesh
        whole = tuple(name for name in mesh.names if name not in rows)
        mesh.positions(rows)
        if any(axis == "attn_cp" and name in rows for name, _, axis in mesh.atoms):
            raise ValueError(f"rows sharded on {rows} are not whole over attn_cp")
        if self.sharding is None:
            return IDENTITY
        held = mesh.members(self._cutter.rank, whole)
        return by_token(torch.cat([self._keys(self.sharding, leaf) for leaf in held]))

    def tokens(self, *, rows: Axes, by_token: bool = False) -> Tensor:
        """The token of each row that is sharded on the atoms ``rows``: int64 [rows], on the CPU.

        Tokens count through the DP groups, one after the other; a pad is -1. ``by_token``: the rows
        are in token order.
        """
        mesh = self._cutter.mesh
        whole = tuple(name for name in mesh.names if name not in rows)
        held = mesh.members(self._cutter.rank, whole)
        found = torch.cat([self._leaf(leaf) for leaf in held])
        return self.order(rows=rows).to_tokens(found) if by_token else found

    def _leaf(self, rank: int) -> Tensor:
        """The tokens of a rank's leaf, pads as -1."""
        mesh = self._cutter.mesh
        group, part = mesh.along(rank, "attn_dp"), mesh.along(rank, "attn_cp")
        inner = tuple(name for name, _, axis in mesh.atoms if axis != "attn_dp")
        of_group = mesh.members(rank, inner)
        if self.sharding is None:
            own = torch.arange(sum(self.leaves[member] for member in of_group))
            own[own >= self.real[group]] = -1
        else:
            of_group = tuple(one for one in of_group if mesh.along(one, "attn_cp") == part)
            own = torch.full((self.sharding.padded[group][part],), -1)
            tokens = self.sharding.tokens(group)[part]
            own[: tokens.shape[0]] = tokens
        own[own >= 0] += sum(self.real[:group])
        first = sum(self.leaves[member] for member in of_group if member < rank)
        return own[first : first + self.leaves[rank]]

    def has_tokens(self, rows_per_dp: tuple[int, ...]) -> bool:
        """Whether every leaf that has rows has a token, so that no value is made of pads alone.

        ``rows_per_dp`` are the tokens of each DP group. All ranks find the same.
        """
        mesh = self._cutter.mesh
        tokens: dict[tuple[int, int], int] = {}
        for rank, rows in enumerate(self.leaves):
            group, part = mesh.along(rank, "attn_dp"), mesh.along(rank, "attn_cp")
            span, real = (group, 0), rows_per_dp[group]
            if self.sharding is not None:
                parts = self.sharding.cp.sizes(group, len(self.sharding.padded[group]))
                span, real = (group, part), parts[part]
            left = tokens.setdefault(span, real)
            if rows and left <= 0:
                return False
            tokens[span] = left - rows  # pads are behind the tokens
        return True

    def _keys(self, sharding: Sharding, rank: int) -> Tensor:
        """What the rows of a rank's leaf are sorted by: DP group, then token, pads last."""
        mesh = self._cutter.mesh
        group, part = mesh.along(rank, "attn_dp"), mesh.along(rank, "attn_cp")
        largest = max(sum(shards) for shards in sharding.padded)
        keys = torch.full((sharding.padded[group][part],), (group + 1) * (largest + 1) - 1)
        tokens = sharding.tokens(group)[part]
        keys[: tokens.shape[0]] = tokens + group * (largest + 1)
        slots = split_evenly(keys.shape[0], mesh.extent("attn_tp"))
        slot = mesh.along(rank, "attn_tp")
        return keys[sum(slots[:slot]) : sum(slots[: slot + 1])]
