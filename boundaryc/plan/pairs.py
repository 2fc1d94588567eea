"""The cheapest paths of an edge between all ways in which its two ends may be.

They look at nothing but the facts of the edge and these ways: all stacks, topologies and kinds of
batch that have such an edge share them, whatever its stages are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from boundaryc.plan.cost import Order, again
from boundaryc.plan.path import Path, Way
from boundaryc.plan.search import moves
from boundaryc.plan.state import EdgeFacts, State
from boundaryc.plan.task import Label
from boundaryc.plan.transitions import Goal

Starts = tuple[tuple[Label, State], ...]
Goals = tuple[tuple[Label, Goal], ...]
Pair = tuple[Label, ...]


class Pairs:
    """The ways across one edge in one order of costs, by what its sum may be scattered over."""

    def __init__(self, facts: EdgeFacts, starts: Starts, goals: Goals, order: Order) -> None:
        self.starts, self.goals, self.order = starts, goals, order
        self._moves = moves(facts)
        self._ways: dict[int, Mapping[Pair, Way]] = {}
        self._ranks: dict[tuple[int, bool], Mapping[Pair, int]] = {}
        self._paths: dict[Way, Path] = {}

    def ways(self, scatter: int) -> Mapping[Pair, Way]:
        """The way for every pair of labels between which there is one."""
        known = self._ways.get(scatter)
        if known is None:
            known = self._ways[scatter] = self._found(scatter)
        return known

    def path(self, scatter: int, pair: Pair) -> Path:
        """The way for a pair at what it costs."""
        way = self.ways(scatter)[pair]
        known = self._paths.get(way)
        if known is None:
            known = self._paths[way] = self._moves.path(way)
        return known

    def ranks(self, scatter: int, *, repeats: bool) -> Mapping[Pair, int]:
        """The ranks of their costs; ``repeats``: these are paid again and again."""
        known = self._ranks.get((scatter, repeats))
        if known is None:
            prices = self._moves.ranks(self.order)
            ranks = {pair: way.rank(prices) for pair, way in self.ways(scatter).items()}
            known = {pair: again(rank) for pair, rank in ranks.items()} if repeats else ranks
            self._ranks[scatter, repeats] = known
        return known

    def _found(self, scatter: int) -> Mapping[Pair, Way]:
        asked = frozenset(goal for _, goal in self.goals)
        pairs: dict[Pair, Way] = {}
        for source, start in self.starts:
            found = self._moves.cheapest(start, asked, self.order, scatter)
            for target, goal in self.goals:
                if goal in found:
                    pairs[source, target] = found[goal]
        return pairs


@lru_cache(maxsize=8192)
def pairs(facts: EdgeFacts, starts: Starts, goals: Goals, order: Order) -> Pairs:
    """The paths of an edge, shared by all that are alike."""
    return Pairs(facts, starts, goals, order)
