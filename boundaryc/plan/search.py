"""The planner: a boundary is the shortest path over typed operations.

Dijkstra's algorithm on states that are built as they are met; costs are ranked by one number each,
which is sound because they only grow and add component by component. Successors are generated in a
fixed order, which numbers the states, and of equals the lower number wins: a plan is a function of
its inputs alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from boundaryc.plan.cost import Cost, Order, price
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
from boundaryc.plan.state import NO_RESIDUAL, EdgeFacts, Phase, State


@dataclass(frozen=True, slots=True)
class Path:
    """A finished boundary: its operations in order, and what they cost."""

    ops: tuple[Operation, ...]
    cost: Cost


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


Ranked = tuple[int, int, Operation, Cost]


class Moves:
    """The priced successors of the states of one edge, found once however often they are met.

    States are numbered as they are met, so that a search works on integers. Searches that may
    scatter over fewer atoms than the facts say share them: ``scatter`` is what they may.
    """

    def __init__(self, facts: EdgeFacts) -> None:
        self.facts = facts
        self.states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._steps: dict[int, tuple[tuple[Operation, int, Cost], ...]] = {}
        self._ranked: dict[tuple[Order, int], dict[int, tuple[Ranked, ...]]] = {}
        self._paths: dict[tuple[State, frozenset[Goal], Order, int], dict[Goal, Path]] = {}

    def number(self, state: State) -> int:
        """The number of a state."""
        known = self._numbers.get(state)
        if known is None:
            known = self._numbers[state] = len(self.states)
            self.states.append(state)
        return known

    def steps(self, number: int) -> tuple[tuple[Operation, int, Cost], ...]:
        """Every legal operation of a state, the state it leaves, and its cost."""
        known = self._steps.get(number)
        if known is None:
            state, facts = self.states[number], self.facts
            known = self._steps[number] = tuple(
                (op, self.number(after), price(op, state, facts))
                for op, after in successors(state, facts)
            )
        return known

    def ranked(self, order: Order, scatter: int) -> dict[int, tuple[Ranked, ...]]:
        """The successors of the states ranked so far, for ``rank`` to add to."""
        return self._ranked.setdefault((order, scatter), {})

    def rank(self, number: int, order: Order, scatter: int) -> tuple[Ranked, ...]:
        """The successors of a state as (rank of the cost, state, operation, cost)."""
        found: tuple[Ranked, ...]
        if scatter == self.facts.scatter:
            steps = self.steps(number)
            found = tuple((order.rank(cost), after, op, cost) for op, after, cost in steps)
        else:
            found = tuple(
                ranked
                for ranked in self._all_ranked(number, order)
                if not (isinstance(ranked[2], ReduceScatter) and ranked[2].axes & ~scatter)
            )
        self.ranked(order, scatter)[number] = found
        return found

    def _all_ranked(self, number: int, order: Order) -> tuple[Ranked, ...]:
        known = self.ranked(order, self.facts.scatter).get(number)
        return known or self.rank(number, order, self.facts.scatter)

    def paths(
        self, start: State, goals: frozenset[Goal], order: Order, scatter: int
    ) -> dict[Goal, Path]:
        """What ``search`` finds, remembered."""
        key = (start, goals, order, scatter)
        known = self._paths.get(key)
        if known is None:
            known = self._paths[key] = search(start, goals, self, order, scatter)
        return known


def search(
    start: State, goals: frozenset[Goal], moves: Moves, order: Order, scatter: int
) -> dict[Goal, Path]:
    """The cheapest path from ``start`` to each goal that can be reached.

    Sums may be scattered over the atoms of ``scatter`` that the facts of ``moves`` admit.
    """
    first = moves.number(start)
    best = {first: 0}
    came: dict[int, tuple[int, Operation, Cost]] = {}
    queue = [(0, first)]
    found: dict[Goal, Path] = {}
    ranked = moves.ranked(order, scatter)
    while queue and len(found) < len(goals):
        rank, number = heapq.heappop(queue)
        if rank > best[number]:
            continue  # a cheaper way there has been followed since
        goal = _goal_of(moves.states[number], moves.facts)
        if goal in goals and goal not in found:
            found[goal] = _path(came, number)
        for step, after, op, cost in ranked.get(number) or moves.rank(number, order, scatter):
            reached = rank + step
            if after not in best or reached < best[after]:
                best[after], came[after] = reached, (number, op, cost)
                heapq.heappush(queue, (reached, after))
    return found


def _path(came: dict[int, tuple[int, Operation, Cost]], number: int) -> Path:
    ops: list[Operation] = []
    whole = Cost()
    while number in came:
        number, op, cost = came[number]
        ops.append(op)
        whole = whole.plus(cost)
    return Path(tuple(reversed(ops)), whole)


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
        yield Reorder(not state.by_token)
    if state.phase is Phase.INPUT and state.captured.bit_count() < len(facts.captures):
        yield _capture(state, facts)
    if facts.quantized_sum:
        yield QuantizedAllReduce(state.owes)
    for axes in _parts(state.owes):
        yield AllReduce(axes)
        yield ReduceScatter(axes, facts.variable(axes, scatter=True))
        for gather in _parts(state.rows):
            yield GatherSum(gather, axes)
    if state.phase is not Phase.STREAM:
        for axes in _parts(state.rows):
            yield AllGather(axes, facts.variable(axes))
        for axes in _parts(facts.every & ~state.rows & ~state.owes):
            yield Slice(axes)
    if state.residual != NO_RESIDUAL:
        for axes in _parts(state.residual):
            yield ResidualGather(axes, facts.variable(axes))
        for axes in _parts(facts.every & ~state.residual):
            yield ResidualSlice(axes)


def _capture(state: State, facts: EdgeFacts) -> Capture:
    """The capture that is due, with the one move that brings the residual to its rows."""
    index = state.captured.bit_count()
    rows = facts.captures[index]
    gather, cut = state.residual & ~rows, rows & ~state.residual
    return Capture(index, gather, cut, facts.variable(gather))


def _parts(mask: int) -> Iterator[int]:
    """The non-empty subsets of a mask, smallest number first."""
    part = (0 - mask) & mask
    while part:
        yield part
        part = (part - mask) & mask


def fit(path: Path, facts: EdgeFacts) -> Path:
    """The same path for a batch with other evenness: only the form of its moves may change.

    A move costs the same with fixed and with variable sizes, so a shortest path stays one as long
    as the atoms that may be scattered over are the same.
    """
    return replace(path, ops=tuple(_fit(op, facts) for op in path.ops))


def _fit(op: Operation, facts: EdgeFacts) -> Operation:
    match op:
        case ReduceScatter(axes, _):
            return ReduceScatter(axes, facts.variable(axes, scatter=True))
        case AllGather(axes, _):
            return AllGather(axes, facts.variable(axes))
        case ResidualGather(axes, _):
            return ResidualGather(axes, facts.variable(axes))
        case Capture(index, gather, cut, _):
            return Capture(index, gather, cut, facts.variable(gather))
        case _:
            return op


def unmet(start: State, goals: frozenset[Goal], facts: EdgeFacts, order: Order) -> str:
    """Which single requirement, if it were dropped, would let a path exist."""
    for text, looser in relaxed(facts):
        if search(start, goals, Moves(looser), order, looser.scatter):
            return text
    return "no order of legal operations delivers these rows"


def relaxed(facts: EdgeFacts) -> tuple[tuple[str, EdgeFacts], ...]:
    """Every requirement in words, with the facts of a boundary that does not have it."""
    return (
        ("the producer may not leave its sum to the next stage", facts._replace(may_defer=True)),
        ("the end of the stack must be handed a complete value", facts._replace(complete_on=None)),
        ("the read must run on rows still sharded there", facts._replace(read_local=0)),
        ("the read needs every row", facts._replace(read_whole=0)),
        ("the read has what it needs of a batch on the stack's rows", facts._replace(read_on=None)),
        (
            "the update has what it needs of a batch on the stack's rows",
            facts._replace(update_on=None),
        ),
        ("the update must run at the producer", facts._replace(update_at_producer=False)),
        ("the sum may not end in a reduce-scatter", facts._replace(scatter=facts.every)),
    )
