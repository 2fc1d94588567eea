"""The operations of a boundary: what each needs of a state, and the state it leaves.

An operation is a frozen record with a typing rule, ``apply(state, facts) -> state | None``; what it
moves is priced in ``cost``. Rules follow the typing of distributed values: a sum is owed over atoms
on which the rows agree, and a move is legal only if it delivers rows in canonical order.
"""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.plan.state import NO_RESIDUAL, EdgeFacts, Phase, State, keeps_order


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Sums the value over ``axes``; every rank keeps all its rows."""

    axes: int

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state after the sum, or None where it is not legal."""
        if not self.axes or self.axes & ~state.owes:
            return None
        return _settle(state._replace(owes=state.owes & ~self.axes))


@dataclass(frozen=True, slots=True)
class QuantizedAllReduce:
    """Sums the value over ``axes``, which travels quantised; every rank keeps all its rows.

    It completes the sum, so that nothing is quantised twice, and does so before the hand-off: a
    contribution that is to be added to the residual as it is, and nothing else.
    """

    axes: int

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state after the sum, or None where it is not legal."""
        if not self.axes or self.axes != state.owes or not facts.quantized_sum:
            return None
        if state.phase is not Phase.CONTRIBUTION or state.joined or state.transform:
            return None
        if state.handed_off:
            return None
        return state._replace(owes=0)


@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """Sums the value over ``axes`` and leaves each rank its own part of the rows."""

    axes: int
    variable: bool

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state after the sum, or None where it is not legal."""
        rows = state.rows | self.axes
        if not self.axes or self.axes & ~(state.owes & facts.scatter) or state.by_token:
            return None
        if not _moves(self, rows, facts):
            return None
        return _settle(state._replace(rows=rows, owes=state.owes & ~self.axes))


@dataclass(frozen=True, slots=True)
class AllGather:
    """Collects the value's rows over ``axes`` on every member of the group."""

    axes: int
    variable: bool

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state after the gather, or None where it is not legal."""
        if not self.axes or self.axes & ~state.rows or _rests(state):
            return None
        if not _moves(self, state.rows, facts):
            return None
        return _with_rows(state, state.rows & ~self.axes)


@dataclass(frozen=True, slots=True)
class Slice:
    """Keeps this rank's own part of rows that all members of ``axes`` hold; no communication."""

    axes: int

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state after the cut, or None where it is not legal."""
        rows = state.rows | self.axes
        if not self.axes or self.axes & (state.rows | state.owes) or _rests(state):
            return None
        return _with_rows(state, rows) if keeps_order(self.axes, rows, facts.every) else None


@dataclass(frozen=True, slots=True)
class GatherSum:
    """One all-reduce of placed rows: gathers over ``gather`` and sums over ``sum`` at once."""

    gather: int
    sum: int

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state after the placed sum, or None where it is not legal."""
        if not self.gather or self.gather & ~state.rows or self.sum & ~state.owes:
            return None
        if _rests(state) or not keeps_order(self.gather, state.rows, facts.every):
            return None
        if state.quantized:  # zeros in the places of others cannot be added to it
            return None
        return _settle(state._replace(rows=state.rows & ~self.gather, owes=state.owes & ~self.sum))


@dataclass(frozen=True, slots=True)
class Reorder:
    """Permutes rows that are whole over the shards between shard order and token order; local."""

    to_tokens: bool

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state after the permutation, or None where the two orders are the same."""
        if not facts.shards or facts.shards & state.rows or state.by_token is self.to_tokens:
            return None
        if state.phase not in (Phase.CONTRIBUTION, Phase.INPUT) or state.joined:
            return None
        return state._replace(by_token=self.to_tokens)


@dataclass(frozen=True, slots=True)
class Transform:
    """Runs the producer's declared transform of its contribution."""

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state after the transform, or None where it is not legal."""
        if state.phase is not Phase.CONTRIBUTION or not state.transform or state.joined:
            return None
        if state.owes and not facts.transform_linear:
            return None
        return state._replace(transform=False)


@dataclass(frozen=True, slots=True)
class Update:
    """Applies the producer's update: the complete contribution becomes part of the residual."""

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The written state, or None where the update is not legal."""
        if state.phase is not Phase.CONTRIBUTION or state.owes or state.transform or state.joined:
            return None
        if state.by_token or state.rows != state.residual:
            return None
        if facts.update_on is not None and state.rows != facts.update_on:
            return None
        return state._replace(phase=Phase.STREAM, unrounded=facts.carries)


@dataclass(frozen=True, slots=True)
class Finalize:
    """Makes a contribution of what a MoE has not finalised; the planner makes no way with it."""

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The same state, or None where it holds no contribution."""
        return state if state.phase is Phase.CONTRIBUTION else None


@dataclass(frozen=True, slots=True)
class Addition:
    """Adds what the model gives to the written residual; the planner makes no way with it."""

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The same state, or None where there is no residual to add to."""
        return state if state.phase is Phase.STREAM else None


@dataclass(frozen=True, slots=True)
class Join:
    """Adds the residual to a partial on exactly one rank of the sum, each at its own rows."""

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The joined state, or None where the residual may not join."""
        if state.phase is not Phase.CONTRIBUTION or state.joined or state.transform:
            return None
        if not facts.joins_sum or not state.owes or state.residual == NO_RESIDUAL:
            return None
        if state.by_token:
            return None
        extra = state.residual & ~state.rows
        if state.rows & ~state.residual or extra & ~state.owes:
            return None
        return state._replace(joined=True)


