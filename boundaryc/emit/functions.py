"""All functions of one topology: drafted for every boundary, merged where equal, and named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from boundaryc.emit.between import AccessDraft, Between, ResumeDraft, between, empty, overlapped
from boundaryc.emit.calls import Calls
from boundaryc.emit.deferral import behind, deferring
from boundaryc.emit.drafts import Draft, Drafts, ExitDraft, draft, postprocess
from boundaryc.emit.fused import attempted, fused_sum
from boundaryc.emit.how import How
from boundaryc.emit.imported import imported_names
from boundaryc.emit.layout_text import listed
from boundaryc.emit.merging import branch_input, merge
from boundaryc.emit.naming import Traits, suffixes
from boundaryc.emit.norms import norm_call
from boundaryc.emit.scope import Scope
from boundaryc.emit.transfer import transferred
from boundaryc.emit.when import when
from boundaryc.graph.build import ENTRY, FINAL, MERGE, Edge
from boundaryc.operations import Operation, enter_operation, final_read, transform_operation
from boundaryc.plan import ops
from boundaryc.plan.access import access, handed_off
from boundaryc.plan.overlap import handed_on
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan
from boundaryc.topology.contracts import regime

NO_READ = "raw"
"""How the residual is read where no norm is: what a branch is given has been read."""

SHOWN = {FINAL: "the final norm", MERGE: "the merge"}
"""What people call a consumer that is no stage."""

DraftT = TypeVar("DraftT", Draft, ExitDraft, AccessDraft, ResumeDraft)


class Use(NamedTuple):
    """One place that needs a function: an edge, in batches of one column, under one policy."""

    edge: Edge
    column: int
    policy: str


@dataclass(slots=True)
class Named(Generic[DraftT]):
    """A draft with its uses and, in the end, its name."""

    draft: DraftT
    uses: list[Use] = field(default_factory=list)
    how: str = ""
    name: str = ""
    when: tuple[str, ...] = ()

    @property
    def following(self) -> str:
        """What comes after the stage whose exit this is, for people."""
        names = _sorted(use.edge.consumer for use in self.uses)
        return listed([SHOWN.get(name, name) for name in names], "or")


@dataclass(slots=True)
class VariantFunctions:
    """The functions of one batch variant, in the order in which a forward meets them.

    ``beside`` are those of its other module, for a model that uses outputs between stages;
    ``accesses`` and ``resumes`` are what they make up.
    """

    variant: str
    functions: dict[tuple[object, ...], Named[Draft]] = field(default_factory=dict)
    exits: dict[tuple[object, ...], Named[ExitDraft]] = field(default_factory=dict)
    beside: dict[tuple[object, ...], Named[Draft]] = field(default_factory=dict)
    accesses: dict[tuple[object, ...], Named[AccessDraft]] = field(default_factory=dict)
    resumes: dict[tuple[object, ...], Named[ResumeDraft]] = field(default_factory=dict)


@dataclass(slots=True)
class TopologyFunctions:
    """Everything one topology needs; ``drafts`` has the functions of each use.

    ``between`` has those for a model that uses outputs between stages.
    """

    plan: TopologyPlan
    scope: Scope
    variants: dict[str, VariantFunctions]
    drafts: dict[Use, Drafts]
    between: dict[Use, Between]
    order: tuple[Edge, ...]


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
        _name_between(plan, result.plan, known)


def _shape(variant: str, boundary: Boundary) -> object:
    """What its functions depend on: in one variant other facts show in the operations only."""
    return (variant, boundary.edge, boundary.start, boundary.goal, boundary.path.ops)


def _between(
    plan: StackPlan, variant: str, boundary: Boundary, scope: Scope, alike: dict[object, Between]
) -> Between:
    edge, calls = boundary.edge, _calls(plan, boundary, "")
    ways = access(boundary, regime(variant, scope.mesh).rows)
    key = (edge, ways, calls.kept, calls.carried)
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
    if edge.consumer == FINAL:
        found = replace(found, empty=empty(boundary, scope, calls))
    rest = behind(boundary, scope, calls, fused_sum(plan, scope.mesh, boundary))
    if rest is not None:
        found = replace(found, resume=replace(found.resume, fused=rest))
    rows = regime(variant, scope.mesh).rows
    handed = _handed(plan, boundary, rows)
    if handed is None:
        return found
    return overlapped(found, handed, rows, scope, _calls(plan, handed, ""))


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
                calls = _calls(plan, handed, known.accesses[late.key].name)
                ends = postprocess(handed, result.scope, calls)
                cache[shape] = replace(cache[shape], postprocess=ends)
        found = result.drafts[use] = cache[shape]
        _record(known, use, found, _how(boundary))
    for known in result.variants.values():
        _name(plan, result.plan, known)


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
        return Drafts(branch_input(boundary, scope, _calls(plan, boundary, "")))
    reduction = "partial" if producer == ENTRY else plan.stack.stage(producer).reduction
    scoped, tail = reduction != "partial", reduction == "local_tail"
    calls, fused = _calls(plan, boundary, access), fused_sum(plan, scope.mesh, boundary)
    calls = replace(calls, fused=fused if attempted(plan, boundary) else None)
    found = draft(boundary, scope, calls, scoped=scoped, tail=tail)
    found = deferring(found, boundary, scope, fused)
    if boundary.edge.source.merges and branch is not None:
        found = replace(found, merge=merge(boundary, scope, calls, branch.stages[-1]))
    return found


def _calls(plan: StackPlan, boundary: Boundary, access: str) -> Calls:
    """The operations around a boundary; ``access`` is what its producer leaves in the stream."""
    producer, consumer = boundary.edge.producer, boundary.edge.consumer
    if boundary.edge.forks:
        return Calls(producer, consumer, None, plan.operations[NO_READ], {})
    target = None if consumer in (FINAL, MERGE) else plan.stack.stage(consumer)
    read = plan.operations[target.read if target else final_read(plan.stack)]
    calls = Calls(producer, consumer, None, read, imported_names(plan), access)
    calls = replace(calls, captures=boundary.edge.target.captures, lora=plan.stack.lora)
    calls = replace(calls, streams=plan.stack.streams, given_on=boundary.facts.given_on)
    calls = replace(calls, norm=norm_call(plan.stack, consumer))
    if target is not None:
        calls = replace(calls, quantize=target.quantize, latent=target.latent_input)
    if producer == ENTRY:
        enter = plan.operations[enter_operation(plan.stack)]
        return replace(calls, enter=None if enter.call is None else enter)
    stage = plan.stack.stage(producer)
    update, declared = plan.operations[stage.update], stage.transform
    calls = replace(calls, update=update, scale=stage.update_scale, carried=update.params)
    following = plan.operations[target.update] if target else None
    kept = _leaves_alone(boundary, update, read, following, fusion=bool(plan.stack.fusion))
    calls = replace(calls, kept=kept, additive=stage.additive, quantized_sum=stage.quantized_sum)
    if declared is None:
        return calls
    transform = plan.operations[transform_operation(declared.name)]
    output_norm = norm_call(plan.stack, producer)
    calls = replace(calls, transform=transform, factor=declared.scale, output_norm=output_norm)
    waits = handed_off(boundary).transform
    return replace(calls, carried=calls.params) if waits else calls


def _leaves_alone(
    boundary: Boundary,
    update: Operation,
    read: Operation,
    following: Operation | None,
    *,
    fusion: bool,
) -> bool:
    """Whether the residual that was read is new and nothing writes it: the certificate.

    It is what a built-in update made, not what a model or a collective handed over, the built-in
    read returned something else, and the update that is next given it, ``following``, is no
    function from outside, which may write over it.
    """
    joins = any(isinstance(op, ops.Join) for op in boundary.path.ops)
    alone = following is None or following.call is None
    alone &= not fusion  # a fused kernel may write over the residual too
    return update.call is None and not joins and read.facts.plain_norm and alone


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
        known.beside.setdefault(function.key, Named(function, how=how)).uses.append(use)
    resume = known.resumes.setdefault(found.resume.key, Named(found.resume, how=how))
    resume.uses.append(use)
    travels = found.resume.transfer
    for output in (*found.accesses, travels and travels.arrived):
        if output:
            left = known.accesses.setdefault(output.key, Named(output, how=how))
            left.uses.append(use)


def _name_between(plan: StackPlan, topology: TopologyPlan, known: VariantFunctions) -> None:
    taken: set[str] = set()
    auto = plan.stack.policy_auto
    _name_all(known.beside.values(), taken, auto, str)
    _name_all(known.accesses.values(), taken, auto, str.upper)
    _name_all(known.resumes.values(), taken, auto, str.upper)
    for group in by_base(known.beside.values()):
        for named in group if len(group) > 1 else ():
            named.when = when(plan, topology, known.variant, named.uses, leaves=False)


def _name(plan: StackPlan, topology: TopologyPlan, known: VariantFunctions) -> None:
    taken: set[str] = set()
    _name_all(known.functions.values(), taken, plan.stack.policy_auto, str)
    _name_all(known.exits.values(), taken, plan.stack.policy_auto, str.upper)
    for group in by_base(known.functions.values()):
        for named in group if len(group) > 1 else ():
            leaves = _leaves(named.draft)
            named.when = when(plan, topology, known.variant, named.uses, leaves=leaves)


def by_base(named: Iterable[Named[DraftT]]) -> list[list[Named[DraftT]]]:
    """The drafts in groups of those that would like the same name."""
    groups: dict[str, list[Named[DraftT]]] = {}
    for one in named:
        groups.setdefault(one.draft.base, []).append(one)
    return list(groups.values())


def _name_all(
    named: Iterable[Named[DraftT]], taken: set[str], auto: str, case: Callable[[str], str]
) -> None:
    for group in by_base(named):
        found = suffixes([_traits(one, auto) for one in group])
        for one, suffix in zip(group, found, strict=True):
            one.name = unique(case(one.draft.base + suffix), taken)


def unique(name: str, taken: set[str]) -> str:
    """``name``, or the first numbered form of it that is not taken; takes it."""
    number, free = 2, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free)
    return free


def policy_words(policies: list[str], auto: str) -> str:
    """Policies as words of an identifier; what `auto` stands for goes before all others."""
    if auto in policies:
        return "auto"
    return "_".join(dict.fromkeys(policy.replace("+", "_") for policy in policies))


def _traits(named: Named[DraftT], auto: str) -> Traits:
    """What may tell this function from its namesakes, the most telling first."""
    edges = [use.edge for use in named.uses]
    draft = named.draft
    own = _main(draft)
    return {
        "to": ""
        if not _leaves(draft)
        else f"to_{'_or_'.join(_sorted(edge.consumer for edge in edges))}",
        "keeps": keeping(edges),
        "update": draft.update if isinstance(draft, AccessDraft) else "",
        "residual": draft.residual if isinstance(draft, AccessDraft) else "",
        "own": (own.how if own else "") or "complete",
        "how": named.how or "complete",
        "uneven": own.uneven if own else "",
        "after": after(edges),
        "policy": policy_words([use.policy for use in named.uses], auto),
        "batches": "_".join(map(str, sorted({use.column for use in named.uses}))),
    }


def _main(draft: Draft | ExitDraft | AccessDraft | ResumeDraft) -> Draft | None:
    """The function that says most about a draft of several."""
    match draft:
        case Draft():
            return draft
        case ExitDraft():
            return draft.leave
        case ResumeDraft():
            return draft.completed or draft.written
        case AccessDraft():
            return draft.fold


def _leaves(draft: Draft | ExitDraft | AccessDraft | ResumeDraft) -> bool:
    """Whether a draft belongs to the end of a stage."""
    if isinstance(draft, (AccessDraft, ResumeDraft)):
        return False
    return isinstance(draft, ExitDraft) or "_to_" not in draft.base


def after(edges: Iterable[Edge]) -> str:
    """After which stages the producers of these edges ran, as words of an identifier."""
    before = _sorted(edge.source.producer for edge in edges)
    words = [name for name in before if name]
    return f"after_{'_or_'.join(words)}" if words else "at_start"


def keeping(edges: Iterable[Edge]) -> str:
    """What is captured at these edges, as words of an identifier."""
    names = _sorted(name for edge in edges for name in edge.target.captures)
    return f"keeping_{'_'.join(names)}" if names else "keeping_nothing"


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(set(names))


def names_by_use(functions: TopologyFunctions, use: Use) -> Mapping[str, str]:
    """The qualified names that a use needs: ``prepare``, ``resume`` and, after a stage, ``leave``.

    The end of the stack has ``empty`` too, for ranks without rows, and what is behind a merge has
    ``merge``; before one there is only ``leave``, and a branch begins with only ``prepare``. A
    stage that may run without an exit has ``postprocess``.
    """
    variant = functions.plan.columns[use.column].variant
    known, drafts = functions.variants[variant], functions.drafts[use]
    own = {
        "prepare": drafts.prepare,
        "leave": drafts.leave,
        "merge": drafts.merge,
        "postprocess": drafts.postprocess,
    }
    found = {what: f"{variant}.{known.functions[one.key].name}" for what, one in own.items() if one}
    if drafts.exit:
        found["leave"] = f"{variant}.{known.exits[drafts.exit.key].name}"
    if use not in functions.between:
        return found
    beside = functions.between[use]
    found["resume"] = f"{access_module(variant)}.{known.resumes[beside.resume.key].name}"
    if use.edge.consumer == FINAL:
        found["empty"] = "None"
        if beside.empty:
            found["empty"] = f"{access_module(variant)}.{known.beside[beside.empty.key].name}"
    return found


def access_module(variant: str) -> str:
    """The module of a variant's functions for a model that uses outputs between stages."""
    return f"{variant}_access"
