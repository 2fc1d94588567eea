"""The cheapest paths of an edge between all ways in which its two ends may be.

They look at nothing but the facts of the edge and these ways: all stacks, topologies and kinds of
batch that have such an edge share them, whatever its stages are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from boundaryc.plan.cost import Order
from boundaryc.plan.search import Path, paths
from boundaryc.plan.state import EdgeFacts, State
from boundaryc.plan.task import Label
from boundaryc.plan.transitions import Goal

Starts = tuple[tuple[Label, State], ...]
Goals = tuple[tuple[Label, Goal], ...]
Pair = tuple[Label, ...]


class Pairs:
    """The paths of one edge in one order of costs, by what its sum may be scattered over."""

    def __init__(self, facts: EdgeFacts, starts: Starts, goals: Goals, order: Order) -> None:
        self.facts, self.starts, self.goals, self.order = facts, starts, goals, order
        self._paths: dict[int, Mapping[Pair, Path]] = {}
        self._ranks: dict[tuple[int, bool], Mapping[Pair, int]] = {}

    def paths(self, scatter: int) -> Mapping[Pair, Path]:
        """The path for every pair of labels between which there is one."""
        known = self._paths.get(scatter)
        if known is None:
            known = self._paths[scatter] = self._found(scatter)
        return known

    def ranks(self, scatter: int, *, repeats: bool) -> Mapping[Pair, int]:
        """The ranks of their costs; ``repeats``: these are paid again and again."""
        known = self._ranks.get((scatter, repeats))
        if known is None:
            rank, found = self.order.rank, self.paths(scatter)
            known = {pair: rank(path.cost, repeats=repeats) for pair, path in found.items()}
            self._ranks[scatter, repeats] = known
        return known

    def _found(self, scatter: int) -> Mapping[Pair, Path]:
        asked = frozenset(goal for _, goal in self.goals)
        pairs: dict[Pair, Path] = {}
        for source, start in self.starts:
            found = paths(self.facts, start, asked, self.order, scatter)
            for target, goal in self.goals:
                if goal in found:
                    pairs[source, target] = found[goal]
        return pairs


@lru_cache(maxsize=8192)
def pairs(facts: EdgeFacts, starts: Starts, goals: Goals, order: Order) -> Pairs:
    """The paths of an edge, shared by all that are alike."""
    return Pairs(facts, starts, goals, order)
