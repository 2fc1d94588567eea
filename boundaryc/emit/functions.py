"""All functions of one topology: drafted for every boundary, merged where equal, and named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from boundaryc.emit.drafts import Draft, Drafts, ExitDraft, draft
from boundaryc.emit.layout_text import listed
from boundaryc.emit.naming import Traits, suffixes
from boundaryc.emit.scope import Scope
from boundaryc.emit.script import Calls, How
from boundaryc.emit.when import when
from boundaryc.graph.build import ENTRY, FINAL, Edge
from boundaryc.plan import ops
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan

FINAL_READ = "norm"
"""How the end of a stack reads the residual."""

DraftT = TypeVar("DraftT", Draft, ExitDraft)


@dataclass(frozen=True, slots=True)
class Use:
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
        return listed(["the final norm" if name == FINAL else name for name in names], "or")


@dataclass(slots=True)
class VariantFunctions:
    """The functions of one batch variant, in the order in which a forward meets them."""

    variant: str
    functions: dict[tuple[object, ...], Named[Draft]] = field(default_factory=dict)
    exits: dict[tuple[object, ...], Named[ExitDraft]] = field(default_factory=dict)


@dataclass(slots=True)
class TopologyFunctions:
    """Everything one topology needs; ``drafts`` has the functions of each use."""

    plan: TopologyPlan
    scope: Scope
    variants: dict[str, VariantFunctions]
    drafts: dict[Use, Drafts]
    order: tuple[Edge, ...]


def imported_names(plan: StackPlan) -> dict[str, str]:
    """Under which name each operation from outside is imported, by operation."""
    outside = {name: op for name, op in plan.operations.items() if op.call is not None}
    taken = {"Any", "Batch", "ExitDecision", "Norm", "OwedOutput", "Tensor", "add", "add_rms_norm"}
    taken |= {"join"}
    taken |= {"annotations", "batch", "groups", "hidden", "norm", "rms_norm", "rows", "stream"}
    taken |= {param for op in outside.values() for param in op.params}
    calls = {name: f"{op.call}" for name, op in outside.items()}
    names: dict[str, str] = {}
    for name, call in calls.items():
        function = call.partition(":")[2]
        others = {other.partition(":")[2] for other in calls.values() if other != call}
        clashes = function in taken or function in others
        clashes |= any(part in f"_{function}_" for part in ("_to_", "_leave_", "_reduce_"))
        names[name] = f"{name}_operation" if clashes else function
    return names


def topology_functions(plan: StackPlan, topology: TopologyPlan) -> TopologyFunctions:
    """Drafts, merges and names the functions of ``topology``."""
    scope = Scope(topology.mesh)
    edges = _by_repetition(plan)
    result = TopologyFunctions(topology, scope, {}, {}, edges)
    cache: dict[Boundary, Drafts] = {}
    for use in _uses(plan, topology, edges):
        boundary = topology.tables[use.policy][use.column][use.edge]
        if boundary not in cache:
            cache[boundary] = _draft(plan, scope, boundary)
        variant = topology.columns[use.column].variant
        known = result.variants.setdefault(variant, VariantFunctions(variant))
        result.drafts[use] = cache[boundary]
        _record(known, use, cache[boundary], _how(boundary))
    for variant_functions in result.variants.values():
        _name(plan, topology, variant_functions)
    return result


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


def _draft(plan: StackPlan, scope: Scope, boundary: Boundary) -> Drafts:
    producer, consumer = boundary.edge.producer, boundary.edge.consumer
    source = None if producer == ENTRY else plan.stack.stage(producer)
    target = None if consumer == FINAL else plan.stack.stage(consumer)
    calls = Calls(
        producer,
        consumer,
        plan.operations[source.update] if source else None,
        plan.operations[target.read if target else FINAL_READ],
        imported_names(plan),
    )
    scoped = source is not None and source.reduction != "partial"
    return draft(boundary, scope, calls, scoped=scoped)


def _how(boundary: Boundary) -> str:
    words: list[str] = []
    for op in boundary.path.ops:
        match op:
            case ops.AllReduce():
                words.append(How.ALL_REDUCE.value)
            case ops.ReduceScatter(_, variable):
                how = How.VARIABLE_REDUCE_SCATTER if variable else How.REDUCE_SCATTER
                words.append(how.value)
            case ops.GatherSum():
                words.append(How.GATHER_SUM.value)
            case _:
                pass
    return "_".join(words)


def _record(known: VariantFunctions, use: Use, drafts: Drafts, how: str) -> None:
    functions = [drafts.prepare]
    if drafts.leave:
        functions.append(drafts.leave)
    if drafts.exit:
        functions += [drafts.exit.reduce, drafts.exit.leave]
        decision = known.exits.setdefault(drafts.exit.key, Named(drafts.exit, how=how))
        decision.uses.append(use)
    for function in functions:
        known.functions.setdefault(function.key, Named(function, how=how)).uses.append(use)


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
    body = draft if isinstance(draft, Draft) else draft.leave
    return {
        "to": ""
        if not _leaves(draft)
        else f"to_{'_or_'.join(_sorted(edge.consumer for edge in edges))}",
        "own": body.how or "complete",
        "how": named.how or "complete",
        "uneven": body.uneven,
        "after": after(edges),
        "policy": policy_words([use.policy for use in named.uses], auto),
        "batches": "_".join(str(use.column) for use in named.uses),
    }


def _leaves(draft: Draft | ExitDraft) -> bool:
    """Whether a draft belongs to the end of a stage."""
    return isinstance(draft, ExitDraft) or "_to_" not in draft.base


def after(edges: Iterable[Edge]) -> str:
    """After which stages the producers of these edges ran, as words of an identifier."""
    before = _sorted(edge.source.producer for edge in edges)
    words = [name for name in before if name]
    return f"after_{'_or_'.join(words)}" if words else "at_start"


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(set(names))


def names_by_use(functions: TopologyFunctions, use: Use) -> Mapping[str, str]:
    """The qualified names that a use needs: ``prepare`` and, after a stage, ``leave``."""
    variant = functions.plan.columns[use.column].variant
    known, drafts = functions.variants[variant], functions.drafts[use]
    found = {"prepare": f"{variant}.{known.functions[drafts.prepare.key].name}"}
    if drafts.leave:
        found["leave"] = f"{variant}.{known.functions[drafts.leave.key].name}"
    if drafts.exit:
        found["leave"] = f"{variant}.{known.exits[drafts.exit.key].name}"
    return found
