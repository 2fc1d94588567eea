"""No plan leaves the planner before the provenance checker has run it.

A few meshes and batches are enough here: all sizes two, and two and three mixed, each with uneven
and with partly empty batches. `make prove` and the tests run the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from boundaryc.plan.access import Ops
from boundaryc.plan.alike import alike, form
from boundaryc.plan.cuts import cut_plans
from boundaryc.plan.judge import declarations
from boundaryc.plan.path import Way
from boundaryc.plan.provenance import DeclaredGoal, DeclaredStart, check
from boundaryc.plan.provenance_batches import count_vectors, size_vectors
from boundaryc.plan.result import Boundary, StackPlan, Table, TopologyPlan
from boundaryc.topology.contracts import regime


class RejectedPlanError(AssertionError):
    """The planner found a path that does not do what it was asked: a fault in the planner."""


def approve(plan: StackPlan) -> StackPlan:
    """The same plan, each distinct boundary of it executed on provenance.

    Boundaries that differ only in the sizes of their mesh are one: the checker chooses sizes.
    """
    judged: set[object] = set()
    for topology, *_ in alike(plan.topologies):
        met: set[object] = set()
        for variant, table in _distinct(topology):
            _check_merges(table)
            rows = regime(variant, topology.mesh).rows
            for boundary in table.values():
                even = boundary.facts.even & boundary.path.fixed
                # Many batches share a path, which the plan keeps: it is told by its identity.
                here = (rows, boundary.edge, boundary.start, boundary.goal, even, id(boundary.path))
                if here in met:
                    continue
                met.add(here)
                cut = len(topology.mesh.atoms)
                same = (*here[:5], cut, form(boundary.facts), boundary.path.ops)
                if same not in judged:
                    judged.add(same)
                    _judge(plan, boundary, rows, cut)
    return plan


def _judge(plan: StackPlan, boundary: Boundary, rows: int, atoms: int) -> None:
    """Executes a boundary and every way over a cut at it, on batches no more even than it needs.

    So one execution serves all kinds of batch that share its operations: what is right where fewer
    sizes are promised to be equal is right where more are.
    """
    declared = declarations(boundary)
    for way, ops in (("", boundary.path.ops), *cut_plans(plan, boundary, rows)):
        even = boundary.facts.even & Way(ops).fixed
        fault = _fault(ops, atoms, even, *declared)
        if fault is not None:
            words = f"{boundary.edge.producer} -> {boundary.edge.consumer}"
            words += f", {way} at a cut," if way else ""
            raise RejectedPlanError(f"{words} on a mesh of {fault}")


def _distinct(topology: TopologyPlan) -> Iterable[tuple[str, Table]]:
    """The tables of a topology, each once for a variant: policies share many."""
    found = {
        (column.variant, id(table)): table
        for tables in topology.tables.values()
        for column, table in zip(topology.columns, tables, strict=True)
    }
    return ((variant, table) for (variant, _), table in found.items())


def _check_merges(table: Table) -> None:
    """Every merge adds two outputs of one declaration, and the stack goes on from their sum.

    One of them comes with the residual, which is the one that the stack goes on with.
    """
    for node in {edge.target for edge in table if edge.merges}:
        ending = [table[edge] for edge in table if edge.target == node]
        goals = {(boundary.goal.rows, boundary.goal.owes) for boundary in ending}
        going = {(b.start.rows, b.start.owes, b.start.residual)
                 for edge, b in table.items() if edge.source == node}  # fmt: skip
        rests = [b.goal.residual for b in ending if not b.edge.beside]
        besides = sum(boundary.edge.beside for boundary in ending)
        right = len(goals) == 1 and len(going) == 1 and besides and len(set(rests)) == 1
        if not right or going != {(*goals.pop(), rests[0])}:
            raise RejectedPlanError(f"the outputs merged behind {node.producer} do not fit")


@lru_cache(maxsize=32768)
def _fault(ops: Ops, atoms: int, even: int, start: DeclaredStart, goal: DeclaredGoal) -> str | None:
    """What executing a plan finds, behind the mesh on which it does; the same for every stack."""
    vectors = size_vectors(atoms)
    for sizes in dict.fromkeys((vectors[0], vectors[-1])):
        for counts in count_vectors(sizes, even)[1:3]:
            faults = check(ops, sizes=sizes, start=start, goal=goal, counts=counts)
            if faults:
                return f"{sizes}: {faults[0]}"
    return None
