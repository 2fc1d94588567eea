"""In which batches and under which policies an alternative runs, in words."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Protocol

from boundaryc.emit.layout_text import listed, wrapped
from boundaryc.graph.build import FINAL, Edge
from boundaryc.plan.result import Column, StackPlan, TopologyPlan


class Place(Protocol):
    """Where a function runs: an edge, in batches of one column, under one policy."""

    @property
    def edge(self) -> Edge:
        """The boundary."""

    @property
    def column(self) -> int:
        """The kind of batch, an index into the topology's columns."""

    @property
    def policy(self) -> str:
        """The reduction policy."""


def when(
    plan: StackPlan,
    topology: TopologyPlan,
    variant: str,
    uses: Iterable[Place],
    *,
    leaves: bool,
) -> tuple[str, ...]:
    """The lines that say when a function runs and its namesakes do not.

    ``leaves``: it belongs to the end of a stage, and its name does not say what comes next.
    """
    columns = [i for i, column in enumerate(topology.columns) if column.variant == variant]
    by_policy: dict[str, set[int]] = {}
    edges = []
    for use in uses:
        by_policy.setdefault(use.policy, set()).add(use.column)
        edges.append(use.edge)
    groups: dict[frozenset[int], list[str]] = {}
    for policy in topology.tables:
        if policy in by_policy:
            groups.setdefault(frozenset(by_policy[policy]), []).append(policy)
    clauses = [
        _clause(plan, topology, columns, policies, some) for some, policies in groups.items()
    ]
    clauses = [clause for clause in clauses if clause]
    places = _places(plan, edges, leaves=leaves)
    text = "; ".join([*places, *clauses]) or "always"
    return wrapped("when: ", text, indent=4)


def _places(plan: StackPlan, edges: list[Edge], *, leaves: bool) -> list[str]:
    """Between which stages, where the producer and consumer alone do not say it."""
    known = [
        edge
        for edge in plan.graph.edges()
        if (edge.producer, edge.consumer) in {(e.producer, e.consumer) for e in edges}
    ]
    consumers = {edge.consumer for edge in plan.graph.edges() if edge.producer == edges[0].producer}
    words = []
    if leaves and len(consumers) > 1 and {edge.consumer for edge in edges} != consumers:
        names = sorted({edge.consumer for edge in edges})
        shown = ["the final norm" if name == FINAL else name for name in names]
        words.append(f"before {listed(shown, 'or')}")
    if set(known) - set(edges):
        before = sorted({edge.source.producer for edge in edges})
        words.append(
            f"{edges[0].producer} ran "
            + listed([f"after {name}" if name else "first in the stack" for name in before], "or")
        )
    return [", ".join(words)] if words else []


def _clause(
    plan: StackPlan,
    topology: TopologyPlan,
    columns: list[int],
    policies: list[str],
    some: frozenset[int],
) -> str:
    words = []
    if len(policies) < len(topology.tables):
        shown = [f"{name} (auto)" if name == plan.stack.policy_auto else name for name in policies]
        words.append(f"polic{'y' if len(policies) == 1 else 'ies'} {listed(shown)}")
    if len(some) < len(columns):
        every = [topology.columns[index] for index in columns]
        words.append(batches(every, [topology.columns[index] for index in sorted(some)]))
    return ", ".join(words)


def batches(every: list[Column], some: list[Column]) -> str:
    """Which of ``every`` kind of batch of a variant ``some`` are."""
    few, many = ([c for c in every if c.few is not flag] for flag in (False, True))
    for size, part in ((" of few rows", few), (" of many rows", many)):
        if len(part) < len(every) and set(some) <= set(part):
            rest = "" if some == part else _cut(part, some)
            return f"batches{size}{rest}"
    return f"batches{_cut(every, some)}"


def _cut(every: list[Column], some: list[Column]) -> str:
    axes = every[0].even
    for axis_count in range(1, len(axes) + 1):
        for names in combinations(axes, axis_count):
            even = [column for column in every if set(names) <= set(column.even)]
            if some == even:
                return f" cut evenly over {listed(names)}"
            if some == [column for column in every if column not in even]:
                return f" cut unevenly over {listed(names, 'or')}"
    kinds = [listed(column.even) if column.even else "no axis" for column in some]
    return f" cut evenly over {listed(kinds, 'or')} alone"
