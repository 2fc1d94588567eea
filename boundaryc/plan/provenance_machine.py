"""Executes a boundary plan on provenance, one operation at a time on all ranks.

Nothing here asks whether an operation is well typed. A rank's rows are followed by position; an
operation breaks only where it cannot run or where it makes a row that no later operation can mend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from boundaryc.plan import ops
from boundaryc.plan.provenance_layout import Layout, keys
from boundaryc.plan.provenance_moves import (
    BrokenPlanError,
    Held,
    Marks,
    Reason,
    Rows,
    all_gather,
    all_reduce,
    cut,
    placed_sum,
    reduce_scatter,
    require,
)

Kind = Literal["initial", "contribution", "stream", "input"]


@dataclass(frozen=True, slots=True)
class DeclaredStart:
    """What a boundary is given. Masks of atoms, bit 0 outermost.

    ``phase``: ``initial`` (no residual yet), ``contribution`` (a producer's output), ``stream``
    (the residual is written already and is the value) or ``input`` (it has been read). ``residual``
    are the rows of the residual and is None exactly at ``initial`` and for an output ``beside``
    its residual; in ``stream`` it equals ``rows``, and there and of an input nothing is owed.
    Raises ``ValueError`` where these do not hold.
    """

    phase: Literal["initial", "contribution", "stream", "input"]
    rows: int
    owes: int
    residual: int | None
    transform: bool = False  # the contribution's declared transform is still to run
    transform_linear: bool = False  # it may run on a partial
    joins_sum: bool = False  # the update is a plain add that may take part in the sum
    quantized_sum: bool = False  # the update is a plain add and the sum before it may be lossy
    shards: int = 0  # atoms whose parts interleave tokens
    by_token: bool = False  # the value is in token order
    beside: bool = False  # an output whose residual goes another way

    def __post_init__(self) -> None:
        if self.beside and self.phase != "contribution":
            raise ValueError("only a contribution goes another way than its residual")
        if (self.residual is None) != (self.phase == "initial" or self.beside):
            raise ValueError("a start has a residual unless its phase is initial")
        if self.phase == "stream" and (self.residual != self.rows or self.owes):
            raise ValueError("a stream is its residual and owes nothing")
        if self.phase == "input" and self.owes:
            raise ValueError("an input owes nothing")
        if self.transform and self.phase != "contribution":
            raise ValueError("only a contribution has a transform to run")
        if self.by_token and (
            self.phase not in ("contribution", "input") or self.shards & self.rows
        ):
            raise ValueError("only a contribution that is whole over the shards has another order")


@dataclass(frozen=True, slots=True)
class DeclaredGoal:
    """What a boundary must deliver, and what may cross its hand-off."""

    rows: int  # of the consumer's input, or of the output that is to be merged
    residual: int | None  # rows of the residual at the end; None for an output beside its residual
    hands_off: bool  # a hand-off belongs to this plan
    may_defer: bool = False  # an incomplete sum may cross it
    complete_on: int | None = None  # what crosses is complete, on these rows
    update_at_producer: bool = False  # the update runs before it
    read_local: int = 0  # atoms over which the read sees only the rank's own rows
    read_whole: int = 0  # atoms over which the read sees the rows of all ranks
    read_on: int | None = None  # the only rows on which the read has what it needs
    update_on: int | None = None  # and those on which the update has
    by_token: bool = False  # the input is in token order
    captures: tuple[int, ...] = ()  # rows on which the residual that is read is kept, in order
    quantized: bool = False  # the input is values and scales
    merges: bool = False  # the plan ends with its hand-off: its output is added to another one
    owes: int = 0  # atoms over which the output that is to be merged is still a sum


class Machine:
    """The state of all ranks while a plan runs.

    The value and the residual are one thing while ``kind`` is ``stream``: a move of either moves
    both. ``residual`` is None where there is none, or where it already went into a sum.
    """

    def __init__(self, layout: Layout, start: DeclaredStart, goal: DeclaredGoal) -> None:
        self.layout, self.start, self.goal = layout, start, goal
        self.kind: Kind = start.phase
        self.rows, self.owes = start.rows, start.owes
        self.residual_rows = 0 if start.residual is None else start.residual
        self.joined = False
        self.transforms = self.updates = self.reads = self.hand_offs = self.captured = 0
        self.quantized = 0
        partial = keys(layout.sizes, start.owes)
        written = start.phase in ("stream", "input")
        self.marks = Marks(0 if written else max(partial) + 1, layout.world)
        mark = [Marks.RESIDUAL if written else self.marks.partial(index) for index in partial]
        tokens = layout.tokens(start.rows)
        if start.by_token:
            tokens = layout.turned(tokens, start.shards, 1)
        self.value = _fill(tokens, mark)
        self.residual: Held | None = None
        if start.phase == "stream":
            self.residual = self.value
        elif start.residual is not None:
            own = [Marks.RESIDUAL] * layout.world
            self.residual = _fill(layout.tokens(start.residual), own)

    def step(self, op: ops.Operation) -> None:
        """Run one operation on all ranks; raise ``BrokenPlanError`` where it goes wrong."""
        if self.goal.merges and self.hand_offs:
            require(self._all(), Reason.MERGE)
        match op:
            case ops.AllReduce() | ops.ReduceScatter() | ops.GatherSum():
                self._sum(op)
            case ops.QuantizedAllReduce(axes):
                self._quantized_sum(axes)
            case ops.AllGather(axes, variable):
                self._known(axes)
                held = all_gather(self.layout, self.value, axes, self.rows, variable)
                self._moved(held, self.rows & ~axes)
            case ops.Slice(axes):
                self._known(axes)
                held = cut(self.layout, self.value, axes, self.rows | axes)
                self._moved(held, self.rows | axes)
            case ops.ResidualGather(axes, variable):
                self._known(axes)
                held = all_gather(self.layout, self._own(), axes, self.residual_rows, variable)
                self._residual_moved(held, self.residual_rows & ~axes)
            case ops.ResidualSlice(axes):
                self._known(axes)
                finer = self.residual_rows | axes
                self._residual_moved(cut(self.layout, self._own(), axes, finer), finer)
            case ops.Capture():
                self._capture(op)
            case _:
                self._local(op)
        self._settle()

    def _capture(self, op: ops.Capture) -> None:
        """Keep a moved copy of the residual, which must be the written one on declared rows."""
        due = self.goal.captures[self.captured : self.captured + 1]
        if self.kind != "input" or not due or (op.gather and op.cut):
            require(self._all(), Reason.CAPTURE)
        kept, rows = self._own(), self.residual_rows
        if op.gather:
            self._known(op.gather)
            kept = all_gather(self.layout, kept, op.gather, rows, op.variable)
        if op.cut:
            self._known(op.cut)
            kept = cut(self.layout, kept, op.cut, rows | op.cut)
        want = self.layout.tokens(due[0])
        wrong = [
            rank
            for rank in self._all()
            if kept[rank].tokens != want[rank] or set(kept[rank].marks) - {self.marks.written}
        ]
        require(wrong, Reason.CAPTURE)
        self.captured += 1

    def _local(self, op: ops.Operation) -> None:
        match op:
            case ops.Reorder(to_tokens):
                self._reorder(to_tokens)
            case ops.Transform():
                self._transform()
            case ops.Update():
                self._update()
            case ops.Join():
                self._join()
            case ops.Enter():
                self._enter()
            case ops.Read():
                self._read()
            case ops.Quantize():
                self._quantize()
            case ops.HandOff():
                self._hand_off()
            case _:
                raise TypeError(f"no provenance for {op!r}")

    def _sum(self, op: ops.AllReduce | ops.ReduceScatter | ops.GatherSum) -> None:
        if self.quantized:  # numbers with different scales are not added
            require(self._all(), Reason.QUANTIZED)
        layout, marks, value, rows = self.layout, self.marks, self.value, self.rows
        if isinstance(op, ops.GatherSum):
            self._known(op.gather | op.sum)
            held = placed_sum(layout, marks, value, op.gather, op.sum, rows)
            summed, rows = op.sum, rows & ~op.gather
        elif isinstance(op, ops.ReduceScatter):
            self._known(op.axes)
            summed, rows = op.axes, rows | op.axes
            held = reduce_scatter(layout, marks, value, summed, rows, op.variable)
        else:
            self._known(op.axes)
            summed = op.axes
            held = all_reduce(layout, marks, value, summed)
        self._moved(held, rows)
        self.owes &= ~summed

    def _quantized_sum(self, axes: int) -> None:
        """Sum what only loses precision once, in a plain output that is complete afterwards."""
        early = self.kind == "contribution" and not self.joined and not self.hand_offs
        plain = self.start.quantized_sum and self.transforms == self.start.transform
        if not (early and plain) or axes != self.owes:
            require(self._all(), Reason.QUANTIZED_SUM)
        self._sum(ops.AllReduce(axes))

    def _known(self, axes: int) -> None:
        if not axes or axes & ~self.layout.every:
            require(self._all(), Reason.AXES)

    def _all(self) -> range:
        return range(self.layout.world)

    def _own(self) -> Held:
        if self.residual is None:
            raise BrokenPlanError({Reason.RESIDUAL: tuple(self._all())})
        return self.residual

    def _moved(self, held: Held, rows: int) -> None:
        self.value, self.rows = held, rows
        if self.kind == "stream":
            self.residual, self.residual_rows = held, rows

    def _residual_moved(self, held: Held, rows: int) -> None:
        self.residual, self.residual_rows = held, rows
        if self.kind == "stream":
            self.value, self.rows = held, rows

    def _become_stream(self, held: Held) -> None:
        self.kind = "stream"
        self._moved(held, self.rows)

    def incomplete(self, wanted: int) -> list[int]:
        """Return the ranks that hold a row whose mark is not ``wanted``."""
        return [rank for rank in self._all() if set(self.value[rank].marks) - {wanted}]

    def _in(self, kind: Kind) -> None:
        if self.kind != kind:
            require(self._all(), Reason.PHASE)

    def _reorder(self, to_tokens: bool) -> None:
        """Permute rows; each rank must hold whole blocks, in the order the permutation expects."""
        shards = self.start.shards
        if not shards or shards & self.rows:
            require(self._all(), Reason.ORDER)
        turn = 1 if to_tokens else -1
        moved = []
        for rank in self._all():
            held = self.value[rank]
            marks = dict(zip(held.tokens, held.marks, strict=True))
            tokens = self.layout.turned((held.tokens,), shards, turn)[0]
            moved.append(Rows(tokens, tuple(marks[token] for token in tokens)))
        self._moved(tuple(moved), self.rows)

    def _transform(self) -> None:
        self._in("contribution")
        if not self.start.transform or self.transforms or self.joined:
            require(self._all(), Reason.TRANSFORM)
        if not self.start.transform_linear:
            require(self.incomplete(self.marks.complete), Reason.TRANSFORM)
        self.transforms = 1

    def _transformed(self) -> None:
        """Raise ``BrokenPlanError`` while the declared transform has not run."""
        if self.transforms != self.start.transform:
            require(self._all(), Reason.TRANSFORM)

    def _update(self) -> None:
        self._in("contribution")
        residual = self._own()
        self._transformed()
        require(self.incomplete(self.marks.complete), Reason.SUM_MISSING)
        require(
            [rank for rank in self._all() if self.value[rank].tokens != residual[rank].tokens],
            Reason.RESIDUAL_ROWS,
        )
        self._lies_on(self.goal.update_on, Reason.RESIDUAL_ROWS)
        added = []
        for rank in self._all():
            both = zip(self.value[rank].marks, residual[rank].marks, strict=True)
            added.append(Rows(self.value[rank].tokens, tuple(map(sum, both))))
        self.updates += 1
        self._become_stream(tuple(added))

    def _join(self) -> None:
        self._in("contribution")
        residual = self._own()
        self._transformed()
        if not self.start.joins_sum:
            require(self._all(), Reason.JOIN)
        chooses = keys(self.layout.sizes, self.owes & ~self.residual_rows)
        after = list(self.value)
        for rank in self._all():
            if chooses[rank] == 0:
                own = dict(zip(residual[rank].tokens, residual[rank].marks, strict=True))
                tokens, marks = self.value[rank].tokens, self.value[rank].marks
                if not own.keys() <= set(tokens):
                    require([rank], Reason.RESIDUAL_ROWS)
                pairs = zip(tokens, marks, strict=True)
                after[rank] = Rows(tokens, tuple(m + own.get(token, 0) for token, m in pairs))
        self.value = tuple(after)
        self.residual, self.joined = None, True

    def _settle(self) -> None:
        """Turn a joined sum into the written stream once every rank has everything in it.

        On a batch without rows only the sums that ran can tell.
        """
        if self.kind != "contribution" or not self.joined or self.owes:
            return
        if not self.incomplete(self.marks.written):
            self.updates += 1
            self._become_stream(self.value)

    def _enter(self) -> None:
        self._in("initial")
        require(self.incomplete(self.marks.complete), Reason.SUM_MISSING)
        marked = (tuple(m + Marks.RESIDUAL for m in rows.marks) for rows in self.value)
        pairs = zip(self.value, marked, strict=True)
        self._become_stream(tuple(Rows(rows.tokens, marks) for rows, marks in pairs))

    def _read(self) -> None:
        if self.joined and self.kind == "contribution":
            require(self._all(), Reason.SUM_MISSING)
        self._in("stream")
        self._read_sees(self.goal.read_local, self.goal.read_whole)
        self._lies_on(self.goal.read_on, Reason.READ_ROWS)
        self.reads += 1
        self.kind = "input"

    def _quantize(self) -> None:
        self._in("input")
        if self.quantized or not self.goal.quantized:
            require(self._all(), Reason.QUANTIZED)
        self.quantized = 1

    def _lies_on(self, rows: int | None, reason: Reason) -> None:
        """Require the value on these rows, in order, if any are asked for."""
        if rows is not None:
            want = self.layout.tokens(rows)
            require([rank for rank in self._all() if self.value[rank].tokens != want[rank]], reason)

    def _read_sees(self, local: int, whole: int) -> None:
        owner = self.layout.owners()
        mine, group = keys(self.layout.sizes, local), keys(self.layout.sizes, ~whole)
        union: dict[int, set[int]] = {}
        for rank in self._all():
            union.setdefault(group[rank], set()).update(self.value[rank].tokens)
        bad = []
        for rank in self._all():
            tokens = set(self.value[rank].tokens)
            foreign = local and any(mine[owner[token]] != mine[rank] for token in tokens)
            if foreign or (whole and tokens != union[group[rank]]):
                bad.append(rank)
        require(bad, Reason.READ_ROWS)

    def _hand_off(self) -> None:
        if self.hand_offs or not self.goal.hands_off:
            require(self._all(), Reason.HAND_OFF)
        if self.kind == "input" or (self.goal.update_at_producer and self.kind != "stream"):
            require(self._all(), Reason.HAND_OFF_STATE)
        done = self.marks.written if self.kind == "stream" else self.marks.complete
        if self.goal.complete_on is not None:
            want = self.layout.tokens(self.goal.complete_on)
            moved = [rank for rank in self._all() if self.value[rank].tokens != want[rank]]
            require(moved, Reason.HAND_OFF_STATE)
        if self.goal.complete_on is not None or not self.goal.may_defer:
            require(self.incomplete(done), Reason.HAND_OFF_STATE)
        self.hand_offs = 1


def _fill(tokens: tuple[tuple[int, ...], ...], marks: list[int]) -> Held:
    """Build one ``Rows`` a rank, every row with that rank's mark; equal ones are one object."""
    shared: dict[tuple[int, int], Rows] = {}
    held = []
    for own, mark in zip(tokens, marks, strict=True):
        key = (id(own), mark)
        if key not in shared:
            shared[key] = Rows(own, (mark,) * len(own))
        held.append(shared[key])
    return tuple(held)
