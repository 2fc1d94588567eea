"""Choosing one label per variable so that the sum of pairwise costs is smallest.

Where the residual rests when a stage runs is one choice for all boundaries that touch the stage, so
the boundaries of a stack are planned together. The variables are few (one per stage in its
context) and hang together loosely, so exact variable elimination is cheap; see Dechter,
"Bucket elimination", 1999.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
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
    for variable in _order(tuple(domains), tuple([factor.variables for factor in factors])):
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


@lru_cache(maxsize=1024)
def _order(variables: tuple[V, ...], scopes: tuple[tuple[V, ...], ...]) -> tuple[V, ...]:
    """The order in which variables are eliminated from factors of these ``scopes``.

    One that shares factors with the fewest is next, and of equals the first. It looks at no costs:
    it is the same for all kinds of batch and sizes.
    """
    remaining, left = list(scopes), list(variables)
    found: list[V] = []
    while left:
        degrees = _degrees(remaining)
        variable = min(left, key=lambda v: degrees[v])
        left.remove(variable)
        found.append(variable)
        touching = [scope for scope in remaining if variable in scope]
        remaining = [scope for scope in remaining if variable not in scope]
        remaining.append(_context(variable, touching))
    return tuple(found)


def _degrees(scopes: Iterable[tuple[V, ...]]) -> Mapping[V, int]:
    """How many variables each one shares factors with; 0 for those without a factor."""
    near: defaultdict[V, set[V]] = defaultdict(set)
    for scope in scopes:
        for variable in scope:
            near[variable].update(scope)
    return Counter({variable: len(others) for variable, others in near.items()})


def _context(variable: V, touching: Iterable[tuple[V, ...]]) -> tuple[V, ...]:
    """What the best label of a variable depends on, by the scopes of the factors that have it."""
    return tuple(dict.fromkeys(v for scope in touching for v in scope if v != variable))


def _eliminate(
    variable: V,
    domains: Mapping[V, Sequence[L]],
    touching: Sequence[Factor[V, L]],
) -> tuple[Factor[V, L], dict[tuple[L, ...], L]]:
    """Sums the factors that touch a variable and keeps its best label for every context."""
    context = _context(variable, [factor.variables for factor in touching])
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
        least = -1
        for label in domains[variable]:
            every, total = (*labels, label), 0
            for given, own in known:
                cost = given.get(own(every))
                if cost is None:  # impossible
                    break
                total += cost
            else:
                if total < least or least < 0:
                    costs[labels], choice[labels], least = total, label, total
    return Factor(context, costs), choice


def _picker(places: Sequence[int]) -> Callable[[tuple[L, ...]], tuple[L, ...]]:
    """What takes the labels at some places out of all."""
    if len(places) == 1:
        return itemgetter(slice(places[0], places[0] + 1))  # a tuple as well
    return itemgetter(*places)
