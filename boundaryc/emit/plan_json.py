"""The resolved plan of one topology as JSON that people can read and diff."""

from __future__ import annotations

import json
from dataclasses import fields

from boundaryc.graph.build import ENTRY, Edge
from boundaryc.plan import ops
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan
from boundaryc.plan.state import NO_RESIDUAL, Phase
from boundaryc.topology import Mesh


def plan_json(plan: StackPlan, topology: TopologyPlan) -> str:
    """Every boundary in order, with its alternatives; one operation a line."""
    document = {
        "stack": plan.stack.name,
        "topology": topology.spec.name,
        "mesh": {atom.name: atom.size for atom in topology.mesh.atoms},
        "skipped": dict(topology.skipped),
        "variants": {
            variant: {
                "row_multiple": multiple,
                "boundaries": [_edge(topology, variant, edge) for edge in plan.graph.edges()],
            }
            for variant, multiple in topology.row_multiples.items()
        },
    }
    return json.dumps(document, indent=1) + "\n"


def _edge(topology: TopologyPlan, variant: str, edge: Edge) -> dict[str, object]:
    found: dict[tuple[object, ...], tuple[Boundary, dict[str, list[str]]]] = {}
    for policy, tables in topology.tables.items():
        for column, table in zip(topology.columns, tables, strict=True):
            if column.variant != variant:
                continue
            boundary = table[edge]
            key = (boundary.start, boundary.goal, boundary.path.ops)
            even = ", ".join(column.even) or "none"
            found.setdefault(key, (boundary, {}))[1].setdefault(policy, []).append(even)
    return {
        "boundary": f"{edge.producer or 'start'} -> {edge.consumer}",
        **({"after": edge.source.producer} if edge.source.producer != ENTRY else {}),
        "plans": [
            {**_boundary(topology.mesh, boundary), "policies": _policies(topology, variant, uses)}
            for boundary, uses in found.values()
        ],
    }


def _policies(
    topology: TopologyPlan, variant: str, uses: dict[str, list[str]]
) -> dict[str, list[str] | str]:
    every = sum(column.variant == variant for column in topology.columns)
    return {
        policy: "all batches" if len(even) == every else [f"even over {axes}" for axes in even]
        for policy, even in uses.items()
    }


def _boundary(mesh: Mesh, boundary: Boundary) -> dict[str, object]:
    start, goal = boundary.start, boundary.goal
    come: dict[str, str] = {"rows": mesh.words(start.rows)}
    if start.owes:
        come["owes"] = mesh.label(start.owes)
    if start.residual != NO_RESIDUAL and start.phase is not Phase.INITIAL:
        come["residual"] = mesh.words(start.residual)
    return {
        "in": come,
        "out": {"rows": mesh.words(goal.rows), "residual": mesh.words(goal.residual)},
        "ops": [_text(mesh, op) for op in boundary.path.ops],
    }


def _text(mesh: Mesh, op: ops.Operation) -> str:
    """An operation as a line: ``reduce_scatter attn_tp variable``."""
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(op).__name__).lstrip("_")
    words = [name]
    for field in fields(op):
        value = getattr(op, field.name)
        if field.name == "variable":
            words += ["variable"] * value
        elif field.name == "axes":
            words.append(mesh.label(value))
        else:
            words.append(f"{field.name} {mesh.label(value)}")
    return " ".join(words)
