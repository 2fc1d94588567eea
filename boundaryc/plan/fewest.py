"""The ways across an edge with the fewest collectives: a small part of all, whatever the sizes.

Where collectives come first only these ways can be the cheapest. How many collectives an operation
takes looks at no width, and at sizes only to tell a pair from a larger group, so meshes that are
cut alike share what is found here. Which of the ways is the cheapest does depend on sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

from boundaryc.plan.cost import collectives
from boundaryc.plan.state import NO_RESIDUAL, EdgeFacts, Phase, Widths
from boundaryc.plan.transitions import Goal, Priced, Step, Transitions, transitions

Ways = Mapping[int, tuple[Step, ...]]
"""The steps to follow from every state, by its number."""


class Fewest:
    """Finds these ways under facts that agree in what collectives are counted by."""

    def __init__(self, form: EdgeFacts, every: Transitions) -> None:
        self.transitions = every
        self._counts = Priced(every, partial(collectives, facts=form))
        self._known: dict[tuple[int, frozenset[Goal], int], Ways] = {}
        self._left: dict[tuple[int, int, int], _Left] = {}

    def __call__(self, first: int, goals: frozenset[Goal], scatter: int) -> Ways:
        """The steps on a way from the state ``first`` to one of ``goals`` with the fewest.

        Sums are scattered over the atoms of ``scatter`` alone.
        """
        key = (first, goals, scatter)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._found(first, goals, scatter)
        return known

    def _found(self, first: int, goals: frozenset[Goal], scatter: int) -> Ways:
        steps, ends = self.transitions.scattering(scatter), self.transitions.goals
        counts, least, left = self._counts, {first: 0}, self._ahead(goals)
        before: dict[int, list[tuple[int, int]]] = {first: []}
        met: dict[Goal, int] = {}
        arrived: list[int] = []
        # States by how many collectives a way through them has at least (A*).
        waiting: list[list[int]] = [[] for _ in range(left[first])]
        waiting.append([first])
        for fewest, states in enumerate(waiting):  # both grow meanwhile
            if len(met) == len(goals):
                break
            for number in states:
                count = fewest - left[number]
                if least[number] < count:
                    continue
                goal = ends[number]
                if goal in goals and met.setdefault(goal, count) == count:
                    arrived.append(number)
                for index, step in enumerate(steps[number]):
                    reached, after = count + counts[step[1]], step[0]
                    known = least.get(after)
                    if known is None or reached < known:
                        least[after], before[after] = reached, [(number, index)]
                        place = reached + left[after]
                        while place >= len(waiting):
                            waiting.append([])
                        waiting[place].append(after)
                    elif reached == known:
                        before[after].append((number, index))
        return {
            number: tuple([step for index, step in enumerate(steps[number]) if index in kept])
            for number, kept in _leading(first, arrived, before).items()
        }

    def _ahead(self, goals: frozenset[Goal]) -> _Left:
        owes = rows = residual = 0
        for goal in goals:
            owes, rows = owes | goal.owes, rows | goal.rows
            residual |= max(goal.residual, 0)  # there may be none
        known = self._left.get((owes, rows, residual))
        if known is None:
            known = _Left(self.transitions, owes, rows, residual)
            self._left[owes, rows, residual] = known
        return known


class _Left(dict[int, int]):
    """How many collectives are left at least from a state to some goal, found as it is asked for.

    A sum that is owed takes one, and so do rows of the value or of the residual that no goal has
    cut: ``owes``, ``rows`` and ``residual`` are what goals have. The same one may do for several,
    unless they move apart: an input and its residual do, and so do a sum and a residual that may
    not join it.
    """

    def __init__(self, transitions: Transitions, owes: int, rows: int, residual: int) -> None:
        super().__init__()
        self._states, self._joins = transitions.states, transitions.facts.joins_sum
        self._owes, self._rows, self._residual = owes, rows, residual

    def __missing__(self, number: int) -> int:
        state = self._states[number]
        owed = bool(state.owes & ~self._owes)
        cut = bool(state.rows & ~self._rows)
        rests = state.residual != NO_RESIDUAL and bool(state.residual & ~self._residual)
        if state.phase is Phase.INPUT:
            least = cut + rests
        elif self._joins:
            least = int(owed or cut or rests)
        else:
            least = max(owed + rests, cut)
        self[number] = least
        return least


def _leading(
    first: int, ends: list[int], before: Mapping[int, list[tuple[int, int]]]
) -> dict[int, set[int]]:
    """The indexes of the steps that lead to ``ends``, by the number of the state that they leave.

    ``before`` has the last steps of the ways with the fewest collectives to each state.
    """
    kept: dict[int, set[int]] = {number: set() for number in (first, *ends)}
    todo = list(kept)
    while todo:
        for number, index in before[todo.pop()]:
            if number not in kept:
                kept[number] = set()
                todo.append(number)
            kept[number].add(index)
    return kept


@lru_cache(maxsize=1024)
def _fewest(form: EdgeFacts, sizes: tuple[int, ...]) -> Fewest:
    return Fewest(form._replace(sizes=sizes), transitions(form))


def fewest(facts: EdgeFacts) -> Fewest:
    """The ways with the fewest collectives under these facts, shared by all that count alike."""
    twos = (2,) * len(facts.sizes)
    pairs = tuple(min(size, 3) for size in facts.sizes) if facts.quantized_sum else twos
    quantized = int(bool(facts.quantized_sum))
    form = facts._replace(sizes=twos, widths=_ONES, quantized_sum=quantized, given_on=0)
    return _fewest(form, pairs)


_ONES = Widths(1, 1, 1, 1)
