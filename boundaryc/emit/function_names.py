"""What functions and records of a topology are called, by what tells them from their namesakes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from boundaryc.emit.between import AccessDraft, Between, ResumeDraft
from boundaryc.emit.collected import (
    DraftT,
    Named,
    TopologyFunctions,
    Use,
    VariantFunctions,
    distinct,
)
from boundaryc.emit.crossings import Crossing, each_of, traits_of
from boundaryc.emit.drafts import Draft, Drafts, ExitDraft
from boundaryc.emit.naming import Traits, suffixes
from boundaryc.emit.when import when
from boundaryc.graph.build import FINAL, Edge
from boundaryc.plan.result import StackPlan


def name_beside(plan: StackPlan, functions: TopologyFunctions, known: VariantFunctions) -> None:
    """Names what a model that uses outputs between stages needs."""
    taken: set[str] = set()
    _name_all(known.beside.values(), taken, functions, known, str)
    _name_all(known.accesses.values(), taken, functions, known, str.upper)
    _name_all(known.resumes.values(), taken, functions, known, str.upper)
    rest = [one for one in known.beside.values() if not one.crossings]
    for group in by_base(rest):
        _tell_apart(plan, functions, known, group, leaving=False)
    _tell_ways_apart(plan, functions, known)


def name_functions(plan: StackPlan, functions: TopologyFunctions, known: VariantFunctions) -> None:
    """Names the functions and exits of a variant."""
    taken: set[str] = set()
    _name_all(known.functions.values(), taken, functions, known, str)
    _name_all(known.exits.values(), taken, functions, known, str.upper)
    for group in by_base(known.functions.values()):
        _tell_apart(plan, functions, known, group, leaving=True)


def _tell_apart(
    plan: StackPlan,
    functions: TopologyFunctions,
    known: VariantFunctions,
    group: list[Named[Draft]],
    *,
    leaving: bool,
) -> None:
    """Says of each of several namesakes when it runs; ``leaving``: some end a stage."""
    if len(group) == 1:
        return
    every = {use.edge for named in group for use in named.uses}
    for named in group:
        leaves = leaving and _leaves(named.draft)
        named.when = when(plan, functions.plan, known, named.uses, every, leaves=leaves)


def _tell_ways_apart(
    plan: StackPlan, functions: TopologyFunctions, known: VariantFunctions
) -> None:
    """Says when a way runs of which there are several functions, each perhaps other ways too."""
    by_way: dict[Crossing, list[Named[Draft]]] = {}
    for named in known.beside.values():
        for way in named.crossings:
            by_way.setdefault(way, []).append(named)
    for named in known.beside.values():
        rivals = [rival for way in named.crossings for rival in by_way[way] if rival is not named]
        if rivals:
            every = {use.edge for one in (named, *rivals) for use in one.uses}
            several = len({way.target for way in named.crossings}) > 1
            named.when = when(plan, functions.plan, known, named.uses, every, leaves=several)


def by_base(named: Iterable[Named[DraftT]]) -> list[list[Named[DraftT]]]:
    """The drafts in groups of those that would like the same name."""
    groups: dict[str, list[Named[DraftT]]] = {}
    for one in named:
        groups.setdefault(one.base, []).append(one)
    return list(groups.values())


def _name_all(
    named: Iterable[Named[DraftT]],
    taken: set[str],
    functions: TopologyFunctions,
    known: VariantFunctions,
    case: Callable[[str], str],
) -> None:
    for group in by_base(named):
        found: tuple[str, ...] = ("",)
        if len(group) > 1:
            ways = traits_of(one.crossings for one in group)
            pairs = zip(group, ways, strict=True)
            found = suffixes([{**own, **_traits(one, functions, known)} for one, own in pairs])
        for one, suffix in zip(group, found, strict=True):
            one.name = unique(case(one.base), case(suffix), taken)


LONGEST = 80
"""How long a name may become by what tells it from others."""


def unique(base: str, suffix: str, taken: set[str]) -> str:
    """``base`` with ``suffix``, or the first numbered form that is not taken; takes it.

    Where that is too long the name only says that it is another form, which is told elsewhere.
    """
    name = base + suffix
    if len(name) > LONGEST and suffix:
        name = base + ("_FORM" if base.isupper() else "_form")
    number, free = 2, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free)
    return free


def policy_words(policies: Container[str], every: Sequence[str]) -> str:
    """Policies as words of an identifier; ``every`` begins with what `auto` stands for."""
    if every[0] in policies:
        return "auto"
    return "_".join(policy.replace("+", "_") for policy in every if policy in policies)


def _traits(named: Named[DraftT], functions: TopologyFunctions, known: VariantFunctions) -> Traits:
    """What may tell this function from its namesakes, the most telling first."""
    edges, cases = [use.edge for use in named.uses], known.cases(named.uses)
    draft = named.draft
    own = _main(draft)
    return {
        "to": ""
        if named.crossings or not _leaves(draft)
        else f"to_{'_or_'.join(distinct(edge.consumer for edge in edges))}",
        "keeps": "" if isinstance(draft, AccessDraft) else keeping(edges),
        "update": draft.update if isinstance(draft, AccessDraft) else "",
        "residual": draft.residual if isinstance(draft, AccessDraft) else "",
        "own": (own.how if own else "") or "complete",
        "how": named.how or "complete",
        "uneven": own.uneven if own else "",
        "after": after(edges),
        "policy": policy_words({case.policy for case in cases}, functions.policies),
        "each": each_of(named.crossings),
        "batches": "_".join(map(str, sorted({case.column for case in cases}))),
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
    before = distinct(edge.source.producer for edge in edges)
    words = [name for name in before if name]
    return f"after_{'_or_'.join(words)}" if words else "at_start"


def keeping(edges: Iterable[Edge]) -> str:
    """What is captured at these edges, as words of an identifier."""
    names = distinct(name for edge in edges for name in edge.target.captures)
    return f"keeping_{'_'.join(names)}" if names else "keeping_nothing"


def names_by_use(known: VariantFunctions, use: Use) -> Mapping[str, str]:
    """The qualified names that a use needs: ``prepare``, ``resume`` and, after a stage, ``leave``.

    The end of the stack has ``empty`` too, for ranks without rows, and what is behind a merge has
    ``merge``; before one there is only ``leave``, and a branch begins with only ``prepare``. A
    stage that may run without an exit has ``postprocess``.
    """
    drafts, beside = known.drafts[use], known.between.get(use)
    key = (id(drafts), id(beside))  # which are kept with them
    if key not in known.names:
        known.names[key] = _names(known, drafts, beside, use.edge)
    return known.names[key]


def _names(
    known: VariantFunctions, drafts: Drafts, beside: Between | None, edge: Edge
) -> Mapping[str, str]:
    own = {
        "prepare": drafts.prepare,
        "leave": drafts.leave,
        "merge": drafts.merge,
        "postprocess": drafts.postprocess,
    }
    names = {what: known.functions[one.key].name for what, one in own.items() if one}
    if drafts.exit:
        names["leave"] = known.exits[drafts.exit.key].name
    found = {what: f"{known.homes[name]}.{name}" for what, name in names.items()}
    if beside is None:
        return found
    names = {"resume": known.resumes[beside.resume.key].name}
    if edge.consumer == FINAL:
        found["empty"] = "None"
        if beside.empty:
            names["empty"] = known.beside[beside.empty.key].name
    return found | {what: f"{known.homes_beside[name]}.{name}" for what, name in names.items()}


def access_module(variant: str) -> str:
    """The module of a variant's functions for a model that uses outputs between stages.

    Where it is divided, that of what is left in the stream.
    """
    return f"{variant}_access"
