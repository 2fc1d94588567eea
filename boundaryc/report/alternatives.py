"""What else a planned boundary could have sent, and why it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial

from boundaryc.plan import ops
from boundaryc.plan.cost import Order
from boundaryc.plan.fewest import Ways
from boundaryc.plan.path import Path
from boundaryc.plan.result import Boundary
from boundaryc.plan.search import Moves, followed, relaxed
from boundaryc.plan.state import EdgeFacts, State
from boundaryc.plan.transitions import Goal, Step
from boundaryc.topology import Mesh

Refuses = Callable[[ops.Operation], bool]


class _Without(Moves):
    """The moves of an edge without some operations."""

    def __init__(self, facts: EdgeFacts, refuses: Refuses) -> None:
        super().__init__(facts)
        self._refuses = refuses

    def every(self, scatter: int) -> Ways:
        """Every legal operation of a state that is not refused."""
        return _Kept(super().every(scatter), self._refuses)


class _Kept(dict[int, tuple[Step, ...]]):
    """The steps of every state that are not refused, found as they are asked for."""

    def __init__(self, every: Ways, refuses: Refuses) -> None:
        super().__init__()
        self._every, self._refuses = every, refuses

    def __missing__(self, number: int) -> tuple[Step, ...]:
        kept = tuple(step for step in self._every[number] if not self._refuses(step.op))
        self[number] = kept
        return kept


def _cheapest(
    boundary: Boundary, facts: EdgeFacts, order: Order, refuses: Refuses
) -> Boundary | None:
    """The boundary on the cheapest path without what is refused; None where there is none."""
    path = _path(boundary.start, boundary.goal, facts, order, refuses)
    if path is None:
        return None
    return Boundary(boundary.edge, boundary.start, boundary.goal, facts, path)


@lru_cache(maxsize=4096)  # many boundaries, variants and policies of a stack ask the same
def _path(
    start: State, goal: Goal, facts: EdgeFacts, order: Order, refuses: Refuses
) -> Path | None:
    moves = _Without(facts, refuses)
    first, every = moves.transitions.number(start), moves.every(facts.scatter)
    found = followed(first, frozenset({goal}), moves, order, every)
    return moves.path(found[goal]) if found else None


def _sends(op: ops.Operation) -> tuple[object, ...] | None:
    """What tells a collective from others, whatever its sizes; None for what sends nothing."""
    match op:
        case ops.AllReduce(axes) | ops.QuantizedAllReduce(axes) | ops.ReduceScatter(axes):
            return (type(op), axes)
        case ops.AllGather(axes) | ops.ResidualGather(axes):
            return (type(op), axes)
        case ops.GatherSum(gather, owed):
            return (type(op), gather, owed)
        case _:
            return None


def next_best(boundary: Boundary, order: Order) -> Boundary | None:
    """The cheapest way between the same layouts that lacks one of the collectives of the plan."""
    found = []
    for sent in {_sends(op): None for op in boundary.path.ops}:
        if sent is not None:
            other = _cheapest(boundary, boundary.facts, order, _only(sent))
            found += [other] if other else []
    return min(found, key=lambda one: order.rank(one.path.cost), default=None)


@cache
def _only(sent: tuple[object, ...]) -> Refuses:
    """What refuses one collective; the same object for the same one."""
    return partial(_is, sent)


def _is(sent: tuple[object, ...], op: ops.Operation) -> bool:
    return _sends(op) == sent


@dataclass(frozen=True, slots=True)
class NoScatter:
    """Why a sum does not end in a reduce-scatter.

    ``instead`` is the boundary with one: legal where ``unmet`` is empty, else what would be planned
    if that single requirement were not. ``policy``: it is the policy that stands in the way.
    """

    unmet: str
    instead: Boundary | None
    policy: bool = False


def no_scatter(boundary: Boundary, order: Order, mesh: Mesh, policy: str) -> NoScatter | None:
    """Why the sum of a boundary is not scattered; None where there is none or where it is."""
    if not boundary.start.owes or any(_scatters(op) for op in boundary.path.ops):
        return None
    facts = boundary.facts
    legal = _cheapest(boundary, facts, order, _sums_whole)
    if legal is not None:
        return NoScatter("", legal)
    looser = facts._replace(scatter=facts.every)
    freed = _cheapest(boundary, looser, order, _sums_whole)
    if freed is not None:
        return NoScatter(*_forbidden(boundary, mesh, policy, freed))
    for text, looser in relaxed(facts._replace(scatter=facts.every)):
        other = _cheapest(boundary, looser, order, _sums_whole)
        if other is not None:
            return NoScatter(text, other)
    return NoScatter("its rows would not arrive in the order in which they are needed", None)


def _forbidden(
    boundary: Boundary, mesh: Mesh, policy: str, freed: Boundary
) -> tuple[str, Boundary, bool]:
    uneven = boundary.start.owes & ~boundary.facts.even
    if policy == "ar":
        return "policy ar permits no reduce-scatter of the sum of an FFN", freed, True
    if uneven and policy == "rs":
        cut = mesh.words(uneven)
        why = f"policy rs permits equal sizes only, and the rows are cut unevenly over {cut}"
        return why, freed, True
    why = "`variable_scatter: false` leaves equal sizes only, and this batch or policy has others"
    return why, freed, False


def _scatters(op: ops.Operation) -> bool:
    return isinstance(op, ops.ReduceScatter)


def _sums_whole(op: ops.Operation) -> bool:
    return isinstance(op, ops.AllReduce | ops.GatherSum | ops.QuantizedAllReduce)
