"""The mesh of one pipeline stage: atoms, named axes, and groups as sets of atoms.

The ranks of a pipeline stage factor as attn_dp x attn_cp x attn_tp for attention and as
moe_dp x (moe_ep x moe_tp) for experts, and a dense FFN is sharded over the innermost
``dense_tp`` ranks. Only cuts that one of these contracts names are refined into *atoms*; the split
inside one owed sum (expert against tensor parallel) is none. Sets of atoms are integer masks,
bit 0 the outermost atom.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

MAX_ATOMS = 5


class TopologyError(ValueError):
    """A topology whose axes cannot be refined into one mesh."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one topology, as the language resolved them (every product already checked)."""

    tp: int
    attn_dp: int
    attn_cp: int
    attn_tp: int
    dense_tp: int
    moe_dp: int


@dataclass(frozen=True, slots=True)
class Atom:
    """One dimension of the mesh: a run of consecutive strides inside one attention axis."""

    name: str
    size: int
    axis: str


@dataclass(frozen=True, slots=True)
class Mesh:
    """Atoms, outermost first, and the named axes as masks over them."""

    atoms: tuple[Atom, ...]
    axes: tuple[tuple[str, int], ...]

    @property
    def every(self) -> int:
        """The mask of all atoms."""
        return (1 << len(self.atoms)) - 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of each atom, outermost first."""
        return tuple(atom.size for atom in self.atoms)

    def mask(self, axis: str) -> int:
        """The atoms of a named axis; 0 for an axis of size one. Unknown names are a KeyError."""
        for name, mask in self.axes:
            if name == axis:
                return mask
        raise KeyError(axis)

    def members(self, mask: int) -> Iterator[Atom]:
        """The atoms of ``mask``, outermost first."""
        return (atom for index, atom in enumerate(self.atoms) if mask >> index & 1)

    def names(self, mask: int) -> tuple[str, ...]:
        """The names of the atoms of ``mask``, outermost first."""
        return tuple(atom.name for atom in self.members(mask))

    def size(self, mask: int) -> int:
        """The number of ranks in a group over ``mask``."""
        total = 1
        for atom in self.members(mask):
            total *= atom.size
        return total

    def label(self, mask: int) -> str:
        """An identifier for a set of atoms: the shortest join of named axes, else of atoms.

        The first axis that names the whole set wins, so a sum over all ranks is always ``tp``.
        """
        for name, axis in self.axes:
            if axis == mask and axis:
                return name
        parts: list[str] = []
        rest = mask
        for name in ("attn_dp", "attn_cp", "attn_tp"):
            axis = self.mask(name)
            if axis and axis & rest == axis:
                parts.append(name)
            else:
                parts.extend(self.names(axis & rest))
            rest &= ~axis
        return "_".join(parts) if parts else "none"

    def words(self, mask: int) -> str:
        """Rows sharded over ``mask``, for people: ``attn_dp, attn_tp``, or ``all`` for none."""
        if not mask:
            return "all"
        return self.label(mask) if self.label(mask) == "tp" else ", ".join(self._axis_names(mask))

    def _axis_names(self, mask: int) -> list[str]:
        names: list[str] = []
        for name in ("attn_dp", "attn_cp", "attn_tp"):
            axis = self.mask(name)
            if axis and axis & mask == axis:
                names.append(name)
            else:
                names.extend(self.names(axis & mask))
        return names


@lru_cache(maxsize=1024)
def naming(mesh: Mesh) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """All that names of sets of atoms depend on: equal where all of them are."""
    atoms = tuple((atom.name, atom.axis) for atom in mesh.atoms)
    return atoms, tuple(map(mesh.label, range(mesh.every + 1)))


def build_mesh(sizes: Sizes) -> Mesh:
    """Refines the cuts of a topology into atoms.

    Raises TopologyError when two cuts do not nest, or when more than ``MAX_ATOMS`` are needed.
    """
    strides = _strides(sizes)
    atoms: list[Atom] = []
    for axis, low, high in (
        ("attn_dp", sizes.attn_tp * sizes.attn_cp, sizes.tp),
        ("attn_cp", sizes.attn_tp, sizes.attn_tp * sizes.attn_cp),
        ("attn_tp", 1, sizes.attn_tp),
    ):
        inside = [stride for stride in strides if low <= stride <= high]
        pieces = list(pairwise(inside))[::-1]
        for index, (inner, outer) in enumerate(pieces):
            name = axis if len(pieces) == 1 else f"{axis}_{index}"
            atoms.append(Atom(name, outer // inner, axis))
    if len(atoms) > MAX_ATOMS:
        raise TopologyError(
            f"needs {len(atoms)} mesh dimensions; at most {MAX_ATOMS} are supported"
        )
    return Mesh(tuple(atoms), _axes(sizes, tuple(atoms)))


def _strides(sizes: Sizes) -> list[int]:
    """The cut positions, innermost first; each must divide the next."""
    cuts = {
        1: "one rank",
        sizes.attn_tp: "attn_tp",
        sizes.attn_tp * sizes.attn_cp: "attn_cp x attn_tp",
        sizes.tp: "tp",
    }
    cuts.setdefault(sizes.dense_tp, "dense_tp")
    cuts.setdefault(sizes.tp // sizes.moe_dp, "moe_ep x moe_tp")
    ordered = sorted(cuts)
    for inner, outer in pairwise(ordered):
        if outer % inner:
            raise TopologyError(
                f"{cuts[inner]} (groups of {inner}) and {cuts[outer]} (groups of {outer}) "
                "do not nest: one group size must divide the other"
            )
    return ordered


def _axes(sizes: Sizes, atoms: tuple[Atom, ...]) -> tuple[tuple[str, int], ...]:
    def between(low: int, high: int) -> int:
        mask, stride = 0, sizes.tp
        for index, atom in enumerate(atoms):
            outer, stride = stride, stride // atom.size
            if low <= stride and outer <= high:
                mask |= 1 << index
        return mask

    moe = sizes.tp // sizes.moe_dp
    return (
        ("tp", between(1, sizes.tp)),
        ("attn_dp", between(sizes.attn_tp * sizes.attn_cp, sizes.tp)),
        ("attn_cp", between(sizes.attn_tp, sizes.attn_tp * sizes.attn_cp)),
        ("attn_tp", between(1, sizes.attn_tp)),
        ("dense", between(1, sizes.dense_tp)),
        ("moe_dp", between(moe, sizes.tp)),
        ("moe_output", between(1, moe)),
    )
