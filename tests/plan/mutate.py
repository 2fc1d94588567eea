"""`python -m tests.plan.mutate`: damages plans of the whole matrix, one operation at a time.

Every damaged plan that leaves another result must be rejected by the provenance checker, and every
one that the typing rules admit must leave the same result. Prints its seed and what it found;
exits 1 for a plan that escaped.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import click

from boundaryc.language import load
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.judge import declarations
from boundaryc.plan.ops import Operation
from boundaryc.plan.provenance import rejections
from boundaryc.plan.result import Boundary
from boundaryc.plan.state import Phase, State
from boundaryc.plan.transitions import Goal
from tests.plan.mutations import changes_result, mutations

MATRIX = Path(__file__).parents[1] / "fixtures" / "matrix"


def distinct(files: list[Path]) -> Iterator[tuple[Boundary, int]]:
    """Every distinct plan of some stacks, with the atoms of its mesh."""
    seen = set()
    for file in files:
        for planned in plan_stack(load(file)).topologies:
            atoms = len(planned.mesh.atoms)
            for tables in planned.tables.values():
                for table in tables:
                    for boundary in table.values():
                        key = (boundary.path.ops, atoms, boundary.facts.even, boundary.goal)
                        key = (*key, *declarations(boundary))
                        if key not in seen:
                            seen.add(key)
                            yield boundary, atoms


def typed(ops: tuple[Operation, ...], boundary: Boundary) -> bool:
    """Whether the planner's typing rules admit these operations and they arrive."""
    state: State | None = boundary.start
    for op in ops:
        state = op.apply(state, boundary.facts) if state is not None else None
    if state is None or state.phase is not Phase.INPUT or not state.handed_off:
        return False
    return Goal(state.rows, state.residual, state.by_token) == boundary.goal


def main(arguments: list[str] | None = None) -> int:
    """Runs the campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.plan.mutate")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    draw = random.Random(options.seed)
    plans = list(distinct(sorted(MATRIX.glob("*.yaml"))))
    changed = tried = escaped = 0
    while changed < options.count:
        boundary, atoms = draw.choice(plans)
        _name, ops = draw.choice(list(mutations(boundary.path.ops, atoms=atoms)))
        start, goal = declarations(boundary)
        judged = {"atoms": atoms, "start": start, "goal": goal, "even": boundary.facts.even}
        differs = changes_result(boundary.path.ops, ops, **judged)
        accepted = next(rejections(ops, **judged), None) is None
        if (differs and accepted) or (typed(ops, boundary) and not accepted):
            escaped += 1
        tried, changed = tried + 1, changed + differs
    click.echo(
        f"seed {options.seed}: {len(plans)} plans, {tried} damaged, "
        f"{changed} with another result, {escaped} escaped"
    )
    return 1 if escaped else 0


if __name__ == "__main__":
    raise SystemExit(main())
