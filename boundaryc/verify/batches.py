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


def lay_out(mesh: Mesh, rows: tuple[int, ...], padding: str, multiple: int) -> Layout:
    """Cuts a batch over a mesh. Tokens are numbered through the groups in order."""
    padded = [
        count if padding == "unpadded" else -(-count // multiple) * multiple for count in rows
    ]
    if padding == "max_len":
        padded = [max(padded)] * len(padded)
    leaves: list[tuple[int | None, ...]] = []
    first = 0
    cp, tp = mesh.size(mesh.mask("attn_cp")), mesh.size(mesh.mask("attn_tp"))
    for real, total in zip(rows, padded, strict=True):
        tokens: list[int | None] = [*range(first, first + real), *([None] * (total - real))]
        first += real
        for shard in _balanced(tokens, cp):
            leaves.extend(tuple(leaf) for leaf in _balanced(shard, tp))
    return Layout(tuple(leaves))


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
