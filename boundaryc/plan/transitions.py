"""Which operations are legal in which states of an edge, and what each leads to.

Legality looks at no sizes: meshes that are cut alike, stacks of other widths and all kinds of batch
share what is found here. Nothing depends on the order in which states are met, which their numbers
follow: searches break ties by what they meet themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import NamedTuple, TypeVar

from boundaryc.plan.ops import (
    AllGather,
    AllReduce,
    Capture,
    Enter,
    GatherSum,
    HandOff,
    Join,
    Operation,
    Quantize,
    QuantizedAllReduce,
    Read,
    ReduceScatter,
    Reorder,
    ResidualGather,
    ResidualSlice,
    Slice,
    Transform,
    Update,
)
from boundaryc.plan.state import NO_RESIDUAL, EdgeFacts, Phase, State, Widths

Found = TypeVar("Found")


class Goal(NamedTuple):
    """Where a boundary must arrive: the input's rows, and where the residual must lie.

    In the stream phase there is no input: the written residual is all that is asked for. In the
    contribution phase it is the output itself, whose update has not run: complete, or, before it is
    added to another one, owing the same sum ``owes`` on the same rows.
    """

    rows: int
    residual: int
    by_token: bool = False
    phase: Phase = Phase.INPUT
    owes: int = 0


class Step(NamedTuple):
    """A legal operation: the number of the state it leaves, and the number of its price."""

    after: int
    price: int
    op: Operation


class Transitions:
    """The states of an edge, numbered as they are met, with their legal operations.

    ``priced`` has for every price an operation and a state to compute it from, ``looked_at`` all
    that it depends on, which is less than what an operation leads to. ``goals`` says of each state
    where it arrives, if it may end a boundary.
    """

    def __init__(self, facts: EdgeFacts) -> None:
        self.facts = facts
        self.states: list[State] = []
        self.goals: list[Goal | None] = []
        self.priced: list[tuple[Operation, State]] = []
        self.looked_at: list[object] = []
        self._numbers: dict[State, int] = {}
        self._steps: dict[int, tuple[Step, ...]] = {}
        self._prices: dict[tuple[object, ...], int] = {}
        self._scattering: dict[int, Scattering] = {}

    def number(self, state: State) -> int:
        """The number of a state."""
        known = self._numbers.get(state)
        if known is None:
            known = self._numbers[state] = len(self.states)
            self.states.append(state)
            self.goals.append(_goal_of(state, self.facts))
        return known

    def steps(self, number: int) -> tuple[Step, ...]:
        """Every legal operation of a state, in a fixed order."""
        known = self._steps.get(number)
        if known is None:
            state = self.states[number]
            known = self._steps[number] = tuple(
                self._step(op, state, after) for op, after in successors(state, self.facts)
            )
        return known

    def scattering(self, atoms: int) -> Scattering:
        """The legal operations of states where sums may be scattered over ``atoms`` alone."""
        known = self._scattering.get(atoms)
        if known is None:
            known = self._scattering[atoms] = Scattering(self, atoms)
        return known

    def _step(self, op: Operation, state: State, after: State) -> Step:
        key = (id(op), *_priced(op, state))  # there is one object for each operation, see `_made`
        price = self._prices.get(key)
        if price is None:
            price = self._prices[key] = len(self.priced)
            self.priced.append((op, state))
            self.looked_at.append(key)
        return Step(self.number(after), price, self.priced[price][0])


class Scattering(dict[int, tuple[Step, ...]]):
    """The legal operations of every state by its number, computed as they are asked for.

    Sums are scattered over some ``atoms`` alone.
    """

    def __init__(self, transitions: Transitions, atoms: int) -> None:
        super().__init__()
        self.transitions, self.atoms = transitions, atoms

    def __missing__(self, number: int) -> tuple[Step, ...]:
        known = self[number] = tuple(
            step
            for step in self.transitions.steps(number)
            if not (isinstance(step.op, ReduceScatter) and step.op.axes & ~self.atoms)
        )
        return known


class Priced(dict[int, Found]):
    """What ``find`` gives for every price, for an operation and a state of it, once asked for."""

    def __init__(self, every: Transitions, find: Callable[[Operation, State], Found]) -> None:
        super().__init__()
        self._transitions, self._find = every, find

    def __missing__(self, price: int) -> Found:
        found = self[price] = self._find(*self._transitions.priced[price])
        return found


def _priced(op: Operation, state: State) -> tuple[object, ...]:
    """What an operation's price depends on, beside the facts."""
    residual = state.residual if isinstance(op, (ResidualGather, Capture)) else None
    return (state.phase, state.rows, residual, state.quantized, state.handed_off)


