"""The ranks of one pipeline stage as a grid of named atoms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

Axes = tuple[str, ...]
"""Names of atoms, outermost first."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """Named atoms, outermost first; ranks number their coordinates lexicographically.

    ``atoms`` are (name, size, attention axis), the axis one of attn_dp, attn_cp, attn_tp; atoms of
    size 1 are left out. ``labels`` names sets of atoms that have a name of their own.

    >>> mesh = Mesh((("attn_dp", 2, "attn_dp"), ("attn_tp", 2, "attn_tp")))
    >>> mesh.coordinate(3), mesh.members(3, ("attn_dp",)), mesh.label(("attn_dp", "attn_tp"))
    ((1, 1), (1, 3), 'tp')
    """

    atoms: tuple[tuple[str, int, str], ...]
    labels: tuple[tuple[str, Axes], ...] = ()

    @property
    def size(self) -> int:
        """Number of ranks."""
        return prod(size for _, size, _ in self.atoms)

    @property
    def names(self) -> Axes:
        """Names of all atoms, outermost first."""
        return tuple(name for name, _, _ in self.atoms)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all atoms, outermost first."""
        return tuple(size for _, size, _ in self.atoms)

    def coordinate(self, rank: int) -> tuple[int, ...]:
        """Coordinates of ``rank``, one per atom. ValueError where there is no such rank."""
        return _coordinate(self, rank)

    def rank(self, coordinate: tuple[int, ...]) -> int:
        """The rank at ``coordinate``."""
        rank = 0
        for position, size in zip(coordinate, self.shape, strict=True):
            rank = rank * size + position
        return rank

    def positions(self, axes: Axes) -> tuple[int, ...]:
        """Indexes of ``axes`` among the atoms. ValueError for an unknown or a repeated one."""
        unknown = [name for name in axes if name not in self.names]
        if unknown or len(set(axes)) != len(axes):
            raise ValueError(f"{axes} is not a set of the mesh's atoms {self.names}")
        return tuple(sorted(self.names.index(name) for name in axes))

    def members(self, rank: int, axes: Axes) -> tuple[int, ...]:
        """Ranks that differ from ``rank`` at most on ``axes``, in rank order, itself included."""
        return _members(self, rank, axes)

    def extent(self, axis: str) -> int:
        """Size of an attention axis: the product of its atoms, 1 where it has none."""
        return prod(size for _, size, of in self.atoms if of == axis)

    def along(self, rank: int, axis: str) -> int:
        """Coordinate of ``rank`` along an attention axis, in 0..extent - 1."""
        position = 0
        for (_, size, of), at in zip(self.atoms, self.coordinate(rank), strict=True):
            if of == axis:
                position = position * size + at
        return position

    def label(self, axes: Axes) -> str:
        """The name of a group over ``axes``, an identifier; "tp" is the group of all ranks.

        A name in ``labels`` wins; other sets join the names of whole attention axes and of atoms.
        """
        positions = self.positions(axes)
        if len(positions) == len(self.atoms):
            return "tp"
        for label, of in self.labels:
            if self.positions(of) == positions:
                return label
        parts: list[str] = []
        for axis in dict.fromkeys(of for _, _, of in self.atoms):
            of_axis = [index for index, atom in enumerate(self.atoms) if atom[2] == axis]
            named = [index for index in of_axis if index in positions]
            parts += [axis] if named == of_axis else [self.names[index] for index in named]
        return "_".join(parts)


@cache  # every batch asks for the same few groups
def _members(mesh: Mesh, rank: int, axes: Axes) -> tuple[int, ...]:
    moved = mesh.positions(axes)
    own = mesh.coordinate(rank)
    choices = [
        range(size) if index in moved else (own[index],) for index, size in enumerate(mesh.shape)
    ]
    return tuple(mesh.rank(coordinate) for coordinate in product(*choices))


@cache
def _coordinate(mesh: Mesh, rank: int) -> tuple[int, ...]:
    if not 0 <= rank < mesh.size:
        raise ValueError(f"rank {rank} is not in 0..{mesh.size - 1}")
    coordinate = []
    for size in reversed(mesh.shape):
        rank, remainder = divmod(rank, size)
        coordinate.append(remainder)
    return tuple(reversed(coordinate))
