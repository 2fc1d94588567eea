"""Choosing one label per variable so that the sum of pairwise costs is smallest.

Where the residual rests when a stage runs is one choice for all boundaries that touch the stage, so
the boundaries of a stack are planned together. The variables are few (one per stage in its
context) and hang together loosely, so exact variable elimination is cheap; see Dechter,
"Bucket elimination", 1999.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from operator import itemgetter
from typing import Generic, TypeVar

V = TypeVar("V", bound=Hashable)
L = TypeVar("L", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Factor(Generic[V, L]):
    """A cost for some of the combinations of its variables' labels; the others are impossible."""

    variables: tuple[V, ...]
    costs: Mapping[tuple[L, ...], int]


MOST_COMBINATIONS = 500_000
"""Combinations of labels that are tried at once before a problem is refused."""


class TooEntangledError(Exception):
    """A problem whose variables hang together too closely to be solved exactly."""


def minimise(
    domains: Mapping[V, Sequence[L]], factors: Sequence[Factor[V, L]]
) -> dict[V, L] | None:
    """The assignment whose costs add up to the least, or None where every one is impossible.

    Among equals the labels that come first in their domains win. Raises TooEntangledError.
    """
    remaining = list(factors)
    order_of_elimination: list[tuple[V, Factor[V, L], dict[tuple[L, ...], L]]] = []
    left = list(domains)
    while left:
        degrees = _degrees(remaining)
        variable = min(left, key=lambda v: degrees[v])  # of equals the first one
        left.remove(variable)
        touching = [factor for factor in remaining if variable in factor.variables]
        remaining = [factor for factor in remaining if variable not in factor.variables]
        merged, choice = _eliminate(variable, domains, touching)
        if not merged.costs:
            return None
        order_of_elimination.append((variable, merged, choice))
        remaining.append(merged)
    assignment: dict[V, L] = {}
    for variable, merged, choice in reversed(order_of_elimination):
        assignment[variable] = choice[tuple(assignment[v] for v in merged.variables)]
    return assignment


def _degrees(factors: Sequence[Factor[V, L]]) -> Mapping[V, int]:
    """How many variables each one shares factors with; 0 for those without a factor."""
    near: defaultdict[V, set[V]] = defaultdict(set)
    for factor in factors:
        for variable in factor.variables:
            near[variable].update(factor.variables)
    return Counter({variable: len(others) for variable, others in near.items()})


def _eliminate(
    variable: V,
    domains: Mapping[V, Sequence[L]],
    touching: Sequence[Factor[V, L]],
) -> tuple[Factor[V, L], dict[tuple[L, ...], L]]:
    """Sums the factors that touch a variable and keeps its best label for every context."""
    context = tuple(dict.fromkeys(v for f in touching for v in f.variables if v != variable))
    work = prod(len(domains[v]) for v in (*context, variable))
    if work > MOST_COMBINATIONS:
        raise TooEntangledError(f"{len(context) + 1} choices hang together in {work} combinations")
    scope = (*context, variable)
    known = [
        (factor.costs, _picker([scope.index(v) for v in factor.variables])) for factor in touching
    ]
    costs: dict[tuple[L, ...], int] = {}
    choice: dict[tuple[L, ...], L] = {}
    for labels in product(*(domains[v] for v in context)):
        for label in domains[variable]:
            total = _total(known, (*labels, label))
            if total is not None and (labels not in costs or total < costs[labels]):
                costs[labels], choice[labels] = total, label
    return Factor(context, costs), choice


def _picker(places: Sequence[int]) -> Callable[[tuple[L, ...]], tuple[L, ...]]:
    """What takes the labels at some places out of all."""
    if len(places) == 1:
        return itemgetter(slice(places[0], places[0] + 1))  # a tuple as well
    return itemgetter(*places)


def _total(
    factors: Sequence[tuple[Mapping[tuple[L, ...], int], Callable[[tuple[L, ...]], tuple[L, ...]]]],
    labels: tuple[L, ...],
) -> int | None:
    """What ``labels`` cost, of which factors say which are theirs; None for impossible ones."""
    total = 0
    for costs, own in factors:
        cost = costs.get(own(labels))
        if cost is None:
            return None
        total += cost
    return total
