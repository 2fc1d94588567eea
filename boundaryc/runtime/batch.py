"""One forward's batch: facts that all ranks know, resolved once.

`BatchBuilder` is the only way to make a `Batch`; a stack holds one. Nothing in a batch depends on
what only this rank knows, so all ranks choose the same column and with it the same collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import torch
from torch import Tensor

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
from boundaryc.runtime.mesh import Axes, Mesh
from boundaryc.runtime.shards import ContextParallel, Sharding, shard_rows
from boundaryc.runtime.stream import ANY, ResidualStream, StreamState

if TYPE_CHECKING:
    from boundaryc.runtime.exits import Exit

__all__ = ["Batch", "BatchBuilder", "Column", "Embeddings", "Mode", "Padding"]

GroupsT = TypeVar("GroupsT")
RowsT = TypeVar("RowsT")


class Batch(Generic[GroupsT, RowsT]):
    """What boundaries read of one forward, and the two things they write: stream and exit.

    ``facts`` are those it was built from, ``plan`` is the column of the tables. ``local_rows`` are
    the padded rows of this rank's attention input, of which the first ``real_rows`` are tokens:
    its shard in a context-parallel batch, its slice of the group in an input-scattered one, else
    the whole DP group. ``group_rows`` and ``group_real_rows`` count the same of the whole group;
    its tokens are a prefix in token order. The stack is entered and left on the group's rows, on
    ``local_rows`` where the batch is context parallel. ``global_rows`` are the padded rows of all
    DP groups. ``exit`` is the innermost open exit. ``lora_rows``, in a stack with `lora: true`, are
    the rows of the input that a stage computes on now: int64 [rows], for each the token of the
    batch that it is, of all DP groups one after the other, or -1 where it is a pad. ``given`` has
    what operations take of every batch, see `give`.
    """

    __slots__ = (
        "_builder",
        "_cut",
        "_goes_on",
        "_own",
        "_segments",
        "captures",
        "exit",
        "facts",
        "given",
        "global_rows",
        "group_real_rows",
        "group_rows",
        "groups",
        "local_rows",
        "lora_rows",
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
        facts: BatchFacts,
        variant: str,
        plan: int,
        groups: GroupsT,
        rows: RowsT,
        own: Span,
        group: Span,
        global_rows: int,
        cut: tuple[Cut, int, int],
        builder: BatchBuilder[GroupsT, RowsT],
        segments: bool = False,
    ) -> None:
        self.facts = facts
        self.variant = variant
        self.mode: Mode = facts.mode
        self.plan = plan
        self.groups = groups
        self.rows = rows
        self.local_rows, self.real_rows = own.padded, own.real
        self.group_rows, self.group_real_rows = group.padded, group.real
        self.global_rows = global_rows
        self.stream = ResidualStream(StreamState.UNSTARTED)
        self.captures: dict[str, list[Tensor]] = {}
        self.exit: Exit | None = None
        self.lora_rows: Tensor | None = None
        self.given: dict[str, Any] = {}
        self._own, self._cut = own, cut
        self._segments, self._goes_on = segments, False
        self._builder = builder

    @property
    def stack_rows(self) -> int:
        """Padded rows on which this rank enters and leaves the stack."""
        return self.local_rows if self.variant == CONTEXT_PARALLEL else self.group_rows

    def give(self, **inputs: Any) -> None:
        """What operations with the fact ``per_call`` take of this batch, by their names.

        Tensors with rows have those on which this rank enters the stack, pads included. ValueError
        for a tensor of other rows. The parts of a split batch are given theirs.
        """
        for name, value in inputs.items():
            if isinstance(value, Tensor) and value.dim() and value.shape[0] != self.stack_rows:
                raise ValueError(
                    f"`{name}` has {value.shape[0]} rows, and this batch has {self.stack_rows} on "
                    "this rank, pads included"
                )
        self.given = {**self.given, **inputs}

    def input_of(self, operation: str) -> Any:
        """What `give` was given for an operation. BoundaryError where that is nothing."""
        if operation not in self.given:
            raise BoundaryError(
                f"the operation `{operation}` takes inputs of every batch and this one has none: "
                f"call batch.give({operation}=...) before the stack runs"
            )
        return self.given[operation]

    @property
    def checks(self) -> bool:
        """Whether sums are checked before they run, see `replicas`."""
        return self._builder.checks

    def captured(self, name: str) -> list[Tensor]:
        """What the capture called ``name`` of the stack file took in this forward, in layer order.

        It stays until the next `Stack.start`. KeyError where the stack has no such capture.
        """
        if name not in self.captures:
            known = ", ".join(sorted(self.captures)) or "none"
            raise KeyError(f"no capture {name!r} in this forward; there are: {known}")
        return self.captures[name]

    def start(self, captures: tuple[str, ...], at: int = ANY) -> None:
        """Gives this batch a fresh stream that will fill ``captures``; the old one is dropped.

        ``at`` is the index of the stage that comes first. BoundaryError where this batch is not the
        first segment of its forward.
        """
        if self._goes_on:
            raise BoundaryError(
                "this segment goes on with a stream; only the segment with the first layer starts "
                "one"
            )
        self.captures = {name: [] for name in captures}
        self.stream = ResidualStream(captured=self.captures, rows=self.stack_rows)
        self.stream.at = at
        self.exit = None
        self.lora_rows = None

    def segment(self) -> Self:
        """The batch with which the forward goes on, maybe after other batches ran.

        It has this one's facts, stream and captures; this one has none of them afterwards, so that
        no stage runs twice. BoundaryError inside a stage, where no stream was started, and in a
        stack whose file does not declare ``segments``.
        """
        if not self._segments:
            raise BoundaryError(
                "this stack's forwards run as a whole: declare `segments: true` in its file"
            )
        if self.exit is not None:
            raise BoundaryError("a segment ends between two stages; close the exit first")
        self.stream.rest()
        following = copy(self)
        following.stream, following.captures = self.stream, self.captures
        following._goes_on = True
        self.captures = {}
        self.release()
        return following

    def release(self) -> None:
        """Drops the stream and what it holds: no boundary runs before the next `start`."""
        self.stream = ResidualStream(StreamState.UNSTARTED)

    def __copy__(self) -> Self:
        """The same batch without a stream: two forwards never share one."""
        copied = object.__new__(type(self))
        for name in Batch.__slots__:
            setattr(copied, name, getattr(self, name))
        copied.captures, copied.exit, copied.lora_rows = {}, None, None
        copied.release()
        return copied

    def split(self, first: Sequence[int] | None = None) -> tuple[Self, Self]:
        """Two batches that may overlap, each with all facts and a stream of its own.

        One has the ``first`` rows of each DP group, half of them by default, the other has the
        rest. BoundaryError in a context-parallel batch, whose shards interleave tokens, and in a
        stack that is compiled without two-batch overlap; ValueError for impossible numbers of rows.
        """
        return self._builder.split(self, first)  # type: ignore[return-value]

    def rows_on(self, axes: Axes) -> int:
        """This rank's rows, pads included, of a value whose rows the atoms ``axes`` cut."""
        members = self._cut[0].members(axes, finer=axes)
        return members.stop - members.start

    def has_tokens(self) -> bool:
        """Whether whatever rows a rank holds in this batch, at least one of them is a token."""
        return self._cut[0].has_tokens(self.facts.rows_per_dp)

    def local_tokens(self) -> Tensor:
        """The group's tokens that are this rank's real rows: int64 [real_rows], on the CPU."""
        cut, group, part = self._cut
        if cut.sharding is not None:
            return cut.sharding.tokens(group)[part]
        return torch.arange(self._own.first, self._own.first + self._own.real)


class LeavingBatch(Batch[GroupsT, RowsT]):
    """``batch`` as the end of its stack sees it, with the stream that ``batch`` no longer has."""

    __slots__ = ()

    def __init__(self, batch: Batch[GroupsT, RowsT]) -> None:
        # One by one: this is traced by torch.compile.
        self.facts, self.variant = batch.facts, batch.variant
        self.mode, self.plan = batch.mode, batch.plan
        self.groups, self.rows = batch.groups, batch.rows
        self.local_rows, self.real_rows = batch.local_rows, batch.real_rows
        self.group_rows, self.group_real_rows = batch.group_rows, batch.group_real_rows
        self.global_rows = batch.global_rows
        self.stream, self.captures, self.exit = batch.stream, batch.captures, batch.exit
        self._own, self._cut, self._builder = batch._own, batch._cut, batch._builder
        self._segments, self._goes_on = batch._segments, batch._goes_on
        self.lora_rows, self.given = None, batch.given
        batch.release()


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
