"""The planner: a boundary is the shortest path over typed operations.

Where collectives come first the cheapest of some candidates is taken, which meshes share; else it
is Dijkstra's algorithm on states that are built as they are met. Costs are ranked by one number
each, which is sound because they only grow and add component by component. Successors come in a
fixed order, and of equals the state that is met first wins: a plan is a function of its inputs
alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from functools import lru_cache

from boundaryc.plan.candidates import candidates
from boundaryc.plan.cost import Cost, Order, price, scale, sent
from boundaryc.plan.fewest import Ways
from boundaryc.plan.path import Path, Way
from boundaryc.plan.state import EdgeFacts, State
from boundaryc.plan.transitions import Goal, Step

Found = Mapping[Goal, Way]


class Moves:
    """The operations of one edge with their costs, and its cheapest ways, each found once.

    Searches that may scatter over fewer atoms than the facts say share them. Ways are of these
    moves alone: the prices of their steps are numbered as they are met.
    """

    def __init__(self, facts: EdgeFacts) -> None:
        self.facts = facts
        self.candidates = candidates(facts)
        self.transitions = self.candidates.transitions
        self._scale = scale(facts)
        self._shared = _costs(self._scale)
        self._costs: dict[int, Cost] = {}
        self._ranks: dict[Order, Ranks] = {}
        self._searched: dict[tuple[State, frozenset[Goal], Order, int], Found] = {}

    def every(self, scatter: int) -> Ways:
        """Every legal step of a state, where sums may be scattered over ``scatter`` alone."""
        return self.transitions.scattering(scatter)

    def cheapest(self, start: State, goals: frozenset[Goal], order: Order, scatter: int) -> Found:
        """The cheapest way to each of ``goals`` that can be reached.

        Where the cheapest under the facts keeps to the atoms of ``scatter``, it is that one.
        """
        found = self._cheapest(start, goals, order, self.facts.scatter)
        refused = frozenset(goal for goal, way in found.items() if way.scatters & ~scatter)
        if not refused:
            return found
        kept = {goal: way for goal, way in found.items() if goal not in refused}
        return {**kept, **self._cheapest(start, refused, order, scatter)}

    def _cheapest(self, start: State, goals: frozenset[Goal], order: Order, scatter: int) -> Found:
        key = (start, goals, order, scatter)
        known = self._searched.get(key)
        if known is None:
            make = search if order.alpha is None else _for_many_rows
            known = self._searched[key] = make(start, goals, self, order, scatter)
        return known

    def path(self, way: Way) -> Path:
        """A way at what it costs here."""
        return Path.of(way, Cost.total(map(self.cost, way.prices)))

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


@lru_cache(maxsize=4096)
def moves(facts: EdgeFacts) -> Moves:
    """The moves under these facts, shared by all edges that have them, whatever their stack."""
    return Moves(facts)


def search(
    start: State, goals: frozenset[Goal], moves: Moves, order: Order, scatter: int
) -> dict[Goal, Way]:
    """The cheapest way from ``start`` to each goal that can be reached.

    Sums may be scattered over the atoms of ``scatter`` that the facts of ``moves`` admit.
    """
    first, ranks = moves.transitions.number(start), moves.ranks(order)
    if order.alpha is not None:
        return followed(first, goals, moves, order, moves.every(scatter))
    return {
        goal: ways[0] if len(ways) == 1 else min(ways, key=lambda way: way.rank(ranks))
        for goal, ways in moves.candidates(first, goals, scatter).items()
    }


def _for_many_rows(
    start: State, goals: frozenset[Goal], moves: Moves, order: Order, scatter: int
) -> Found:
    """As `search` finds them, but looked for only where another collective can pay for itself.

    A way with another collective costs ``alpha`` more, and saves at most all that is sent.
    """
    assert order.alpha is not None
    few, ranks = moves.cheapest(start, goals, Order(), scatter), moves.ranks(Order())
    rest = frozenset(goal for goal, way in few.items() if sent(way.rank(ranks)) >= order.alpha)
    if not rest:
        return few
    ranks = moves.ranks(order)
    most = max(few[goal].rank(ranks) for goal in rest)
    first, every = moves.transitions.number(start), moves.every(scatter)
    return {**few, **followed(first, rest, moves, order, every, most)}


def followed(
    first: int,
    goals: frozenset[Goal],
    moves: Moves,
    order: Order,
    steps: Ways,
    most: int | None = None,
) -> dict[Goal, Way]:
    """The cheapest ways along ``steps`` from the state ``first`` to each goal that can be reached.

    What ranks above ``most`` is not followed.
    """
    ends, ranks = moves.transitions.goals, moves.ranks(order)
    best, met = {first: 0}, {first: 0}
    came: dict[int, tuple[int, Step]] = {}
    bound = float("inf") if most is None else most
    queue = [(0, 0, first)]
    found: dict[Goal, Way] = {}
    while queue and len(found) < len(goals):
        rank, _, number = heapq.heappop(queue)
        if rank > best[number]:
            continue  # a cheaper way there has been followed since
        goal = ends[number]
        if goal in goals and goal not in found:
            assert goal is not None
            found[goal] = Way.of(_steps(came, number))
        for step in steps[number]:
            after = step[0]
            reached = rank + ranks[step[1]]
            if reached > bound:
                continue
            known = best.get(after)
            if known is None or reached < known:
                best[after], came[after] = reached, (number, step)
                heapq.heappush(queue, (reached, met.setdefault(after, len(met)), after))
    return found


def _steps(came: Mapping[int, tuple[int, Step]], number: int) -> list[Step]:
    """The steps to a state, in order."""
    steps: list[Step] = []
    while number in came:
        number, step = came[number]
        steps.append(step)
    return steps[::-1]


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
