"""Plans every boundary of a stack on every topology, for every batch the stack can meet.

For each column (kind of batch) and policy the boundaries are planned together, see ``layout``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from boundaryc.graph.build import Edge, build_graph
from boundaryc.graph.contracts import inapplicable, regime
from boundaryc.graph.policy import POLICIES
from boundaryc.language.model import Stack
from boundaryc.operations import Facts, Operation, registry
from boundaryc.plan.facts import edge_facts
from boundaryc.plan.layout import Paths, Problem, layout, reason
from boundaryc.plan.result import Boundary, Column, PlanError, StackPlan, Table, TopologyPlan
from boundaryc.plan.search import fit
from boundaryc.topology import Mesh, Sizes, build_mesh


def declared_operations(stack: Stack) -> Mapping[str, Operation]:
    """The registry of a stack: built-ins and what its file declares."""
    return registry(
        Operation(
            declared.name,
            declared.role,
            Facts(
                **dict.fromkeys(declared.facts, True),
                read_local=declared.read_local,
                read_whole=declared.read_whole,
            ),
            declared.params,
            declared.call,
        )
        for declared in stack.operations
    )


def plan_stack(stack: Stack) -> StackPlan:
    """Plans a stack on all its topologies. Raises PlanError or TopologyError."""
    graph, operations = build_graph(stack), declared_operations(stack)
    paths: Paths = {}
    planned = tuple(
        _plan_topology(Problem(stack, graph, operations, spec, paths, {}))
        for spec in stack.topologies
    )
    return StackPlan(stack, graph, operations, planned)


def _plan_topology(problem: Problem) -> TopologyPlan:
    spec = problem.spec
    mesh = build_mesh(
        Sizes(spec.tp, spec.attn_dp, spec.attn_cp, spec.attn_tp, spec.dense_tp, spec.moe.dp)
    )
    reasons = {variant: inapplicable(variant, mesh) for variant in problem.stack.variants}
    columns = tuple(
        Column(variant, even)
        for variant, reason in reasons.items()
        if reason is None
        for even in _evenness(mesh)
    )
    tables = {
        policy: tuple(_plan_column(problem, mesh, column, policy) for column in columns)
        for policy in POLICIES
    }
    return TopologyPlan(
        spec,
        mesh,
        columns,
        _row_multiples(mesh, columns, tables),
        tables,
        tuple((variant, reason) for variant, reason in reasons.items() if reason),
    )


def _row_multiples(
    mesh: Mesh, columns: tuple[Column, ...], tables: Mapping[str, tuple[Table, ...]]
) -> dict[str, int]:
    """Per variant: the ranks that cut the rows of a group in some plan, else one."""
    inner = mesh.mask("attn_cp") | mesh.mask("attn_tp")
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


def _plan_column(problem: Problem, mesh: Mesh, column: Column, policy: str) -> Table:
    demands = regime(column.variant, mesh)
    facts = {
        edge: edge_facts(
            problem.stack, problem.operations, mesh, demands, column.even, policy, edge
        )
        for edge in problem.graph.edges()
    }
    found = layout(problem, mesh, demands, facts)
    if found is None or isinstance(found, Edge):
        edge = found or problem.graph.last
        raise PlanError(edge, column, policy, reason(problem, mesh, demands, edge, found, facts))
    return {
        edge: Boundary(edge, start, goal, facts[edge], fit(path, facts[edge]))
        for edge, (start, goal, path) in found.items()
    }
