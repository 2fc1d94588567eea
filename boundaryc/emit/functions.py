"""All functions of one topology: drafted for every boundary, merged where equal, and named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from boundaryc.emit.beside import copies
from boundaryc.emit.between import Between, between, empty, overlapped
from boundaryc.emit.calls import Calls
from boundaryc.emit.collected import DraftT, Named, TopologyFunctions, Use, VariantFunctions
from boundaryc.emit.deferral import deferring, resumed
from boundaryc.emit.drafting import draft
from boundaryc.emit.drafts import Drafts
from boundaryc.emit.ends import postprocess
from boundaryc.emit.function_names import name_beside, name_functions
from boundaryc.emit.fused import attempted, fused_sum
from boundaryc.emit.how import How
from boundaryc.emit.merging import branch_input, merge
from boundaryc.emit.reuse import Reuse, place
from boundaryc.emit.scope import Scope
from boundaryc.emit.transfer import transferred, with_inputs
from boundaryc.graph.build import ENTRY, FINAL, Edge, Node
from boundaryc.language.model import Stack
from boundaryc.plan import ops
from boundaryc.plan.access import Access, access
from boundaryc.plan.overlap import handed_on
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan
from boundaryc.topology.contracts import Regime, regime


def topology_functions(
    plan: StackPlan, topology: TopologyPlan, reuse: Reuse | None = None
) -> TopologyFunctions:
    """Drafts, merges and names the functions of ``topology``.

    ``reuse`` has what other topologies of the same plan have been given.
    """
    shared = reuse or Reuse(plan)
    edges, policies = _by_repetition(plan), _auto_first(plan, topology)
    result = TopologyFunctions(
        topology, shared.library.scope(topology.mesh), {}, {}, edges, policies
    )
    for variant in topology.row_multiples:
        make = partial(_variant_functions, plan, result, variant, shared)
        result.add(shared.of_variant("functions", topology, variant, make, sized=_sized))
    return result


def _sized(known: VariantFunctions) -> bool:
    return known.scope.sized


def _variant_functions(
    plan: StackPlan, functions: TopologyFunctions, variant: str, reuse: Reuse
) -> VariantFunctions:
    topology = functions.plan
    followed = reuse.followed(topology, variant, functions.policies)
    known = VariantFunctions(variant, followed, reuse.library.scope(topology.mesh))
    uses = [Use(edge, number) for number in range(len(followed)) for edge in functions.order]
    _add_between(plan, known, uses, reuse)
    name_beside(plan, functions, known)
    _add_drafts(plan, known, uses, reuse)
    name_functions(plan, functions, known)
    return known


def _add_between(plan: StackPlan, known: VariantFunctions, uses: list[Use], reuse: Reuse) -> None:
    """First what exits leave in the stream, as the exits name it."""
    cache: dict[tuple[Edge, int], tuple[Between, tuple[Users, ...]]] = {}
    demands = regime(known.variant, known.scope.mesh)
    where = place(known.scope.mesh, demands)
    for use in uses:
        if use.edge.forks or use.edge.merges:
            continue  # only what a merge leaves is the stream's again
        followed = known.followed[use.table]
        here = (use.edge, followed.plans[use.edge])
        if here not in cache:
            boundary = followed.table[use.edge]
            make = partial(_between, plan, demands, boundary, reuse)
            found = reuse.drafted(("between", where, here), known.scope, make)
            cache[here] = found, tuple(_users_between(known, found, _how(boundary)))
        known.between[use], users = cache[here]
        for each in users:
            each.append(use)


def _between(
    plan: StackPlan, demands: Regime, boundary: Boundary, reuse: Reuse, scope: Scope
) -> Between:
    edge, calls = boundary.edge, reuse.calls(boundary)
    ways = access(boundary, demands.rows)
    # Most boundaries differ in what this part does not depend on.
    inputs = demands.attention_in if _inputs_travel(plan.stack) else None
    mixes = edge.consumer != FINAL and plan.stack.stage(edge.consumer).kind != "ffn"
    found = scope.once(_ways, _stages(edge), ways, calls, plan.stack.pipeline, inputs, mixes)
    if edge.consumer == FINAL and plan.stack.terminal.norm:
        found = replace(found, empty=empty(boundary, scope, calls))
    found = resumed(found, boundary, scope, calls, fused_sum(plan, scope.mesh, boundary))
    handed = _handed(plan, boundary, demands.rows)
    if handed is None:
        return found
    return overlapped(found, handed, demands.rows, scope, reuse.calls(handed))


def _ways(
    scope: Scope,
    edge: Edge,
    ways: Access,
    calls: Calls,
    payload: str | None,
    inputs: int | None,
    mixes: bool,
) -> Between:
    """The other ways across a boundary, over a pipeline cut too where there is a ``payload``.

    ``inputs`` are the rows of token mixers where captures on these go on at cuts; ``mixes``: its
    consumer is one.
    """
    found = between(edge, ways, scope, calls, shows=mixes)
    if payload is None or found.access is None:
        return found
    travels = transferred(edge, ways, scope, calls, found.access, payload)
    if inputs is not None:
        travels = with_inputs(travels, inputs, ways, scope, payload)
    return replace(found, resume=replace(found.resume, transfer=travels))


def _stages(edge: Edge) -> Edge:
    """The same edge wherever its producer is reached, whatever is captured at it."""
    return Edge(Node(ENTRY, edge.producer), Node(edge.producer, edge.consumer))


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


def _add_drafts(plan: StackPlan, known: VariantFunctions, uses: list[Use], reuse: Reuse) -> None:
    cache: dict[tuple[Edge, int], tuple[Drafts, tuple[Users, ...]]] = {}
    demands = regime(known.variant, known.scope.mesh)
    where = place(known.scope.mesh, demands)
    for use in uses:
        followed = known.followed[use.table]
        here = (use.edge, followed.plans[use.edge])
        if here not in cache:
            boundary = followed.table[use.edge]
            left = _left(known, known.between.get(use))
            make = partial(_drafts, plan, demands, boundary, left, reuse)
            found = reuse.drafted(("drafts", where, here, left), known.scope, make)
            cache[here] = found, tuple(_users(known, found, _how(boundary)))
        known.drafts[use], users = cache[here]
        for each in users:
            each.append(use)


def _left(known: VariantFunctions, beside: Between | None) -> tuple[str, str]:
    """The names of what a stage leaves in the stream at its exit, and where it ran without one."""
    both = (beside.access, beside.late) if beside else (None, None)
    exits, late = (known.accesses[one.key].name if one else "" for one in both)
    return exits, late


def _drafts(
    plan: StackPlan,
    demands: Regime,
    boundary: Boundary,
    left: tuple[str, str],
    reuse: Reuse,
    scope: Scope,
) -> Drafts:
    """The functions of a boundary; ``left`` is what its producer leaves in the stream."""
    found = _draft(plan, scope, boundary, reuse.calls(boundary, left[0]))
    handed = left[1] and _handed(plan, boundary, demands.rows)
    if handed:
        calls = reuse.calls(handed, left[1])
        found = replace(found, postprocess=postprocess(handed, scope, calls))
    return found


def _by_repetition(plan: StackPlan) -> tuple[Edge, ...]:
    """Edges that the stack meets again and again first: their functions get the plain names."""
    edges = plan.graph.edges()
    return tuple(sorted(edges, key=lambda edge: not plan.graph.repeats(edge)))


def _auto_first(plan: StackPlan, topology: TopologyPlan) -> tuple[str, ...]:
    """The policies: functions of what `auto` stands for get the plain names."""
    return tuple(sorted(topology.tables, key=lambda policy: policy != plan.stack.policy_auto))


def _draft(plan: StackPlan, scope: Scope, boundary: Boundary, calls: Calls) -> Drafts:
    producer, branch = boundary.edge.producer, plan.stack.branch
    if boundary.edge.forks:
        copied = copies(plan, boundary.edge)
        return Drafts(branch_input(boundary, scope, calls, copied=copied))
    reduction = "partial" if producer == ENTRY else plan.stack.stage(producer).reduction
    scoped, tail = reduction != "partial", reduction == "local_tail"
    fused = fused_sum(plan, scope.mesh, boundary)
    if attempted(plan, boundary):
        calls = replace(calls, fused=fused)
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


Users = list[Use]
"""The places that need a function, for more to be added."""


def _named(
    known: dict[tuple[object, ...], Named[DraftT]], draft: DraftT, how: str
) -> Named[DraftT]:
    """What is known of a draft, which is recorded if it is new."""
    key = draft.key
    found = known.get(key)
    if found is None:
        found = known[key] = Named(draft, how=how)
    return found


def _users(known: VariantFunctions, drafts: Drafts, how: str) -> Iterator[Users]:
    """The places of all functions of a boundary, which are recorded if they are new."""
    every = (drafts.prepare, drafts.leave, drafts.merge, drafts.postprocess)
    functions = [one for one in every if one]
    if drafts.exit:
        functions += drafts.exit.functions()
        yield _named(known.exits, drafts.exit, how).uses
    for function in functions:
        yield _named(known.functions, function, how).uses


def _users_between(known: VariantFunctions, found: Between, how: str) -> Iterator[Users]:
    for function in found.functions():
        named = _named(known.beside, function, how)
        if function.crossing and function.crossing not in named.crossings:
            named.crossings.append(function.crossing)
        yield named.uses
    yield _named(known.resumes, found.resume, how).uses
    travels = found.resume.transfer
    for output in (*found.accesses, travels and travels.arrived):
        if output:
            yield _named(known.accesses, output, how).uses
