"""The names that one topology's generated code uses for its groups and rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, TypeVarTuple

from boundaryc.emit.fused import FusedSum
from boundaryc.topology import Mesh

Found = TypeVar("Found")
Values = TypeVarTuple("Values")


class Needs(NamedTuple):
    """What a draft needs of the layout, see `Scope`."""

    groups: frozenset[int]
    rows: frozenset[tuple[int, int]]
    orders: frozenset[int]
    tokens: frozenset[tuple[int, bool]]
    fused: frozenset[FusedSum]


@dataclass(frozen=True, slots=True)
class Known:
    """What has been drafted on meshes of the same names, by what it was drafted from.

    ``needs`` has each kind of needs once, as there are few.
    """

    drafts: dict[Hashable, tuple[object, Needs]] = field(default_factory=dict)
    needs: dict[Needs, Needs] = field(default_factory=dict)


@dataclass(slots=True)
class Scope:
    """What the functions of a topology need of its layout, collected as they are written.

    ``groups`` are the atoms of each group that some function communicates over; ``rows`` are the
    moves (moved atoms, rows of the finer side) whose row counts some function looks up, and
    ``orders`` the rows (sharded over a mask) that some function permutes; ``tokens`` are rows, and
    whether they are in token order, of which some function says what they are; ``fused`` are the
    boundaries that some function may leave to a fused kernel; ``sized``: some function says how
    many ranks a group has. ``known`` is what other scopes have drafted.
    """

    mesh: Mesh
    known: Known = field(default_factory=Known, repr=False)
    groups: set[int] = field(default_factory=set)
    rows: set[tuple[int, int]] = field(default_factory=set)
    orders: set[int] = field(default_factory=set)
    tokens: set[tuple[int, bool]] = field(default_factory=set)
    fused: set[FusedSum] = field(default_factory=set)
    sized: bool = False

    def add(self, other: Scope | Needs) -> None:
        """Adds what functions need that were written for another scope."""
        self.groups |= other.groups
        self.rows |= other.rows
        self.orders |= other.orders
        self.tokens |= other.tokens
        self.fused |= other.fused
        self.sized |= isinstance(other, Scope) and other.sized

    @property
    def needs(self) -> Needs:
        """All that has been collected."""
        return Needs(
            frozenset(self.groups),
            frozenset(self.rows),
            frozenset(self.orders),
            frozenset(self.tokens),
            frozenset(self.fused),
        )

    def once(self, make: Callable[[Scope, *Values], Found], *values: *Values) -> Found:
        """What ``make`` gives for ``values``, or has given for equal ones in this or another scope.

        It reads the names of the mesh and these values, nothing else, so what it gives serves every
        topology and every stack. What says how many ranks a group has is for one topology alone.
        """
        key = (make, values)
        known = self.known.drafts.get(key)
        if known is None:
            used = Scope(self.mesh, self.known)
            found = make(used, *values)
            self.add(used)
            if not used.sized:
                needs = used.needs
                self.known.drafts[key] = found, self.known.needs.setdefault(needs, needs)
            return found
        self.add(known[1])
        return known[0]  # type: ignore[return-value]  # what this function gave

    def size(self, axes: int) -> int:
        """The ranks of a group; a function that says how many is for this topology alone."""
        self.sized = True
        return self.mesh.size(axes)

    def group(self, axes: int) -> str:
        """The attribute of the group over ``axes``; the layout will have it."""
        self.groups.add(axes)
        return self.mesh.label(axes)

    def fused_sum(self, fused: FusedSum) -> str:
        """The attribute of a boundary that a fused kernel may take; the layout will have it."""
        if fused.owes:
            self.group(fused.owes)
        self.fused.add(fused)
        return fused.name(self.mesh)

    def row(self, moved: int, finer: int) -> str:
        """The attribute of the rows that the members of a move hold; the layout will have it."""
        self.rows.add((moved, finer))
        return self.row_name(moved, finer)

    def row_name(self, moved: int, finer: int) -> str:
        """The moved axes; and the finer rows too, where those are cut further than the move needs.

        A move needs its own atoms and all outside them to be cut on the finer side.
        """
        needed = (1 << moved.bit_length()) - 1
        label = self.mesh.label(moved)
        return label if finer == needed else f"{label}_of_{self.mesh.label(finer)}"

    def order(self, rows: int) -> str:
        """The attribute of the permutation of rows sharded over a mask; the layout will have it."""
        self.orders.add(rows)
        return self.order_name(rows)

    def order_name(self, rows: int) -> str:
        """Plain for the rows of an attention-DP group, the usual ones."""
        if rows == self.mesh.mask("attn_dp"):
            return "order"
        return f"order_of_{self.mesh.label(rows) if rows else 'all'}"

    def token(self, rows: int, *, by_token: bool) -> str:
        """The attribute that says which tokens rows sharded over a mask are."""
        self.tokens.add((rows, by_token))
        return self.token_name(rows, by_token=by_token)

    def token_name(self, rows: int, *, by_token: bool) -> str:
        """The tokens of an input, by the rows on which it is."""
        label = self.mesh.label(rows) if rows else "all"
        return f"tokens_of_{label}{'_by_token' * by_token}"
