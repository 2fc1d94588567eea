"""Plans every boundary of a stack on every topology, for every batch the stack can meet.

For each column (kind of batch) and policy the boundaries are planned together, see ``layout``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import combinations
from typing import Literal

from boundaryc.graph.build import Edge, build_graph
from boundaryc.graph.policy import POLICIES
from boundaryc.language.model import Stack
from boundaryc.operations import Facts, Operation, hyper_connections, registry
from boundaryc.plan.approve import approve
from boundaryc.plan.collector import uncollected
from boundaryc.plan.cost import Cost, Order
from boundaryc.plan.facts import edge_facts
from boundaryc.plan.joint import TooEntangledError
from boundaryc.plan.layout import Batchwise, Problem, layout, reason
from boundaryc.plan.result import Boundary, Column, PlanError, StackPlan, Table, TopologyPlan
from boundaryc.plan.search import Moves, fit
from boundaryc.plan.state import EdgeFacts
from boundaryc.topology import Mesh, Sizes, build_mesh
from boundaryc.topology.contracts import CONTEXT_PARALLEL, Regime, inapplicable, regime


@dataclass(frozen=True)
class _Place:
    """One kind of batch on one topology under one policy, with the facts of all boundaries."""

    problem: Problem
    mesh: Mesh
    column: Column
    policy: str

    @cached_property
    def demands(self) -> Regime:
        """What the variant asks of the boundaries."""
        return regime(self.column.variant, self.mesh, self.problem.stack.entry)

    @cached_property
    def facts(self) -> Mapping[Edge, EdgeFacts]:
        """What the planner may know of every edge, whatever the order of costs."""
        problem = self.problem
        return {
            edge: edge_facts(
                *(problem.stack, problem.operations, self.mesh, self.demands),
                *(self.column, self.policy, edge),
                variable_scatter=problem.spec.variable_scatter,
            )
            for edge in problem.graph.edges()
        }


def declared_operations(stack: Stack) -> Mapping[str, Operation]:
    """The registry of a stack: built-ins and what its file declares."""
    built_in: tuple[Operation, ...] = ()
    if (many := stack.residual) is not None and many.streams > 1:
        built_in = hyper_connections(many.streams, many.iterations, many.eps, stack.norm.eps)
    own = (
        Operation(
            declared.name,
            declared.role,
            Facts(
                **dict.fromkeys(declared.facts, True),
                read_local=declared.read_local,
                read_whole=declared.read_whole,
                state=declared.state,
                streams=declared.streams,
            ),
            declared.params,
            declared.call,
        )
        for declared in stack.operations
    )
    return registry((*built_in, *own))


def plan_stack(stack: Stack) -> StackPlan:
    """Plans a stack on all its topologies, and has every plan checked on provenance.

    Raises PlanError or TopologyError for a stack that cannot be planned.
    """
    graph, operations = build_graph(stack), declared_operations(stack)
    moves: dict[EdgeFacts, Moves] = {}
    with uncollected():
        planned = tuple(
            _plan_topology(Problem(stack, graph, operations, spec, moves, {}))
            for spec in stack.topologies
        )
    return approve(StackPlan(stack, graph, operations, planned))


MANY_ROWS = 8192
"""Rows of all groups together for which the plans of large batches are made."""


def _plan_topology(problem: Problem) -> TopologyPlan:
    spec = problem.spec
    mesh = build_mesh(
        Sizes(spec.tp, spec.attn_dp, spec.attn_cp, spec.attn_tp, spec.dense_tp, spec.moe.dp)
    )
    reasons = {variant: inapplicable(variant, spec, mesh) for variant in problem.stack.variants}
    columns: list[Column] = []
    tables: dict[str, list[Table]] = {policy: [] for policy in POLICIES}
    few_rows: dict[str, int] = {}
    for kind in _kinds(problem.stack, mesh, reasons):
        places = [_Place(problem, mesh, kind, policy) for policy in POLICIES]
        small = {place.policy: _plan_column(place, Order()) for place in places}
        large = {place.policy: _large(place, small[place.policy]) for place in places}
        if small == large:
            columns.append(kind)
            _append(tables, small)
            continue
        columns += (replace(kind, few=True), replace(kind, few=False))
        _append(tables, small)
        _append(tables, large)
        few_rows.setdefault(kind.variant, _crossing(problem, mesh, small, large))
    planned = {policy: tuple(found) for policy, found in tables.items()}
    multiples = _row_multiples(mesh, columns, planned)
    skipped = tuple((variant, why) for variant, why in reasons.items() if why)
    return TopologyPlan(spec, mesh, tuple(columns), multiples, few_rows, planned, skipped)


def _append(tables: dict[str, list[Table]], found: Mapping[str, Table]) -> None:
    for policy, table in found.items():
        tables[policy].append(table)


def _kinds(stack: Stack, mesh: Mesh, reasons: Mapping[str, str | None]) -> Iterator[Column]:
    """The kinds of batch of all variants that nothing speaks against."""
    for variant in (name for name, why in reasons.items() if why is None):
        for entry, _ in regime(variant, mesh, stack.entry).entries:
            for mode in _modes(stack, variant):
                for even in _evenness(mesh):
                    yield Column(variant, even, entry, mode=mode)


def _modes(stack: Stack, variant: str) -> tuple[Literal["prefill", "decode"] | None, ...]:
    """The modes that are planned apart: only a sum that may travel quantised asks for them.

    Rows are cut over context-parallel ranks in a prefill alone.
    """
    if all(stage.quantized_sum is None for stage in stack.stages):
        return (None,)
    return ("prefill",) if variant == CONTEXT_PARALLEL else ("prefill", "decode")


def _large(place: _Place, small: Table) -> Table:
    """The plans for many rows; those for few where they send no more than bytes-first plans."""
    problem, mesh = place.problem, place.mesh
    order = Order(problem.spec.alpha * mesh.size(mesh.every) // MANY_ROWS)
    large = _plan_column(place, order)
    return large if _total(problem, large).wire < _total(problem, small).wire else small


REPEATED = 1000
"""How much more a boundary counts here that the stack meets again and again, whatever its depth."""


def _total(problem: Problem, table: Table) -> Cost:
    costs = (
        boundary.path.cost.times(REPEATED if problem.graph.repeats(edge) else 1)
        for edge, boundary in table.items()
    )
    return reduce(Cost.plus, costs, Cost())


def _crossing(
    problem: Problem, mesh: Mesh, small: Mapping[str, Table], large: Mapping[str, Table]
) -> int:
    """Rows at which the plans for many rows become the cheaper ones, for the stack's own policy."""
    policy = problem.stack.policy_auto
    if small[policy] == large[policy]:
        policy = next(name for name in POLICIES if small[name] != large[name])
    few, many = _total(problem, small[policy]), _total(problem, large[policy])
    extra, saved = many.collectives - few.collectives, few.wire - many.wire
    return max(0, problem.spec.alpha * extra * mesh.size(mesh.every) // saved)


def _row_multiples(
    mesh: Mesh, columns: Iterable[Column], tables: Mapping[str, tuple[Table, ...]]
) -> dict[str, int]:
    """Per variant: the ranks that cut the rows of a group in some plan, else one."""
    inner = mesh.mask("attn_cp") | mesh.mask("attn_tp")
    columns = tuple(columns)
    multiples = dict.fromkeys((column.variant for column in columns), 1)
    for planned in tables.values():
        for column, table in zip(columns, planned, strict=True):
            if any(boundary.touched() & inner for boundary in table.values()):
                multiples[column.variant] = mesh.size(inner)
    return multiples


def _evenness(mesh: Mesh) -> Iterator[tuple[str, ...]]:
    """Which axes a batch may cut evenly: every combination, all of them first."""
    axes = [axis for axis in ("attn_dp", "attn_cp", "attn_tp") if mesh.mask(axis)]
    for length in range(len(axes), -1, -1):
        yield from combinations(axes, length)


def _too_irregular(why: TooEntangledError) -> str:
    return (
        "the stages follow each other in too many different ways to be planned together: "
        f"{why}; use fewer kinds of stage or a more regular pattern of layers"
    )


def _plan_column(place: _Place, order: Order) -> Table:
    problem, column, facts = place.problem, place.column, place.facts
    demands = place.demands
    batch = Batchwise(place.mesh, demands, dict(demands.entries)[column.entry], order)
    try:
        found = layout(problem, batch, facts)
    except TooEntangledError as size:
        raise PlanError(problem.graph.last, column, place.policy, _too_irregular(size)) from None
    if found is None or isinstance(found, Edge):
        edge = found or problem.graph.last
        why = reason(problem, batch, edge, found, facts[edge])
        raise PlanError(edge, column, place.policy, why)
    return {
        edge: Boundary(edge, start, goal, facts[edge], fit(path, facts[edge]))
        for edge, (start, goal, path) in found.items()
    }