@dataclass(frozen=True, slots=True)
class Enter:
    """Starts the residual from the stack's complete input."""

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The written state, or None where there already is a residual."""
        if state.phase is not Phase.INITIAL or state.owes:
            return None
        return state._replace(phase=Phase.STREAM, residual=state.rows)


@dataclass(frozen=True, slots=True)
class Read:
    """Reads the consumer's input from the written residual."""

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state that holds the input, or None where the read may not run."""
        if state.phase is not Phase.STREAM:
            return None
        if facts.read_local & ~state.rows or facts.read_whole & state.rows:
            return None
        if facts.read_on is not None and state.rows != facts.read_on:
            return None
        return state._replace(phase=Phase.INPUT, unrounded=False)


@dataclass(frozen=True, slots=True)
class Quantize:
    """Makes values and scales of the input, row by row: before or after its rows are moved."""

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state that holds the quantised input, or None where none is asked for."""
        if state.phase is not Phase.INPUT or state.quantized or not facts.quantized_tensors:
            return None
        return state._replace(quantized=True)


@dataclass(frozen=True, slots=True)
class Capture:
    """Keeps the residual that was read, gathered over ``gather`` or cut over ``cut``.

    ``index`` counts the captures that are declared for the boundary. The stream goes on unchanged.
    """

    index: int
    gather: int
    cut: int
    variable: bool

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state after the capture, or None where it is not due or on other rows."""
        if state.phase is not Phase.INPUT or self.index != state.captured.bit_count():
            return None
        if self.index >= len(facts.captures) or (self.gather and self.cut):
            return None
        if self.gather & ~state.residual or self.cut & state.residual:
            return None
        if (state.residual & ~self.gather) | self.cut != facts.captures[self.index]:
            return None
        if not self.variable and self.gather & ~facts.even:
            return None
        if not keeps_order(self.gather | self.cut, state.residual | self.cut, facts.every):
            return None
        return state._replace(captured=state.captured | 1 << self.index)


@dataclass(frozen=True, slots=True)
class HandOff:
    """The end of the producer's exit code; what follows is the consumer's prepare code."""

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The handed-off state, or None where the producer may not leave it so."""
        if state.handed_off or state.phase is Phase.INPUT or state.unrounded:
            return None
        if state.owes and not facts.may_defer:
            return None
        if state.transform and not state.owes:
            return None  # there is nothing that the transform could wait for
        if facts.update_at_producer and state.phase is not Phase.STREAM:
            return None
        if state.phase is Phase.STREAM and not (facts.update_at_producer or facts.joins_sum):
            return None  # the model may still change the output, and the update must see that
        if facts.complete_on is not None and (state.owes or state.rows != facts.complete_on):
            return None
        return state._replace(handed_off=True)


@dataclass(frozen=True, slots=True)
class ResidualSlice:
    """Keeps this rank's own part of the residual over ``axes``; no communication."""

    axes: int

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state after the cut, or None where it is not legal."""
        if not _residual_may_move(state, facts) or self.axes & state.residual:
            return None
        finer = state.residual | self.axes
        if not self.axes or not keeps_order(self.axes, finer, facts.every):
            return None
        return _with_residual(state, finer)


@dataclass(frozen=True, slots=True)
class ResidualGather:
    """Collects the residual's rows over ``axes`` on every member of the group."""

    axes: int
    variable: bool

    def apply(self, state: State, facts: EdgeFacts) -> State | None:
        """The state after the gather, or None where it is not legal."""
        if not _residual_may_move(state, facts) or self.axes & ~state.residual:
            return None
        if not self.axes or not _moves(self, state.residual, facts):
            return None
        return _with_residual(state, state.residual & ~self.axes)


Operation = (
    AllReduce
    | QuantizedAllReduce
    | ReduceScatter
    | AllGather
    | Slice
    | GatherSum
    | Reorder
    | Transform
    | Finalize
    | Update
    | Addition
    | Join
    | Enter
    | Read
    | Quantize
    | Capture
    | HandOff
    | ResidualSlice
    | ResidualGather
)


def _settle(state: State) -> State:
    """A joined partial whose last sum is done is the written stream."""
    if state.joined and not state.owes:
        return state._replace(phase=Phase.STREAM, joined=False, residual=state.rows)
    return state


def _with_rows(state: State, rows: int) -> State:
    # As `_replace` has it, in half the time: most states of a search are made here.
    phase, _, *rest = state
    return State._make((phase, rows, *rest))


def _with_residual(state: State, residual: int) -> State:
    phase, rows, owes, _, *rest = state
    rows = residual if phase is Phase.STREAM else rows
    return State._make((phase, rows, owes, residual, *rest))


def _rests(state: State) -> bool:
    """Whether the value itself may not move: it is the stream, or its rows are in token order."""
    return state.phase is Phase.STREAM or state.by_token


def _residual_may_move(state: State, facts: EdgeFacts) -> bool:
    """Before the sum is done the residual only moves to join it: other orders are no cheaper."""
    if state.residual == NO_RESIDUAL or state.joined or state.unrounded:
        return False
    return not state.owes or facts.joins_sum


def _moves(op: ReduceScatter | AllGather | ResidualGather, finer: int, facts: EdgeFacts) -> bool:
    """Whether rows arrive in order and a fixed-size collective really has equal sizes."""
    if not op.variable and op.axes & ~facts.even:
        return False
    return keeps_order(op.axes, finer, facts.every)
