"""Batches to verify with, and which tokens each rank must hold.

The arithmetic here repeats that of the runtime on purpose: it is written from the definition and
judges the runtime's.
"""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.topology import Mesh


@dataclass(frozen=True, slots=True)
class Shape:
    """A named batch: the real tokens of each attention-DP group."""

    name: str
    rows: tuple[int, ...]


def shapes(groups: int, cuts: int) -> tuple[Shape, ...]:
    """The batches every stack must survive, for ``groups`` DP groups each cut ``cuts`` ways."""
    even, one = 2 * cuts, (1,) + (0,) * (groups - 1)
    found = [
        Shape("even", (even,) * groups),
        Shape("uneven", tuple(even + 1 + 3 * (index % 3) for index in range(groups))),
        Shape("one_empty", (*(even + index for index in range(1, groups)), 0)),
        Shape("all_empty_but_one", (0,) * (groups - 1) + (even + 1,)),
        Shape("one_token", one),
        Shape("fewer_than_ranks", tuple(max(1, cuts - 1) for _ in range(groups))),
        Shape("empty", (0,) * groups),
    ]
    unique: dict[tuple[int, ...], Shape] = {}
    for shape in found:
        unique.setdefault(shape.rows, shape)
    return tuple(unique.values())


@dataclass(frozen=True, slots=True)
class Layout:
    """One batch laid out on a mesh: the tokens of every leaf, pads as None."""

    leaves: tuple[tuple[int | None, ...], ...]

    @property
    def rows(self) -> int:
        """The rows of all groups together, pads included."""
        return sum(len(leaf) for leaf in self.leaves)

    def tokens(self, mesh: Mesh, rank: int, rows: int) -> list[int | None]:
        """What ``rank`` holds of a value whose rows are sharded over the mask ``rows``."""
        own = coordinates(mesh, rank)
        held: list[int | None] = []
        for other in range(len(self.leaves)):
            theirs = coordinates(mesh, other)
            if all(theirs[index] == own[index] for index in range(len(own)) if rows >> index & 1):
                held.extend(self.leaves[other])
        return held

    def even_axes(self, mesh: Mesh) -> frozenset[str]:
        """The axes along which all leaves have equal lengths."""
        axes = {atom.axis for atom in mesh.atoms}
        return frozenset(axis for axis in axes if self._is_even(mesh, axis))

    def _is_even(self, mesh: Mesh, axis: str) -> bool:
        rest = [index for index, atom in enumerate(mesh.atoms) if atom.axis != axis]
        lengths: dict[tuple[int, ...], set[int]] = {}
        for rank, leaf in enumerate(self.leaves):
            place = coordinates(mesh, rank)
            lengths.setdefault(tuple(place[index] for index in rest), set()).add(len(leaf))
        return all(len(found) == 1 for found in lengths.values())


def in_token_order(tokens: list[int | None]) -> list[int | None]:
    """The same rows with the real tokens first, in the order of their sequence."""
    real = sorted(token for token in tokens if token is not None)
    return [*real, *([None] * (len(tokens) - len(real)))]


def lay_out(
    mesh: Mesh, rows: tuple[int, ...], padding: str, multiple: int, split: str | None = None
) -> Layout:
    """Cuts a batch over a mesh. Tokens are numbered through the groups in order.

    ``split`` None cuts each group's rows in order; "zigzag" and "interleaved" deal them out to the
    shards of attn_cp, each group being one request. ``multiple`` is what a group is padded to, or
    each shard of it where the shards are dealt out.
    """
    cp, tp = mesh.size(mesh.mask("attn_cp")), mesh.size(mesh.mask("attn_tp"))
    groups: list[list[list[int | None]]] = []
    first = 0
    for count in rows:
        tokens: list[int | None] = list(range(first, first + count))
        first += count
        groups.append(_deal(tokens, cp, split, padding) if split else [tokens])
    padded = _pad(groups, padding, multiple)
    shards = [part for group in padded for part in (group if split else _balanced(group[0], cp))]
    return Layout(tuple(tuple(leaf) for shard in shards for leaf in _balanced(shard, tp)))


def _pad(
    groups: list[list[list[int | None]]], padding: str, multiple: int
) -> list[list[list[int | None]]]:
    if padding == "unpadded":
        return groups
    parts = [part for group in groups for part in group]
    lengths = [-(-len(part) // multiple) * multiple for part in parts]
    if padding == "max_len":
        lengths = [max(lengths)] * len(lengths)
    target = iter(lengths)
    return [[_fill(part, next(target)) for part in group] for group in groups]


def _fill(part: list[int | None], length: int) -> list[int | None]:
    return [*part, *([None] * (length - len(part)))]


def _deal(
    tokens: list[int | None], shards: int, split: str, padding: str
) -> list[list[int | None]]:
    """The shards of one request under context parallelism; interleaved ones are padded alike."""
    if split == "zigzag":
        chunks = _balanced(tokens, 2 * shards)
        return [[*chunks[index], *chunks[-1 - index]] for index in range(shards)]
    dealt = [tokens[index::shards] for index in range(shards)]
    return dealt if padding == "unpadded" else [_fill(part, len(dealt[0])) for part in dealt]


def shortest_request(split: str, shards: int) -> int:
    """The fewest tokens of a request of which every shard gets some."""
    return 2 * shards if split == "zigzag" else shards


def _balanced(tokens: list[int | None], parts: int) -> list[list[int | None]]:
    pieces, start = [], 0
    for index in range(parts):
        stop = start + len(tokens) // parts + (1 if index < len(tokens) % parts else 0)
        pieces.append(tokens[start:stop])
        start = stop
    return pieces


def coordinates(mesh: Mesh, rank: int) -> tuple[int, ...]:
    """The place of a rank on the atoms, outermost first."""
    place: list[int] = []
    for size in reversed(mesh.sizes):
        rank, at = divmod(rank, size)
        place.insert(0, at)
    return tuple(place)
