"""The planner: a boundary is the shortest path over typed operations.

Dijkstra's algorithm on states that are built as they are met; costs are ranked by one number each,
which is sound because they only grow and add component by component. Successors come in a fixed
order, and of equals the state that the search met first wins: a plan is a function of its inputs
alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from boundaryc.plan.cost import Cost, Order, price, scale
from boundaryc.plan.fewest import Ways, fewest
from boundaryc.plan.ops import AllGather, Capture, Operation, ReduceScatter, ResidualGather
from boundaryc.plan.state import EdgeFacts, State
from boundaryc.plan.transitions import Goal, Step, transitions

Sized = ReduceScatter | AllGather | ResidualGather | Capture
"""Operations that take sizes where rows are cut unevenly."""


@dataclass(frozen=True, slots=True)
class Path:
    """A finished boundary: its operations in order, and what they cost.

    What is often asked of these is kept beside them: ``sized`` are the places of those that take
    sizes or might, with the atoms that they move over; ``scatters`` the atoms over which some sum
    ends in a reduce-scatter; ``fixed`` those of which some operation takes all parts to be as long.
    """

    ops: tuple[Operation, ...]
    cost: Cost
    sized: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)
    scatters: int = field(init=False, repr=False, compare=False)
    fixed: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sized: list[tuple[int, int]] = []
        scatters = fixed = 0
        for place, op in enumerate(self.ops):
            if isinstance(op, (ReduceScatter, AllGather, ResidualGather, Capture)):
                axes = op.gather if isinstance(op, Capture) else op.axes
                sized.append((place, axes))
                fixed |= 0 if op.variable else axes
                scatters |= axes if isinstance(op, ReduceScatter) else 0
        object.__setattr__(self, "sized", tuple(sized))
        object.__setattr__(self, "scatters", scatters)
        object.__setattr__(self, "fixed", fixed)


Found = Mapping[Goal, Path]


class Moves:
    """The operations of one edge with their costs, found once however often they are met.

    Searches that may scatter over fewer atoms than the facts say share them.
    """

    def __init__(self, facts: EdgeFacts) -> None:
        self.facts = facts
        self.transitions = transitions(facts)
        self._fewest = fewest(facts)
        self._scale = scale(facts)
        self._shared = _costs(self._scale)
        self._costs: dict[int, Cost] = {}
        self._ranks: dict[Order, Ranks] = {}

    def every(self, scatter: int) -> Ways:
        """Every legal step of a state, where sums may be scattered over ``scatter`` alone."""
        return self.transitions.scattering(scatter)

    def leading(self, first: int, goals: frozenset[Goal], scatter: int) -> Ways:
        """Those that may be on the cheapest way where collectives come first."""
        return self._fewest(first, goals, scatter)

    def cost(self, number: int) -> Cost:
        """The cost that steps of a price have."""
        known = self._costs.get(number)
        if known is None:
            known = self._costs[number] = self._cost(number)
        return known

    def _cost(self, number: int) -> Cost:
        key = self.transitions.looked_at[number]
        known = self._shared.get(key)
        if known is None:
            op, state = self.transitions.priced[number]
            known = self._shared[key] = price(op, state, self._scale)
        return known

    def ranks(self, order: Order) -> Ranks:
        """What steps of each price add to the rank of a way."""
        known = self._ranks.get(order)
        if known is None:
            known = self._ranks[order] = Ranks(self, order)
        return known


@lru_cache(maxsize=1024)
def _costs(scale: EdgeFacts) -> dict[object, Cost]:
    """The costs that have been computed on a scale, by what they depend on."""
    return {}


class Ranks(dict[int, int]):
    """The ranks of prices in one order, computed as they are asked for."""

    def __init__(self, moves: Moves, order: Order) -> None:
        super().__init__()
        self.moves, self.order = moves, order

    def __missing__(self, price: int) -> int:
        rank = self[price] = self.order.rank(self.moves.cost(price))
        return rank


@lru_cache(maxsize=1024)
def moves(facts: EdgeFacts) -> Moves:
    """The moves under these facts, shared by all edges that have them, whatever their stack."""
    return Moves(facts)


def paths(
    facts: EdgeFacts, start: State, goals: frozenset[Goal], order: Order, scatter: int
) -> Found:
    """The cheapest path to each of ``goals`` that can be reached.

    Where the cheapest under ``facts`` keeps to the atoms of ``scatter``, it is that one.
    """
    found = _searched(facts, start, goals, order, facts.scatter)
    refused = frozenset(goal for goal, path in found.items() if path.scatters & ~scatter)
    if not refused:
        return found
    kept = {goal: path for goal, path in found.items() if goal not in refused}
    return {**kept, **_searched(facts, start, refused, order, scatter)}


@lru_cache(maxsize=16384)
def _searched(
    facts: EdgeFacts, start: State, goals: frozenset[Goal], order: Order, scatter: int
) -> Found:
    if order.alpha is None:
        return search(start, goals, moves(facts), order, scatter)
    # A way with another collective costs ``alpha`` more, and saves at most all that is sent.
    few = _searched(facts, start, goals, Order(), scatter)
    kept = {goal: path for goal, path in few.items() if path.cost.wire < order.alpha}
    if len(kept) == len(few):
        return few
    rest = frozenset(few.keys() - kept.keys())
    most = max(order.rank(few[goal].cost) for goal in rest)
    return {**kept, **search(start, rest, moves(facts), order, scatter, most)}


def search(
    start: State,
    goals: frozenset[Goal],
    moves: Moves,
    order: Order,
    scatter: int,
    most: int | None = None,
) -> dict[Goal, Path]:
    """The cheapest path from ``start`` to each goal that can be reached.

    Sums may be scattered over the atoms of ``scatter`` that the facts of ``moves`` admit. ``most``
    is the rank of some path to each goal at most, where such are known.
    """
    first, every = moves.transitions.number(start), moves.every(scatter)
    if order.alpha is not None:
        return _followed(first, goals, moves, order, every, most)[0]
    found, tied = _followed(first, goals, moves, order, moves.leading(first, goals, scatter))
    if not tied:
        return found
    most = max(order.rank(found[goal].cost) for goal in tied)
    return {**found, **_followed(first, tied, moves, order, every, most)[0]}


def _followed(
    first: int,
    goals: frozenset[Goal],
    moves: Moves,
    order: Order,
    steps: Ways,
    most: int | None = None,
) -> tuple[dict[Goal, Path], frozenset[Goal]]:
    """The cheapest paths along ``steps``, and the goals of which other steps may break a tie.

    Of equals the state wins that is met first, and some of the ways that meet it lead nowhere.
    What ranks above ``most`` is not followed.
    """
    ends, ranks = moves.transitions.goals, moves.ranks(order)
    best, met = {first: 0}, {first: 0}
    came: dict[int, tuple[int, Step]] = {}
    tied: set[int] = set()
    bound = float("inf") if most is None else most
    queue = [(0, 0, first)]
    found: dict[Goal, Path] = {}
    unsure: set[Goal] = set()
    while queue and len(found) < len(goals):
        rank, _, number = heapq.heappop(queue)
        if rank > best[number]:
            continue  # a cheaper way there has been followed since
        goal = ends[number]
        if goal in goals and goal not in found:
            way = _way(came, number)
            found[goal] = _path(way, moves)
            if any(step.after in tied for step in way):
                unsure.add(goal)
        for step in steps[number]:
            after = step[0]
            reached = rank + ranks[step[1]]
            if reached > bound:
                continue
            known = best.get(after)
            if known is None or reached < known:
                best[after], came[after] = reached, (number, step)
                tied.discard(after)
                heapq.heappush(queue, (reached, met.setdefault(after, len(met)), after))
            elif reached == known and number != came[after][0] and rank == best[came[after][0]]:
                tied.add(after)
    return found, frozenset(unsure)


def _way(came: Mapping[int, tuple[int, Step]], number: int) -> list[Step]:
    """The steps to a state, in order."""
    steps: list[Step] = []
    while number in came:
        number, step = came[number]
        steps.append(step)
    return steps[::-1]


def _path(way: list[Step], moves: Moves) -> Path:
    costs = (moves.cost(step.price) for step in way)
    return Path(tuple([step.op for step in way]), Cost.total(costs))


def fit(path: Path, facts: EdgeFacts) -> Path:
    """The same path for a batch with other evenness: only the form of its moves may change.

    A move costs the same with fixed and with variable sizes, so a shortest path stays one as long
    as the atoms that may be scattered over are the same.
    """
    fitted: list[Operation] | None = None
    for place, axes in path.sized:
        op = path.ops[place]
        assert isinstance(op, Sized)
        if op.variable is not facts.variable(axes, scatter=isinstance(op, ReduceScatter)):
            fitted = fitted or list(path.ops)
            fitted[place] = _other_form(op)
    return path if fitted is None else Path(tuple(fitted), path.cost)


@lru_cache(maxsize=1024)
def _other_form(op: Sized) -> Sized:
    """The move with sizes instead of without, or the reverse: one object for all plans."""
    return replace(op, variable=not op.variable)


def unmet(start: State, goals: frozenset[Goal], facts: EdgeFacts, order: Order) -> str:
    """Which single requirement, if it were dropped, would let a path exist."""
    for text, looser in relaxed(facts):
        if search(start, goals, moves(looser), order, looser.scatter):
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
