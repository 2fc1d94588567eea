"""The ways across an edge of which one is the cheapest, whatever the sizes of the mesh.

Where collectives come first, a way that costs at most as much as another one on every mesh leaves
that one nothing to win. Only the others are kept, mostly a single one for each goal, and meshes
that are cut alike share them: what is left to a mesh is to look which of them it has cheapest.

What a way sends and touches is a polynomial in the sizes, with no negative coefficient once each is
written as two and what it has beyond: on a mesh of `_sizes`, powers of a base that no coefficient
reaches, a cost is one number with a coefficient in each of its digits (Kronecker's substitution).
Ways are followed as in Martins, "On a multicriteria shortest path problem", 1984.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache, partial
from heapq import heappop, heappush
from math import gcd

from boundaryc.plan.cost import Cost, price
from boundaryc.plan.fewest import Fewest, fewest
from boundaryc.plan.path import Way
from boundaryc.plan.state import EdgeFacts, Widths
from boundaryc.plan.transitions import Goal, Priced, Step

_DIGIT = 128
"""Bits of a coefficient, of which the highest is never set: see `_guards`."""


class Candidates:
    """Finds these ways under facts that differ in the sizes of meshes alone."""

    def __init__(self, form: EdgeFacts, few: Fewest) -> None:
        self.transitions = few.transitions
        self._few = few
        self._costs = Priced(few.transitions, partial(price, facts=form))
        self._guards = _guards(len(form.sizes))
        self._known: dict[tuple[int, frozenset[Goal], int], Mapping[Goal, tuple[Way, ...]]] = {}

    def __call__(
        self, first: int, goals: frozenset[Goal], scatter: int
    ) -> Mapping[Goal, tuple[Way, ...]]:
        """The ways from the state ``first`` to each of ``goals`` that can be reached.

        Sums are scattered over the atoms of ``scatter`` alone. Of ways that cost the same on every
        mesh only the one is here that is met first.
        """
        key = (first, goals, scatter)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._found(first, goals, scatter)
        return known

    def _found(
        self, first: int, goals: frozenset[Goal], scatter: int
    ) -> Mapping[Goal, tuple[Way, ...]]:
        leading, ends = self._few(first, goals, scatter), self.transitions.goals
        costs, met, count = self._costs, {first: 0}, 0
        best: dict[object, list[Cost]] = {}  # of states, and of goals
        found: dict[Goal, list[Way]] = {}
        queue: list[tuple[Cost, int, int, int, tuple[Step, ...]]] = [(Cost(), 0, 0, first, ())]
        while queue:
            cost, _, _, number, way = heappop(queue)
            if not self._added(best, number, cost):
                continue
            goal = ends[number]
            if goal in goals and self._added(best, goal, cost):
                assert goal is not None
                found.setdefault(goal, []).append(Way.of(way))
            for step in leading[number]:
                after, reached = step.after, cost.plus(costs[step.price])
                if not self._beaten(best.get(after, ()), reached):
                    count += 1
                    place = met.setdefault(after, len(met))
                    heappush(queue, (reached, place, count, after, (*way, step)))
        return {goal: tuple(ways) for goal, ways in found.items()}

    def _added(self, best: dict[object, list[Cost]], key: object, cost: Cost) -> bool:
        """Whether a cost is not beaten yet at a state or goal; then it is noted there."""
        known = best.setdefault(key, [])
        if self._beaten(known, cost):
            return False
        known.append(cost)
        return True

    def _beaten(self, known: list[Cost] | tuple[()], cost: Cost) -> bool:
        return any(at_most(one, cost, self._guards) for one in known)


def at_most(one: Cost, other: Cost, guards: int) -> bool:
    """Whether ``one`` ranks as ``other`` or before it on every mesh: sufficient, not necessary."""
    if one.collectives != other.collectives:
        return one.collectives < other.collectives
    for mine, theirs in ((one.wire, other.wire), (one.device, other.device)):
        if mine == theirs:
            continue
        if ((theirs | guards) - mine) & guards != guards:  # some coefficient is larger
            return False
        if mine & _CONSTANT != theirs & _CONSTANT:
            return True  # less on every mesh; else they may be equal where sizes are two
    return one[3:] <= other[3:]


_CONSTANT = (1 << _DIGIT) - 1
"""The digit of the coefficient that no size multiplies."""


@cache
def _guards(atoms: int) -> int:
    """The highest bit of every digit.

    What is subtracted from a digit with that bit set borrows it, and no more, where it is larger
    than the rest.
    """
    return sum(1 << (_DIGIT * digit + _DIGIT - 1) for digit in range(1 << atoms))


@cache
def _sizes(twos: tuple[bool, ...]) -> tuple[int, ...]:
    """Sizes of which each product has its terms in digits of their own; 2 for those that are.

    The digits of a number stand for the sets of atoms, by their masks.
    """
    return tuple(2 + (0 if two else 1 << (_DIGIT << atom)) for atom, two in enumerate(twos))


@lru_cache(maxsize=1024)
def _candidates(form: EdgeFacts, few: Fewest) -> Candidates:
    return Candidates(form, few)


def candidates(facts: EdgeFacts) -> Candidates:
    """The candidates under these facts, shared by all that rank ways alike.

    Bytes rank as they do where a row has any multiple of them.
    """
    unit = gcd(*facts.widths, facts.quantized_sum) or 1
    pairs = tuple(bool(facts.quantized_sum) and size == 2 for size in facts.sizes)
    form = facts._replace(
        sizes=_sizes(pairs),  # a sum that travels quantised counts other collectives over a pair
        widths=Widths(*(width // unit for width in facts.widths)),
        quantized_sum=facts.quantized_sum // unit,
        given_on=0,
    )
    return _candidates(form, fewest(facts))
