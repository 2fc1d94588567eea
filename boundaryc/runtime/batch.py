"""One forward's batch: facts that all ranks know, resolved once.

`BatchBuilder` is the only way to make a `Batch`; a stack holds one. Nothing in a batch depends on
what only this rank knows, so all ranks choose the same column and with it the same collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, get_args

from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.members import Cut, Cutter, even_atoms, leaf_counts
from boundaryc.runtime.mesh import Axes, Mesh
from boundaryc.runtime.stream import ResidualStream, StreamState

if TYPE_CHECKING:
    from boundaryc.runtime.exits import FfnExit

Padding = Literal["sum_len", "max_len", "unpadded"]
Mode = Literal["prefill", "decode"]

GroupsT = TypeVar("GroupsT")
RowsT = TypeVar("RowsT")


@dataclass(frozen=True, slots=True)
class Column:
    """Which batches one column of the tables serves.

    Batches of ``variant`` whose cuts over every atom of ``even`` have equal sizes and which have at
    most ``max_rows`` padded rows in all, if that is set; the first column that fits is taken, so
    narrower ones come first. ``row_multiple`` belongs to the variant: padded rows of a DP group are
    a multiple of it.
    """

    variant: str
    even: Axes = ()
    row_multiple: int = 1
    max_rows: int | None = None


class Batch(Generic[GroupsT, RowsT]):
    """What boundaries read of one forward, and the two things they write: stream and exit.

    ``plan`` is the column of the tables. ``local_rows`` are the padded rows of this rank's
    attention input, of which the first ``real_rows`` are tokens; ``global_rows`` are the padded
    rows of all DP groups. ``exit`` is the innermost open FFN exit.
    """

    __slots__ = (
        "exit",
        "global_rows",
        "groups",
        "local_rows",
        "mode",
        "plan",
        "real_rows",
        "rows",
        "stream",
        "variant",
    )

    def __init__(
        self,
        *,
        variant: str,
        mode: Mode,
        plan: int,
        groups: GroupsT,
        rows: RowsT,
        local_rows: int,
        real_rows: int,
        global_rows: int,
    ) -> None:
        self.variant = variant
        self.mode = mode
        self.plan = plan
        self.groups = groups
        self.rows = rows
        self.local_rows = local_rows
        self.real_rows = real_rows
        self.global_rows = global_rows
        self.stream = ResidualStream(StreamState.UNSTARTED)
        self.exit: FfnExit | None = None


class BatchBuilder(Generic[GroupsT, RowsT]):
    """Resolves batches of one stack on one rank."""

    __slots__ = ("_columns", "_cutter", "_groups", "_mesh", "_rank", "_rows")

    def __init__(
        self,
        mesh: Mesh,
        rank: int,
        columns: tuple[Column, ...],
        groups: GroupsT,
        rows: Callable[[Cut], RowsT],
    ) -> None:
        self._mesh = mesh
        self._rank = rank
        self._columns = columns
        self._groups = groups
        self._rows = rows
        self._cutter = Cutter(mesh, rank)

    def build(
        self,
        *,
        rows_per_dp: Sequence[int],
        padding: Padding,
        mode: Mode,
        sequence_parallel: bool,
    ) -> Batch[GroupsT, RowsT]:
        """The batch of one forward; see `Stack.batch`."""
        real = _check_rows(rows_per_dp, self._mesh.extent("attn_dp"))
        _check_choice("padding", padding, get_args(Padding))
        _check_choice("mode", mode, get_args(Mode))
        variant = "sequence_parallel" if sequence_parallel else "ordinary"
        padded = _pad(real, padding, self._row_multiple(variant))
        leaves = leaf_counts(self._mesh, padded)
        local_rows, before = self._attention_rows(leaves)
        own = real[self._mesh.along(self._rank, "attn_dp")]
        return Batch(
            variant=variant,
            mode=mode,
            plan=self._select(variant, even_atoms(self._mesh, leaves), sum(padded)),
            groups=self._groups,
            rows=self._rows(Cut(self._cutter, leaves)),
            local_rows=local_rows,
            real_rows=min(max(own - before, 0), local_rows),
            global_rows=sum(padded),
        )

    def _row_multiple(self, variant: str) -> int:
        for column in self._columns:
            if column.variant == variant:
                return column.row_multiple
        raise _no_path(variant)

    def _select(self, variant: str, even: frozenset[str], rows: int) -> int:
        for index, column in enumerate(self._columns):
            few = column.max_rows is None or rows <= column.max_rows
            if few and column.variant == variant and even.issuperset(column.even):
                return index
        raise _no_path(variant)

    def _attention_rows(self, leaves: tuple[int, ...]) -> tuple[int, int]:
        """Rows of this rank's attention input, and how many of its DP group lie before them."""
        mesh, rank = self._mesh, self._rank
        inner = tuple(name for name, _, axis in mesh.atoms if axis == "attn_tp")
        group = tuple(name for name, _, axis in mesh.atoms if axis != "attn_dp")
        own = mesh.members(rank, inner)
        earlier = [member for member in mesh.members(rank, group) if member < own[0]]
        return sum(leaves[member] for member in own), sum(leaves[member] for member in earlier)


def _check_rows(rows_per_dp: Sequence[int], groups: int) -> tuple[int, ...]:
    rows = tuple(rows_per_dp)
    if len(rows) != groups:
        raise ValueError(
            f"rows_per_dp has {len(rows)} entries; this topology has {groups} attention DP group(s)"
        )
    if any(isinstance(count, bool) or not isinstance(count, int) for count in rows):
        raise ValueError(f"rows_per_dp holds row counts, not {rows!r}")
    if any(count < 0 for count in rows):
        raise ValueError(f"rows_per_dp holds a negative row count: {rows!r}")
    return rows


def _check_choice(fact: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{fact} is {value!r}; it must be one of {', '.join(choices)}")


def _pad(real: tuple[int, ...], padding: Padding, multiple: int) -> tuple[int, ...]:
    if padding == "unpadded":
        return real
    rounded = tuple(-(-rows // multiple) * multiple for rows in real)
    return (max(rounded),) * len(real) if padding == "max_len" else rounded


def _no_path(variant: str) -> BoundaryError:
    return BoundaryError(f"no stage boundary path for the active {variant.upper()} batch")
