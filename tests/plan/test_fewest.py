"""What is left out of a search changes nothing that it finds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boundaryc.language.model import Stack
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.cost import Order, collectives, price
from boundaryc.plan.result import Boundary
from boundaryc.plan.search import Found, _followed, moves, paths, search
from boundaryc.plan.state import EdgeFacts, State
from boundaryc.plan.tables import Planner, planner
from boundaryc.plan.transitions import Goal
from tests.plan.stacks import stack, topology

ALPHAS = (1, 300, 1 << 12)


@pytest.fixture(scope="module")
def sample() -> Stack:
    return stack(topology(4, dp=2), topology(8, moe_dp=2))


@pytest.fixture(scope="module")
def boundaries(sample: Stack) -> list[Boundary]:
    """Some boundaries of these topologies and of one of three axes."""
    wide = stack(topology(12, dp=2, cp=2), variants=("sequence_parallel",))
    found = {
        (boundary.facts, boundary.start, boundary.goal): boundary
        for some in (sample, wide)
        for planned in plan_stack(some).topologies
        for table in planned.tables["rs+rsv"]
        for boundary in table.values()
    }
    return list(found.values())[::5]


def everywhere(start: State, goal: Goal, facts: EdgeFacts, order: Order) -> Found:
    """The cheapest path, looked for among all ways."""
    known = moves(facts)
    first, every = known.transitions.number(start), known.every(facts.scatter)
    return _followed(first, frozenset({goal}), known, order, every)[0]


def test_of_the_ways_with_the_fewest_collectives_the_same_one_is_found(
    boundaries: list[Boundary],
) -> None:
    for one in boundaries:
        every = everywhere(one.start, one.goal, one.facts, Order())
        goals = frozenset({one.goal})
        found = search(one.start, goals, moves(one.facts), Order(), one.facts.scatter)

        assert found == every


def test_collectives_are_counted_as_they_are_priced(boundaries: list[Boundary]) -> None:
    for one in boundaries:
        for op, state in moves(one.facts).transitions.priced:
            assert collectives(op, state, one.facts) == price(op, state, one.facts).collectives


@pytest.mark.parametrize("alpha", ALPHAS)
def test_for_many_rows_no_cheaper_way_is_overlooked(boundaries: list[Boundary], alpha: int) -> None:
    order = Order(alpha)
    for one in boundaries:
        every = everywhere(one.start, one.goal, one.facts, order)
        goals = frozenset({one.goal})
        found = paths(one.facts, one.start, goals, order, one.facts.scatter)

        assert order.rank(found[one.goal].cost) == order.rank(every[one.goal].cost)


def test_plans_for_many_rows_are_left_out_where_there_is_nothing_to_gain(
    sample: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all that is sent costs less than one more collective."""
    shortened = list(costs_of(sample))
    asked: list[object] = []
    monkeypatch.setattr(Planner, "_without_gain", lambda self, wire: asked.append(wire))
    whole = list(costs_of(sample))

    assert asked
    assert shortened == whole


def costs_of(some: Stack) -> Iterator[object]:
    """The kinds of batch that there are, and what is done at every boundary at what cost."""
    planner.cache_clear()
    for planned in plan_stack(some).topologies:
        yield planned.columns
        for found in planned.tables.values():
            for table in found:
                yield [boundary.path for boundary in table.values()]
