"""In which batches and under which policies an alternative runs, in words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from itertools import combinations

from boundaryc.emit.collected import Use, VariantFunctions
from boundaryc.emit.layout_text import listed, wrapped
from boundaryc.emit.shown import shown
from boundaryc.graph.build import ENTRY, Edge
from boundaryc.plan.alike import Case, Kinds, kinds_of
from boundaryc.plan.result import Column, StackPlan, TopologyPlan


def when(
    plan: StackPlan,
    topology: TopologyPlan,
    known: VariantFunctions,
    uses: Iterable[Use],
    every: Collection[Edge],
    *,
    leaves: bool,
) -> tuple[str, ...]:
    """The lines that say when a function runs and its namesakes do not.

    ``every`` are the edges of all of these. ``leaves``: it belongs to the end of a stage, and its
    name does not say what comes next.
    """
    met = [edge for edge in plan.graph.edges() if edge in every]
    by_edge: dict[Edge, list[Use]] = {}
    for use in uses:
        by_edge.setdefault(use.edge, []).append(use)
    groups: dict[frozenset[Case], list[Edge]] = {}
    for edge, own in by_edge.items():
        groups.setdefault(frozenset(known.cases(own)), []).append(edge)
    kinds = kinds_of(topology, known.variant)
    texts = []
    for cases, edges in groups.items():
        place = _place(plan, met, edges, leaves=leaves)
        clauses = _clauses(kinds, tuple(topology.tables), plan.stack.policy_auto, cases)
        texts += [", ".join(filter(None, [place, clause])) for clause in clauses]
    return wrapped("when: ", "; ".join(filter(None, texts)) or "always", indent=4)


def _place(plan: StackPlan, every: list[Edge], edges: list[Edge], *, leaves: bool) -> str:
    """Between which stages, of ``every`` one that a name may mean."""
    consumers = sorted({edge.consumer for edge in edges})
    words = []
    if leaves and len(consumers) < len({edge.consumer for edge in every}):
        names = [shown(plan.stack, name) for name in consumers]
        words.append(f"before {listed(names, 'or')}")
    rest = [edge for edge in every if edge.consumer in consumers and edge not in edges]
    kept = {edge.target.captures for edge in edges}
    if any(edge.target.captures not in kept for edge in rest) and not leaves:
        said = [listed(names) if names else "nothing" for names in sorted(kept)]
        words.append(f"captured: {listed(said, 'or')}")
    elif rest and not {edge.producer for edge in edges} & {edge.producer for edge in rest}:
        behind = [name for name in sorted({edge.producer for edge in edges}) if name]
        first = ["first in the stack"] if any(edge.producer == ENTRY for edge in edges) else []
        words.append(listed([*first, *(f"after {name}" for name in behind)], "or"))
    elif rest:
        before = sorted({edge.source.producer for edge in edges})
        ran = [f"after {name}" if name else "first in the stack" for name in before]
        words.append(f"{edges[0].producer} ran {listed(ran, 'or')}")
    return ", ".join(words)


@lru_cache(maxsize=1024)
def _clauses(
    kinds: Kinds, every: tuple[str, ...], auto: str, cases: frozenset[Case]
) -> tuple[str, ...]:
    """Under which of ``every`` policy in which batches; one empty text where it is all of them."""
    groups: dict[frozenset[int], list[str]] = {}
    for policy in every:
        some = frozenset(case.column for case in cases if case.policy == policy)
        if some:
            groups.setdefault(some, []).append(policy)
    found = []
    for some, policies in groups.items():
        words = []
        if len(policies) < len(every):
            said = [f"{name} (auto)" if name == auto else name for name in policies]
            words.append(f"polic{'y' if len(policies) == 1 else 'ies'} {listed(said)}")
        if len(some) < len(kinds):
            columns = [column for _, column in kinds]
            words.append(batches(columns, [column for index, column in kinds if index in some]))
        found.append(", ".join(words))
    return tuple(found)


def batches(every: list[Column], some: list[Column]) -> str:
    """Which of ``every`` kind of batch of a variant ``some`` are."""
    words, within = _narrowed(every, some)
    if set(some) == set(within):
        return f"batches{words}"
    cut = _cut(within, some)
    if cut:
        return f"batches{words}{cut}"
    rest = [column for column in every if column not in some]
    others, without = _narrowed(every, rest)
    if set(rest) == set(without):
        return f"batches other than those{others}"
    kinds = [_alone(column, within) for column in some]
    return f"batches{words} cut evenly over {listed(kinds, 'or')} alone"


def _narrowed(every: list[Column], some: list[Column]) -> tuple[str, list[Column]]:
    """The traits that ``some`` share and others do not, and all columns that have them."""
    words, within = "", every
    for text, fits in _TRAITS:
        narrower = [column for column in within if fits(column)]
        if len(narrower) < len(within) and set(some) <= set(narrower):
            words, within = words + text, narrower
    return words, within


_TRAITS: tuple[tuple[str, Callable[[Column], bool]], ...] = (
    (" in prefill", lambda column: column.mode == "prefill"),
    (" in decode", lambda column: column.mode == "decode"),
    (" of few rows", lambda column: column.few is True),
    (" of many rows", lambda column: column.few is False),
    (" with a complete input", lambda column: column.entry == "complete"),
    (" whose input still owes a sum", lambda column: column.entry != "complete"),
)
"""Kinds of batch that have words for themselves."""


def _cut(every: list[Column], some: list[Column]) -> str | None:
    """The axes that tell ``some`` from the others; None where no axes do."""
    axes = every[0].even
    for axis_count in range(1, len(axes) + 1):
        for names in combinations(axes, axis_count):
            even = [column for column in every if set(names) <= set(column.even)]
            if some == even:
                return f" cut evenly over {listed(names)}"
            if some == [column for column in every if column not in even]:
                return f" cut unevenly over {listed(names, 'or')}"
    return None


def _alone(column: Column, every: list[Column]) -> str:
    """The axes of one kind of batch, and its other traits where kinds with the same axes differ."""
    words = listed(column.even) if column.even else "no axis"
    if sum(other.even == column.even for other in every) == 1:
        return words
    return words + "".join(text for text, fits in _TRAITS if fits(column))
