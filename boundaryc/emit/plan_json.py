"""The resolved plan of one topology as JSON that people can read and diff.

Its summary is what the runtime says in the log when the topology is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from boundaryc.emit.plan_text import op_text
from boundaryc.emit.reuse import Reuse
from boundaryc.emit.scope import Scope
from boundaryc.emit.summary import summaries
from boundaryc.graph.build import ENTRY, Edge
from boundaryc.plan import ops
from boundaryc.plan.alike import Case, Followed, Kinds, kinds_of
from boundaryc.plan.result import Column, StackPlan, TopologyPlan
from boundaryc.plan.state import NO_RESIDUAL, Phase, State
from boundaryc.plan.transitions import Goal

WIDTH = 100


class Dumped(NamedTuple):
    """A value as JSON: on one line, None for one too long, and laid out for its depth."""

    line: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Shared:
    """What the documents of topologies with equal plans share: all but sizes and names."""

    summary: Dumped
    boundaries: Mapping[str, Dumped]


def shared_plan(plan: StackPlan, topology: TopologyPlan, reuse: Reuse | None = None) -> Shared:
    """What the document of ``topology`` shares with those of others.

    ``reuse`` has what other topologies of the same plan have been given.
    """
    shared = reuse or Reuse(plan)
    boundaries = {
        variant: shared.of_variant(
            "plan", topology, variant, partial(_variant, plan, topology, variant, shared)
        )
        for variant in topology.row_multiples
    }
    return Shared(_dumped(summaries(plan, topology, shared), 1, key="summary"), boundaries)


def plan_json(plan: StackPlan, topology: TopologyPlan, shared: Shared) -> str:
    """Every boundary in order, with its alternatives; one operation a line."""
    document = {
        "stack": plan.stack.name,
        "topology": topology.spec.name,
        "mesh": {atom.name: atom.size for atom in topology.mesh.atoms},
        "skipped": dict(topology.skipped),
        "summary": shared.summary,
        "variants": {
            variant: {
                "row_multiple": multiple,
                **_few_rows(topology, variant),
                "boundaries": shared.boundaries[variant],
            }
            for variant, multiple in topology.row_multiples.items()
        },
    }
    return f"{_dumped(document).text}\n"


def _dumped(value: object, depth: int = 0, *, key: str = "") -> Dumped:
    """JSON in which short values stay on one line; operations and lines for people get one each."""
    if isinstance(value, Dumped):
        return value
    if isinstance(value, dict):
        start, end, names = "{", "}", [f"{json.dumps(name)}: " for name in value]
        parts = [_dumped(one, depth + 1, key=name) for name, one in value.items()]
    elif isinstance(value, list):
        start, end, names = "[", "]", [""] * len(value)
        parts = [_dumped(one, depth + 1) for one in value]
    else:
        line = json.dumps(value)
        return Dumped(line, line)
    one_line = _one_line(start, names, parts, end)
    short = one_line is not None and 2 * depth + len(key) + len(one_line) < WIDTH
    if one_line is not None and (not value or (short and key not in ("ops", "lines"))):
        return Dumped(one_line, one_line)
    inner = "\n" + " " * (2 * depth + 2)
    items = (f"{inner}{name}{part.text}" for name, part in zip(names, parts, strict=True))
    return Dumped(one_line, f"{start}{','.join(items)}{inner[:-2]}{end}")


def _one_line(start: str, names: list[str], parts: list[Dumped], end: str) -> str | None:
    """All parts on one line, if they may be short enough for it."""
    lines = [part.line for part in parts if part.line is not None]
    if len(lines) < len(parts):
        return None
    line = ", ".join(name + part for name, part in zip(names, lines, strict=True))
    return f"{start}{line}{end}" if len(line) < WIDTH else None


def _few_rows(topology: TopologyPlan, variant: str) -> dict[str, int]:
    """How many rows are still few, where that makes a difference."""
    rows = topology.few_rows.get(variant)
    return {} if rows is None else {"few_rows": rows}


def _variant(plan: StackPlan, topology: TopologyPlan, variant: str, reuse: Reuse) -> Dumped:
    """The boundaries of a variant, which name no size."""
    followed = reuse.followed(topology, variant, topology.tables)
    scope = reuse.library.scope(topology.mesh)
    kinds = kinds_of(topology, variant)
    whens: dict[tuple[int, ...], Dumped] = {}

    def when(tables: tuple[int, ...]) -> Dumped:
        if tables not in whens:
            cases = frozenset(case for table in tables for case in followed[table].cases)
            whens[tables] = _when(kinds, tuple(topology.tables), cases)
        return whens[tables]

    edges = [_edge(scope, followed, edge, when) for edge in plan.graph.edges()]
    return _dumped(edges, 3, key="boundaries")


PLAN = 6
"""How deep in the document a plan of a boundary is."""


def _edge(
    scope: Scope,
    followed: Sequence[Followed],
    edge: Edge,
    when: Callable[[tuple[int, ...]], Dumped],
) -> dict[str, object]:
    """A boundary; ``when`` says in which cases some tables are followed, by their numbers."""
    found: dict[tuple[State, Goal, tuple[ops.Operation, ...]], list[int]] = {}
    for number, one in enumerate(followed):
        boundary = one.table[edge]
        key = (boundary.start, boundary.goal, boundary.path.ops)
        found.setdefault(key, []).append(number)
    return {
        "boundary": f"{edge.producer or 'start'} -> {edge.consumer}",
        **({"after": edge.source.producer} if edge.source.producer != ENTRY else {}),
        **({"captures": list(edge.target.captures)} if edge.target.captures else {}),
        "plans": [
            {**scope.once(_boundary, *shape), "when": when(tuple(tables))}
            for shape, tables in found.items()
        ],
    }


@lru_cache(maxsize=1024)
def _when(kinds: Kinds, every: tuple[str, ...], cases: frozenset[Case]) -> Dumped:
    """Policies with the kinds of batch for which each takes a plan, equal ones together."""
    groups: dict[Kinds, list[str]] = {}
    for policy in every:
        some = tuple(kind for kind in kinds if Case(policy, kind[0]) in cases)
        if some:
            groups.setdefault(some, []).append(policy)
    if groups == {kinds: list(every)}:
        return _dumped("always", PLAN + 1, key="when")
    found = [
        {
            "policies": policies,
            "even": "any" if some == kinds else [list(column.even) for _, column in some],
            **_sizes([column for _, column in some]),
        }
        for some, policies in groups.items()
    ]
    return _dumped(found, PLAN + 1, key="when")


def _sizes(columns: Sequence[Column]) -> dict[str, object]:
    found: dict[str, object] = {}
    if any(column.few is not None for column in columns):
        found["few"] = [column.few for column in columns]
    if any(column.entry != "complete" for column in columns):
        found["entry"] = [column.entry for column in columns]
    if any(column.mode is not None for column in columns):
        found["mode"] = [column.mode for column in columns]
    return found


def _boundary(
    scope: Scope, start: State, goal: Goal, path: tuple[ops.Operation, ...]
) -> Mapping[str, Dumped]:
    """A plan of a boundary, without the cases in which it is followed."""
    mesh = scope.mesh
    come: dict[str, object] = {"rows": mesh.words(start.rows)}
    go: dict[str, object] = {"rows": mesh.words(goal.rows)}
    if goal.residual != NO_RESIDUAL:
        go["residual"] = mesh.words(goal.residual)
    if goal.owes:
        go["owes"] = mesh.label(goal.owes)
    if start.owes:
        come["owes"] = mesh.label(start.owes)
    if start.residual != NO_RESIDUAL and start.phase is not Phase.INITIAL:
        come["residual"] = mesh.words(start.residual)
    for side, by_token in ((come, start.by_token), (go, goal.by_token)):
        if by_token:
            side["order"] = "token"
    texts = [op_text(mesh, op) for op in path]
    plan = {"in": come, "out": go, "ops": texts}
    return {name: _dumped(value, PLAN + 1, key=name) for name, value in plan.items()}
