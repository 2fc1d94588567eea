"""All functions of one topology: drafted for every boundary, merged where equal, and named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from boundaryc.emit.around import calls_around
from boundaryc.emit.between import Between, between, empty, overlapped
from boundaryc.emit.collected import Named, TopologyFunctions, Use, VariantFunctions
from boundaryc.emit.deferral import deferring, resumed
from boundaryc.emit.drafts import Drafts, draft, postprocess
from boundaryc.emit.function_names import name_beside, name_functions
from boundaryc.emit.fused import attempted, fused_sum
from boundaryc.emit.how import How
from boundaryc.emit.merging import branch_input, merge
from boundaryc.emit.scope import Scope
from boundaryc.emit.transfer import transferred
from boundaryc.graph.build import ENTRY, FINAL, Edge
from boundaryc.plan import ops
from boundaryc.plan.access import access
from boundaryc.plan.overlap import handed_on
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan
from boundaryc.topology.contracts import regime


def topology_functions(plan: StackPlan, topology: TopologyPlan) -> TopologyFunctions:
    """Drafts, merges and names the functions of ``topology``."""
    edges = _by_repetition(plan)
    result = TopologyFunctions(topology, Scope(topology.mesh), {}, {}, {}, edges)
    uses = list(_uses(plan, topology, edges))
    _add_between(plan, result, uses)
    _add_drafts(plan, result, uses)
    return result


def _add_between(plan: StackPlan, result: TopologyFunctions, uses: list[Use]) -> None:
    """First what exits leave in the stream, as the exits name it."""
    cache: dict[object, tuple[Between, tuple[Users, ...]]] = {}
    alike: dict[object, Between] = {}  # most boundaries differ in what these do not depend on
    seen: dict[tuple[str, int], tuple[Between, tuple[Users, ...]]] = {}
    for use in uses:
        variant, boundary = _place(result.plan, use)
        known = result.variants.setdefault(variant, VariantFunctions(variant))
        if use.edge.forks or use.edge.merges:
            continue  # only what a merge leaves is the stream's again
        place = (variant, id(boundary))  # policies share boundaries, which the plan keeps
        if place not in seen:
            shape = _shape(variant, boundary)
            if shape not in cache:
                found = _between(plan, variant, boundary, result.scope, alike)
                cache[shape] = found, tuple(_users_between(known, found, _how(boundary)))
            seen[place] = cache[shape]
        result.between[use], users = seen[place]
        for each in users:
            each.append(use)
    for known in result.variants.values():
        name_beside(plan, result.plan, known)


def _shape(variant: str, boundary: Boundary) -> object:
    """What its functions depend on: in one variant other facts show in the operations only."""
    return (variant, boundary.edge, boundary.start, boundary.goal, boundary.path.ops)


def _between(
    plan: StackPlan, variant: str, boundary: Boundary, scope: Scope, alike: dict[object, Between]
) -> Between:
    edge, calls = boundary.edge, calls_around(plan, boundary, "")
    ways = access(boundary, regime(variant, scope.mesh).rows)
    key = (edge, *ways.asked, calls.kept, calls.carried)
    if key not in alike:
        mixes = edge.consumer != FINAL and plan.stack.stage(edge.consumer).kind != "ffn"
        alike[key] = between(edge, ways, scope, calls, shows=mixes)
        left = alike[key].access
        if plan.stack.pipeline is not None and left is not None:
            travels = transferred(edge, ways, scope, calls, left, plan.stack.pipeline)
            if any(one.travels and one.rows == "input" for one in plan.stack.captures):
                inputs = regime(variant, scope.mesh).attention_in
                travels = replace(travels, inputs=inputs)
            resume = replace(alike[key].resume, transfer=travels)
            alike[key] = replace(alike[key], resume=resume)
    found = alike[key]
    if edge.consumer == FINAL and plan.stack.terminal.norm:
        found = replace(found, empty=empty(boundary, scope, calls))
    found = resumed(found, boundary, scope, calls, fused_sum(plan, scope.mesh, boundary))
    rows = regime(variant, scope.mesh).rows
    handed = _handed(plan, boundary, rows)
    if handed is None:
        return found
    return overlapped(found, handed, rows, scope, calls_around(plan, handed, ""))


def _handed(plan: StackPlan, boundary: Boundary, rows: int) -> Boundary | None:
    """The boundary where the stage before it may run without an exit, if it may.

    ``rows`` are those on which the stack is entered.
    """
    producer = boundary.edge.producer
    if not plan.stack.two_batch or producer == ENTRY or plan.stack.stage(producer).kind != "ffn":
        return None
    return handed_on(plan, boundary, rows)


def _add_drafts(plan: StackPlan, result: TopologyFunctions, uses: list[Use]) -> None:
    cache: dict[object, tuple[Drafts, tuple[Users, ...]]] = {}
    seen: dict[tuple[str, int], tuple[Drafts, tuple[Users, ...]]] = {}
    for use in uses:
        variant, boundary = _place(result.plan, use)
        known, place = result.variants[variant], (variant, id(boundary))
        if place not in seen:
            shape = _shape(variant, boundary)
            if shape not in cache:
                found = _drafts(plan, result.scope, known, boundary, result.between.get(use))
                cache[shape] = found, tuple(_users(known, found, _how(boundary)))
            seen[place] = cache[shape]
        result.drafts[use], users = seen[place]
        for each in users:
            each.append(use)
    for known in result.variants.values():
        name_functions(plan, result.plan, known)


def _drafts(
    plan: StackPlan,
    scope: Scope,
    known: VariantFunctions,
    boundary: Boundary,
    beside: Between | None,
) -> Drafts:
    """The functions of a boundary; ``beside`` are those for outputs that are used on the way."""
    left = beside.access if beside else None
    found = _draft(plan, scope, boundary, known.accesses[left.key].name if left else "")
    late = beside.late if beside else None
    handed = late and _handed(plan, boundary, regime(known.variant, scope.mesh).rows)
    if late and handed:
        calls = calls_around(plan, handed, known.accesses[late.key].name)
        found = replace(found, postprocess=postprocess(handed, scope, calls))
    return found


def _place(topology: TopologyPlan, use: Use) -> tuple[str, Boundary]:
    """The variant of a use and the boundary that was planned for it."""
    boundary = topology.tables[use.policy][use.column][use.edge]
    return topology.columns[use.column].variant, boundary


def _by_repetition(plan: StackPlan) -> tuple[Edge, ...]:
    """Edges that the stack meets again and again first: their functions get the plain names."""
    edges = plan.graph.edges()
    return tuple(sorted(edges, key=lambda edge: not plan.graph.repeats(edge)))


def _uses(plan: StackPlan, topology: TopologyPlan, edges: tuple[Edge, ...]) -> Iterable[Use]:
    """Every use, what `auto` does on even batches first."""
    policies = sorted(topology.tables, key=lambda policy: policy != plan.stack.policy_auto)
    for policy in policies:
        for column in range(len(topology.columns)):
            for edge in edges:
                yield Use(edge, column, policy)


def _draft(plan: StackPlan, scope: Scope, boundary: Boundary, access: str) -> Drafts:
    producer, branch = boundary.edge.producer, plan.stack.branch
    if boundary.edge.forks:
        return Drafts(branch_input(boundary, scope, calls_around(plan, boundary, "")))
    reduction = "partial" if producer == ENTRY else plan.stack.stage(producer).reduction
    scoped, tail = reduction != "partial", reduction == "local_tail"
    calls, fused = calls_around(plan, boundary, access), fused_sum(plan, scope.mesh, boundary)
    calls = replace(calls, fused=fused if attempted(plan, boundary) else None)
    found = draft(boundary, scope, calls, scoped=scoped, tail=tail)
    found = deferring(found, boundary, scope, fused)
    if boundary.edge.source.merges and branch is not None:
        found = replace(found, merge=merge(boundary, scope, calls, branch.stages[-1]))
    return found


def _how(boundary: Boundary) -> str:
    words: list[str] = []
    for op in boundary.path.ops:
        match op:
            case ops.AllReduce():
                words.append(How.ALL_REDUCE.value)
            case ops.QuantizedAllReduce():
                words.append(How.QUANTIZED.value)
            case ops.ReduceScatter(_, variable):
                how = How.VARIABLE_REDUCE_SCATTER if variable else How.REDUCE_SCATTER
                words.append(how.value)
            case ops.GatherSum():
                words.append(How.GATHER_SUM.value)
            case _:
                pass
    return "_".join(words)


Users = list[Use]
"""The places that need a function, for more to be added."""


def _users(known: VariantFunctions, drafts: Drafts, how: str) -> Iterator[Users]:
    """The places of all functions of a boundary, which are recorded if they are new."""
    every = (drafts.prepare, drafts.leave, drafts.merge, drafts.postprocess)
    functions = [one for one in every if one]
    if drafts.exit:
        functions += drafts.exit.functions()
        yield known.exits.setdefault(drafts.exit.key, Named(drafts.exit, how=how)).uses
    for function in functions:
        yield known.functions.setdefault(function.key, Named(function, how=how)).uses


def _users_between(known: VariantFunctions, found: Between, how: str) -> Iterator[Users]:
    for function in found.functions():
        yield known.beside.setdefault(function.key, Named(function, how=how)).uses
    yield known.resumes.setdefault(found.resume.key, Named(found.resume, how=how)).uses
    travels = found.resume.transfer
    for output in (*found.accesses, travels and travels.arrived):
        if output:
            yield known.accesses.setdefault(output.key, Named(output, how=how)).uses
