"""One forward's batch: facts that all ranks know, resolved once.

`BatchBuilder` is the only way to make a `Batch`; a stack holds one. Nothing in a batch depends on
what only this rank knows, so all ranks choose the same column and with it the same collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from boundaryc.runtime.columns import Span
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.facts import CONTEXT_PARALLEL, BatchFacts, Mode
from boundaryc.runtime.members import Cut
from boundaryc.runtime.mesh import Axes
from boundaryc.runtime.places import ANY
from boundaryc.runtime.stream import ResidualStream, StreamState

if TYPE_CHECKING:
    from boundaryc.runtime.builder import BatchBuilder
    from boundaryc.runtime.exits import Exit

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
        self.stream.goes_on(at)
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
