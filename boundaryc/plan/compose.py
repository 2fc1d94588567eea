"""Plans every boundary of a stack on every topology, for every batch the stack can meet.

For each column (kind of batch) and policy the boundaries are planned together, see ``layout``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Literal

from boundaryc.graph.build import build_graph
from boundaryc.graph.policy import POLICIES
from boundaryc.language.model import Stack
from boundaryc.operations.declared import declared_operations
from boundaryc.plan.approve import approve
from boundaryc.plan.collector import uncollected
from boundaryc.plan.result import Column, StackPlan, Table, TopologyPlan
from boundaryc.plan.tables import Planner, planner, total
from boundaryc.plan.task import Problem, task
from boundaryc.topology import Mesh
from boundaryc.topology.contracts import CONTEXT_PARALLEL, inapplicable, mesh_of, regime


def plan_stack(stack: Stack) -> StackPlan:
    """Plans a stack on all its topologies, and has every plan checked on provenance.

    Raises PlanError or TopologyError for a stack that cannot be planned.
    """
    graph, operations = build_graph(stack), declared_operations(stack)
    with uncollected():
        planned = tuple(
            _plan_topology(Problem(stack, graph, operations, spec)) for spec in stack.topologies
        )
    return approve(StackPlan(stack, graph, operations, planned))


def _plan_topology(problem: Problem) -> TopologyPlan:
    spec, mesh = problem.spec, mesh_of(problem.spec)
    reasons = {variant: inapplicable(variant, spec, mesh) for variant in problem.stack.variants}
    columns: list[Column] = []
    tables: dict[str, list[Table]] = {policy: [] for policy in POLICIES}
    few_rows: dict[str, int] = {}
    planners: dict[tuple[object, ...], Planner] = {}
    for kind in _kinds(problem.stack, mesh, reasons):
        alike = (kind.variant, kind.entry, kind.mode)
        if alike not in planners:
            planners[alike] = planner(task(problem, mesh, kind))
        small, large = planners[alike].tables(kind)
        if all(small[policy] is large[policy] for policy in POLICIES):
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


def _crossing(
    problem: Problem, mesh: Mesh, small: Mapping[str, Table], large: Mapping[str, Table]
) -> int:
    """Rows at which the plans for many rows become the cheaper ones, for the stack's own policy."""
    policy = problem.stack.policy_auto
    if small[policy] == large[policy]:
        policy = next(name for name in POLICIES if small[name] != large[name])
    few, many = total(problem.graph, small[policy]), total(problem.graph, large[policy])
    extra, saved = many.collectives - few.collectives, few.wire - many.wire
    return max(0, problem.spec.alpha * extra * mesh.size(mesh.every) // saved)


def _row_multiples(
    mesh: Mesh, columns: Iterable[Column], tables: Mapping[str, tuple[Table, ...]]
) -> dict[str, int]:
    """Per variant: the ranks that cut the rows of a group in some plan, else one."""
    inner = mesh.mask("attn_cp") | mesh.mask("attn_tp")
    columns = tuple(columns)
    variants = dict.fromkeys(column.variant for column in columns)
    cut, whole = set[str](), set[object]()
    for planned in tables.values():
        for column, table in zip(columns, planned, strict=True):
            for boundary in () if column.variant in cut else table.values():
                path = (boundary.start, boundary.goal.residual, id(boundary.path))
                if path in whole:
                    continue  # other batches share it
                if boundary.touched() & inner:
                    cut.add(column.variant)
                    break
                whole.add(path)
    return {variant: mesh.size(inner) if variant in cut else 1 for variant in variants}


def _evenness(mesh: Mesh) -> Iterator[tuple[str, ...]]:
    """Which axes a batch may cut evenly: every combination, all of them first."""
    axes = [axis for axis in ("attn_dp", "attn_cp", "attn_tp") if mesh.mask(axis)]
    for length in range(len(axes), -1, -1):
        yield from combinations(axes, length)