@lru_cache(maxsize=1024)
def _transitions(form: EdgeFacts) -> Transitions:
    return Transitions(form)


def transitions(facts: EdgeFacts) -> Transitions:
    """The transitions under these facts, shared by all whose sizes alone differ."""
    form = facts._replace(
        sizes=(2,) * len(facts.sizes),
        widths=NO_WIDTHS,
        quantized_sum=int(bool(facts.quantized_sum)),
        quantized_tensors=int(bool(facts.quantized_tensors)),
        given_on=0,
        taken_tensors=0,
        kept_tensors=0,
    )
    return _transitions(form)


NO_WIDTHS = Widths(0, 0, 0, 0)


def successors(state: State, facts: EdgeFacts) -> Iterator[tuple[Operation, State]]:
    """Every legal operation of a state with the state it leaves, in a fixed order."""
    for op in _candidates(state, facts):
        after = op.apply(state, facts)
        if after is not None:
            yield op, after


def _goal_of(state: State, facts: EdgeFacts) -> Goal | None:
    if not state.handed_off or state.phase is Phase.INITIAL:
        return None
    if state.phase is Phase.CONTRIBUTION and (state.transform or state.joined):
        return None
    if state.phase is Phase.CONTRIBUTION and state.owes and not facts.merges:
        return None
    if state.phase is Phase.INPUT and state.captured.bit_count() != len(facts.captures):
        return None
    if state.phase is Phase.INPUT and state.quantized != bool(facts.quantized_tensors):
        return None
    return Goal(state.rows, state.residual, state.by_token, state.phase, state.owes)


_LOCAL: Mapping[Phase, tuple[Operation, ...]] = {
    Phase.INITIAL: (Enter(),),
    Phase.CONTRIBUTION: (Transform(), Update(), Join(), HandOff()),
    Phase.STREAM: (Read(), HandOff()),
    Phase.INPUT: (Quantize(),),
}
"""The operations without rows of their own that a value of a phase can meet."""


def _candidates(state: State, facts: EdgeFacts) -> Iterator[Operation]:
    if facts.merges and state.handed_off:
        return
    yield from _LOCAL[state.phase]
    if facts.shards:
        yield _made(Reorder, not state.by_token)
    if state.phase is Phase.INPUT and state.captured.bit_count() < len(facts.captures):
        yield _capture(state, facts)
    if facts.quantized_sum:
        yield _made(QuantizedAllReduce, state.owes)
    for axes in _parts(state.owes):
        yield _made(AllReduce, axes)
        yield _made(ReduceScatter, axes, facts.variable(axes, scatter=True))
        for gather in _parts(state.rows):
            yield _made(GatherSum, gather, axes)
    if state.phase is not Phase.STREAM:
        for axes in _parts(state.rows):
            yield _made(AllGather, axes, facts.variable(axes))
        for axes in _parts(facts.every & ~state.rows & ~state.owes):
            yield _made(Slice, axes)
    if state.residual != NO_RESIDUAL:
        for axes in _parts(state.residual):
            yield _made(ResidualGather, axes, facts.variable(axes))
        for axes in _parts(facts.every & ~state.residual):
            yield _made(ResidualSlice, axes)


Made = TypeVar("Made", bound=Operation)


@cache
def _made(kind: Callable[..., Made], *fields: int) -> Made:
    """An operation, one object for all states that it is tried in: most are not legal there."""
    return kind(*fields)


def _capture(state: State, facts: EdgeFacts) -> Capture:
    """The capture that is due, with the one move that brings the residual to its rows."""
    index = state.captured.bit_count()
    rows = facts.captures[index]
    gather, cut = state.residual & ~rows, rows & ~state.residual
    made: Capture = _made(Capture, index, gather, cut, facts.variable(gather))
    return made


@cache
def _parts(mask: int) -> tuple[int, ...]:
    """The non-empty subsets of a mask, smallest number first."""
    return tuple(part for part in range(1, mask + 1) if not part & ~mask)
