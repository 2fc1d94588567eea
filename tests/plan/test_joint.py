"""Variable elimination against trying every assignment."""

from __future__ import annotations

import random
from itertools import product

import pytest

from boundaryc.plan.joint import Factor, TooEntangledError, minimise


def _brute(domains: dict[str, list[int]], factors: list[Factor[str, int]]) -> int | None:
    best = None
    for labels in product(*domains.values()):
        assigned = dict(zip(domains, labels, strict=True))
        parts = [f.costs.get(tuple(assigned[v] for v in f.variables)) for f in factors]
        if None in parts:
            continue
        total = sum(part for part in parts if part)
        best = total if best is None else min(best, total)
    return best


def _random_problem(
    draw: random.Random,
) -> tuple[dict[str, list[int]], list[Factor[str, int]]]:
    names = "abcde"[: draw.randint(2, 5)]
    domains = {name: list(range(draw.randint(1, 3))) for name in names}
    factors = []
    for _ in range(draw.randint(1, 7)):
        pair = (draw.choice(names), draw.choice(names))
        costs = {
            key: draw.randint(0, 30)
            for key in product(domains[pair[0]], domains[pair[1]])
            if draw.random() < 0.8
        }
        factors.append(Factor(pair, costs))
    return domains, factors


def test_elimination_finds_the_minimum() -> None:
    draw = random.Random(7)
    solved = 0
    for _ in range(300):
        domains, factors = _random_problem(draw)
        expected = _brute(domains, factors)
        found = minimise(domains, factors)
        if expected is None:
            assert found is None
            continue
        assert found is not None
        costs = [f.costs[tuple(found[v] for v in f.variables)] for f in factors]
        assert sum(costs) == expected
        solved += 1
    assert solved > 100


def test_first_label_wins_a_tie() -> None:
    costs = {(label,): 1 for label in (3, 1, 2)}
    found = minimise({"a": [3, 1, 2]}, [Factor(("a",), costs)])

    assert found == {"a": 3}


def test_what_hangs_together_too_closely_is_refused() -> None:
    """Ten variables that all depend on each other would take ten billion combinations."""
    domains = {name: list(range(10)) for name in "abcdefghij"}
    costs = dict.fromkeys(product(range(10), repeat=2), 1)
    factors = [Factor((a, b), costs) for a in domains for b in domains if a < b]

    with pytest.raises(TooEntangledError, match="10 choices"):
        minimise(domains, factors)
