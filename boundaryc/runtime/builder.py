"""Resolves the facts of a forward into a batch, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic

from boundaryc.runtime.batch import Batch, GroupsT, RowsT
from boundaryc.runtime.columns import Column, Span
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.facts import (
    CONTEXT_PARALLEL,
    INPUT_SCATTERED,
    BatchFacts,
    Embeddings,
    Mode,
    Padding,
    checked_rows,
)
from boundaryc.runtime.members import Cut, Cutter, even_atoms, leaf_counts, shard_leaves
from boundaryc.runtime.mesh import Mesh
from boundaryc.runtime.shards import ContextParallel, Sharding, shard_rows


class BatchBuilder(Generic[GroupsT, RowsT]):
    """Resolves batches of one stack on one rank.

    ``entry`` is what its file says of its input, ``segments`` whether its forwards have any,
    ``overlaps`` whether batches may be split, ``checks`` whether its sums are checked.
    """

    __slots__ = (
        *("_columns", "_cutter", "_entry", "_groups", "_mesh", "_overlaps", "_place", "_rows"),
        *("_segments", "checks"),
    )

    def __init__(
        self,
        mesh: Mesh,
        rank: int,
        columns: tuple[Column, ...],
        groups: GroupsT,
        rows: Callable[[Cut], RowsT],
        entry: Embeddings = "complete",
        *,
        segments: bool = False,
        overlaps: bool = False,
        checks: bool = False,
    ) -> None:
        self._segments, self.checks = segments, checks
        self._mesh = mesh
        self._columns = columns
        self._groups = groups
        self._rows = rows
        self._entry = entry
        self._overlaps = overlaps
        self._cutter = Cutter(mesh, rank)
        axes = ("attn_dp", "attn_cp", "attn_tp")
        self._place = tuple(mesh.along(rank, axis) for axis in axes)

    def build(
        self,
        *,
        rows_per_dp: Sequence[int],
        padding: Padding,
        mode: Mode,
        sequence_parallel: bool,
        cp: ContextParallel | None,
        input_scattered: bool,
        embeddings: Embeddings,
    ) -> Batch[GroupsT, RowsT]:
        """The batch of one forward; see `Stack.batch`."""
        rows = checked_rows(rows_per_dp, self._mesh.extent("attn_dp"))
        facts = BatchFacts(rows, padding, mode, sequence_parallel, cp, input_scattered, embeddings)
        self._check_entry(facts)
        variant = facts.variant(self._mesh.extent("attn_cp"))
        group, part, _ = self._place
        padded, leaves, sharding = self._cut(facts, variant)
        whole = Span(padded[group], rows[group])
        cut = Cut(self._cutter, leaves, sharding, rows)
        return Batch(
            facts=facts,
            variant=variant,
            plan=self._select(variant, facts, leaves, sum(padded)),
            groups=self._groups,
            rows=self._rows(cut),
            own=self._attention_rows(variant, whole, leaves, sharding),
            group=whole,
            global_rows=sum(padded),
            cut=(cut, group, part),
            builder=self,
            segments=self._segments,
        )

    def split(
        self, batch: Batch[GroupsT, RowsT], first: Sequence[int] | None
    ) -> tuple[Batch[GroupsT, RowsT], Batch[GroupsT, RowsT]]:
        """The two batches that ``batch`` is split into; see `Batch.split`."""
        if not self._overlaps:
            raise BoundaryError(
                "this stack is compiled without two-batch overlap; its file says "
                "`overlap: {two_batch: true}` where a batch may be split"
            )
        if batch.variant == CONTEXT_PARALLEL:
            raise BoundaryError("a context-parallel batch is not split: its shards mix the tokens")
        facts, whole = batch.facts.stated(), batch.facts.rows_per_dp
        ahead = checked_rows(
            [-(-rows // 2) for rows in whole] if first is None else first, len(whole)
        )
        if any(own > rows for own, rows in zip(ahead, whole, strict=True)):
            raise ValueError(f"first is {ahead}; the groups of this batch have {whole} rows")
        behind = tuple(rows - own for own, rows in zip(ahead, whole, strict=True))
        # An ordinary batch with `cp` is one that decodes, or whose requests are too short for it.
        one, other = (
            self.build(**{**facts, "cp": None, "rows_per_dp": rows})  # type: ignore[arg-type]
            for rows in (ahead, behind)
        )
        return one, other

    def _check_entry(self, facts: BatchFacts) -> None:
        """ValueError where a batch is entered in another way than its stack."""
        if self._entry == "partial":
            if facts.embeddings != "partial":
                raise ValueError(
                    f"embeddings is {facts.embeddings!r}; the input of this stack is declared "
                    "`entry: partial`, so it always owes its sum"
                )
        elif facts.embeddings == "partial" and not facts.input_scattered:
            raise ValueError(
                "embeddings is 'partial'; only an input_scattered batch is entered with a sum owed"
            )

    def _cut(
        self, facts: BatchFacts, variant: str
    ) -> tuple[tuple[int, ...], tuple[int, ...], Sharding | None]:
        """Padded rows of each DP group, the leaf of each rank, and how shards interleave tokens."""
        mesh, multiple, rows = self._mesh, self._row_multiple(variant), facts.rows_per_dp
        if variant != CONTEXT_PARALLEL or facts.cp is None:
            padded = _pad(rows, facts.padding, multiple)
            return padded, leaf_counts(mesh, padded), None
        slots, parts = mesh.extent("attn_tp"), mesh.extent("attn_cp")
        # The multiple of a whole group asks each shard for a multiple of what cuts it further.
        multiple = 1 if multiple % slots else slots
        sharding = shard_rows(facts.cp, len(rows), parts, multiple=multiple, padding=facts.padding)
        padded = tuple(sum(shards) for shards in sharding.padded)
        return padded, shard_leaves(mesh, sharding.padded), sharding

    def _row_multiple(self, variant: str) -> int:
        for column in self._columns:
            if column.variant == variant:
                return column.row_multiple
        raise _no_path(variant)

    def _select(self, variant: str, facts: BatchFacts, leaves: tuple[int, ...], rows: int) -> int:
        even = even_atoms(self._mesh, leaves)
        for index, column in enumerate(self._columns):
            if column.fits(variant, facts.embeddings, even, rows, facts.mode):
                return index
        raise _no_path(variant)

    def _attention_rows(
        self, variant: str, whole: Span, leaves: tuple[int, ...], sharding: Sharding | None
    ) -> Span:
        """The rows of this rank's attention input."""
        group, part, _ = self._place
        if sharding is not None:
            real = sharding.cp.sizes(group, len(sharding.padded[group]))[part]
            return Span(sharding.padded[group][part], real)
        if variant != INPUT_SCATTERED:
            return whole
        mesh, rank = self._mesh, self._cutter.rank
        inner = tuple(name for name, _, axis in mesh.atoms if axis != "attn_dp")
        first = sum(leaves[member] for member in mesh.members(rank, inner) if member < rank)
        real = min(max(whole.real - first, 0), leaves[rank])
        return Span(leaves[rank], real, first)


def _pad(real: tuple[int, ...], padding: Padding, multiple: int) -> tuple[int, ...]:
    if padding == "unpadded":
        return real
    rounded = tuple(-(-rows // multiple) * multiple for rows in real)
    return (max(rounded),) * len(real) if padding == "max_len" else rounded


def _no_path(variant: str) -> BoundaryError:
    return BoundaryError(f"no stage boundary path for the active {variant.upper()} batch")
