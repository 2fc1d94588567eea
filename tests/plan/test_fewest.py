"""What is left out of a search changes nothing that it finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from operator import mul

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from boundaryc.language.model import Stack
from boundaryc.plan import fewest as fewest_module
from boundaryc.plan.candidates import _guards, _sizes, at_most, candidates
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.cost import Cost, Order, collectives, price
from boundaryc.plan.fewest import Fewest
from boundaryc.plan.path import Path
from boundaryc.plan.result import Boundary
from boundaryc.plan.search import followed, moves, search
from boundaryc.plan.state import EdgeFacts, Phase, State
from boundaryc.plan.tables import Planner, planner
from boundaryc.plan.transitions import Goal, _transitions
from tests.plan.stacks import stack, topology

ALPHAS = (1, 300, 1 << 12)
COSTS = st.lists(st.integers(0, 2), min_size=11, max_size=11)


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


def everywhere(start: State, goal: Goal, facts: EdgeFacts, order: Order) -> Path:
    """The cheapest path, looked for among all ways."""
    known = moves(facts)
    first, every = known.transitions.number(start), known.every(facts.scatter)
    return known.path(followed(first, frozenset({goal}), known, order, every)[goal])


SIZES = ((2, 2, 2), (2, 3, 2), (64, 2, 2), (2, 64, 3), (3, 2, 64), (7, 16, 5))


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_among_the_candidates_is_a_cheapest_way_on_every_mesh(
    boundaries: list[Boundary], sizes: tuple[int, ...], joins: bool
) -> None:
    for one in boundaries:
        facts = one.facts._replace(sizes=sizes[: len(one.facts.sizes)], joins_sum=joins)
        every = everywhere(one.start, one.goal, facts, Order())
        found = search(one.start, frozenset({one.goal}), moves(facts), Order(), facts.scatter)

        assert moves(facts).path(found[one.goal]).cost == every.cost


def test_sizes_choose_among_candidates(boundaries: list[Boundary]) -> None:
    """Rows whole on both sides and a residual cut over the outer atom: which rows move depends."""
    some = next(one for one in boundaries if len(one.facts.sizes) == 2)
    start = State(Phase.CONTRIBUTION, rows=0, owes=2, residual=1)
    goal = Goal(rows=0, residual=1)
    taken = set()
    for sizes in product((2, 3, 64), repeat=2):
        facts = some.facts._replace(sizes=sizes, even=3, scatter=2, joins_sum=False)
        found = search(start, frozenset({goal}), moves(facts), Order(), facts.scatter)[goal]
        taken.add(found.ops)

        assert moves(facts).path(found).cost == everywhere(start, goal, facts, Order()).cost
    assert len(taken) == 2


def test_ways_keep_to_the_numbers_of_their_own_moves(boundaries: list[Boundary]) -> None:
    """States and prices are numbered as they are met: again, once they have been forgotten."""
    for one in boundaries:
        goals = frozenset({one.goal})
        before = moves(one.facts)
        cost = before.path(before.cheapest(one.start, goals, Order(), one.facts.scatter)[one.goal])
        moves.cache_clear()
        _transitions.cache_clear()
        after = moves(one.facts)
        found = after.cheapest(one.start, goals, Order(), one.facts.scatter)

        assert after.path(found[one.goal]) == cost


def test_candidates_are_few_and_shared_by_meshes_and_widths(boundaries: list[Boundary]) -> None:
    for one in boundaries:
        sizes = tuple(5 * size for size in one.facts.sizes)
        widths = one.facts.widths._make(3 * width for width in one.facts.widths)
        known = moves(one.facts)
        first = known.transitions.number(one.start)
        found = known.candidates(first, frozenset({one.goal}), one.facts.scatter)

        assert candidates(one.facts._replace(sizes=sizes, widths=widths)) is known.candidates
        assert 1 <= len(found[one.goal]) <= 2


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.lists(COSTS, min_size=2, max_size=2), st.lists(st.integers(2, 9), min_size=2, max_size=2))
def test_what_costs_at_most_as_much_does_so_whatever_the_sizes(
    both: list[list[int]], sizes: list[int]
) -> None:
    """Of costs as coefficients: of one, of each size beyond two, and of both of these."""
    one, other = (_cost(coefficients, _beyond(_sizes((False, False)))) for coefficients in both)
    here, there = (_cost(coefficients, _beyond(sizes)) for coefficients in both)

    assert not at_most(one, other, _guards(2)) or here <= there


def _beyond(sizes: Sequence[int]) -> tuple[int, int]:
    first, second = sizes
    return first - 2, second - 2


def _cost(coefficients: Sequence[int], beyond: tuple[int, int]) -> Cost:
    first, second = beyond
    terms = (1, first, second, first * second)
    wire, device = (sum(map(mul, terms, coefficients[place : place + 4])) for place in (0, 4))
    return Cost(0, wire, device, *coefficients[8:])


def test_what_is_left_at_least_leaves_no_way_out(
    boundaries: list[Boundary], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ways are the same where nothing is known of what is left."""
    nothing = type("_Nothing", (dict,), {"__init__": lambda *_: None, "__missing__": lambda *_: 0})
    for one, joins in product(boundaries, (False, True)):
        facts = one.facts._replace(joins_sum=joins)
        form, every = facts._replace(widths=fewest_module._ONES), moves(facts).transitions
        asked = (every.number(one.start), frozenset({one.goal}), facts.scatter)
        found = Fewest(form, every)(*asked)
        with monkeypatch.context() as patched:
            patched.setattr(fewest_module, "_Left", nothing)
            assert Fewest(form, every)(*asked) == found


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
        found = moves(one.facts).cheapest(one.start, goals, order, one.facts.scatter)
        path = moves(one.facts).path(found[one.goal])

        assert order.rank(path.cost) == order.rank(every.cost)


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
