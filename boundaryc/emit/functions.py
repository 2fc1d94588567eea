"""All functions of one topology: drafted for every boundary, merged where equal, and named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from boundaryc.emit.around import calls_around
from boundaryc.emit.beside import copies
from boundaryc.emit.between import Between, between, empty, overlapped
from boundaryc.emit.collected import Named, TopologyFunctions, Use, VariantFunctions
from boundaryc.emit.deferral import deferring, resumed
from boundaryc.emit.drafts import Drafts, draft, postprocess
from boundaryc.emit.function_names import name_beside, name_functions
from boundaryc.emit.fused import attempted, fused_sum
from boundaryc.emit.how import How
from boundaryc.emit.merging import branch_input, merge
from boundaryc.emit.scope import Scope
from boundaryc.emit.transfer import transferred, with_inputs
from boundaryc.graph.build import ENTRY, FINAL, Edge
from boundaryc.language.model import Stack
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
    cache: dict[object, Between] = {}
    alike: dict[object, Between] = {}  # most boundaries differ in what these do not depend on
    for use in uses:
        variant, boundary = _place(result.plan, use)
        known = result.variants.setdefault(variant, VariantFunctions(variant))
        if use.edge.forks or use.edge.merges:
            continue  # only what a merge leaves is the stream's again
        shape = _shape(variant, boundary)
        if shape not in cache:
            cache[shape] = _between(plan, variant, boundary, result.scope, alike)
        found = result.between[use] = cache[shape]
        _record_between(known, use, found, _how(boundary))
    for known in result.variants.values():
        name_beside(plan, result.plan, known)


def _shape(variant: str, boundary: Boundary) -> object:
    """What its functions depend on: in one variant other facts show in the operations only."""
    return (variant, boundary.edge, boundary.start, boundary.goal, boundary.path.ops)


def _between(
    plan: StackPlan, variant: str, boundary: Boundary, scope: Scope, alike: dict[object, Between]
) -> Between:
    edge, calls = boundary.edge, calls_around(plan, boundary, "")
    demands = regime(variant, scope.mesh)
    ways = access(boundary, demands.rows)
    inputs = demands.attention_in if _inputs_travel(plan.stack) else None
    key = (edge, ways, calls.kept, calls.carried, inputs)
    if key not in alike:
        mixes = edge.consumer != FINAL and plan.stack.stage(edge.consumer).kind != "ffn"
        alike[key] = between(edge, ways, scope, calls, shows=mixes)
        left = alike[key].access
        if plan.stack.pipeline is not None and left is not None:
            travels = transferred(edge, ways, scope, calls, left, plan.stack.pipeline)
            if inputs is not None:
                travels = with_inputs(travels, inputs, ways, scope, plan.stack.pipeline)
            resume = replace(alike[key].resume, transfer=travels)
            alike[key] = replace(alike[key], resume=resume)
    found = alike[key]
    if edge.consumer == FINAL and plan.stack.terminal.norm:
        found = replace(found, empty=empty(boundary, scope, calls))
    found = resumed(found, boundary, scope, calls, fused_sum(plan, scope.mesh, boundary))
    handed = _handed(plan, boundary, demands.rows)
    if handed is None:
        return found
    return overlapped(found, handed, demands.rows, scope, calls_around(plan, handed, ""))


def _inputs_travel(stack: Stack) -> bool:
    """Whether a capture on the rows of inputs goes on at cuts."""
    return any(one.travels and one.rows == "input" for one in stack.captures)


def _handed(plan: StackPlan, boundary: Boundary, rows: int) -> Boundary | None:
    """The boundary where the stage before it may run without an exit, if it may.

    ``rows`` are those on which the stack is entered.
    """
    producer = boundary.edge.producer
    if not plan.stack.two_batch or producer == ENTRY or plan.stack.stage(producer).kind != "ffn":
        return None
    return handed_on(plan, boundary, rows)


def _add_drafts(plan: StackPlan, result: TopologyFunctions, uses: list[Use]) -> None:
    cache: dict[object, Drafts] = {}
    for use in uses:
        variant, boundary = _place(result.plan, use)
        known = result.variants[variant]
        shape = _shape(variant, boundary)
        if shape not in cache:
            beside = result.between.get(use)
            left = beside.access if beside else None
            leaves = known.accesses[left.key].name if left else ""
            cache[shape] = _draft(plan, result.scope, boundary, leaves)
            late = beside.late if beside else None
            handed = late and _handed(plan, boundary, regime(variant, result.scope.mesh).rows)
            if late and handed:
                calls = calls_around(plan, handed, known.accesses[late.key].name)
                ends = postprocess(handed, result.scope, calls)
                cache[shape] = replace(cache[shape], postprocess=ends)
        found = result.drafts[use] = cache[shape]
        _record(known, use, found, _how(boundary))
    for known in result.variants.values():
        name_functions(plan, result.plan, known)


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
        calls, copied = calls_around(plan, boundary, ""), copies(plan, boundary.edge)
        return Drafts(branch_input(boundary, scope, calls, copied=copied))
    reduction = "partial" if producer == ENTRY else plan.stack.stage(producer).reduction
    scoped, tail = reduction != "partial", reduction == "local_tail"
    calls, fused = calls_around(plan, boundary, access), fused_sum(plan, scope.mesh, boundary)
    calls = replace(calls, fused=fused if attempted(plan, boundary) else None)
    mixes = not boundary.edge.merges and boundary.edge.consumer != FINAL
    mixes = mixes and plan.stack.stage(boundary.edge.consumer).kind != "ffn"
    found = draft(boundary, scope, calls, scoped=scoped, tail=tail, shows=mixes)
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


def _record(known: VariantFunctions, use: Use, drafts: Drafts, how: str) -> None:
    every = (drafts.prepare, drafts.leave, drafts.merge, drafts.postprocess)
    functions = [one for one in every if one]
    if drafts.exit:
        functions += drafts.exit.functions()
        decision = known.exits.setdefault(drafts.exit.key, Named(drafts.exit, how=how))
        decision.uses.append(use)
    for function in functions:
        known.functions.setdefault(function.key, Named(function, how=how)).uses.append(use)


def _record_between(known: VariantFunctions, use: Use, found: Between, how: str) -> None:
    for function in found.functions():
        named = known.beside.setdefault(function.key, Named(function, how=how))
        named.uses.append(use)
        if function.crossing and function.crossing not in named.crossings:
            named.crossings.append(function.crossing)
    resume = known.resumes.setdefault(found.resume.key, Named(found.resume, how=how))
    resume.uses.append(use)
    travels = found.resume.transfer
    for output in (*found.accesses, travels and travels.arrived):
        if output:
            left = known.accesses.setdefault(output.key, Named(output, how=how))
            left.uses.append(use)
