"""The checks that a damaged copy of the sources goes through; each says what it saw, or None.

Imported in a process that sees the damaged copy as ``boundaryc`` and ``examples``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.language import BoundarycError, loads
from boundaryc.plan import compose
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.judge import declarations
from boundaryc.plan.provenance import check
from boundaryc.plan.provenance_batches import count_vectors
from boundaryc.plan.result import Boundary, StackPlan
from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.modules import import_package
from boundaryc.verify.run import Prover
from tests.verify.faults.plan_checks import disordered, loose, typed, unmet, unplanned
from tests.verify.faults.stacks import INVALID, STACKS

TESTS = Path(__file__).resolve().parents[2]
ORIGIN = Origin("stack.yaml", "boundaryc compile stack.yaml", "0" * 64)


compose.approve = lambda plan: plan
# The planner's own run on provenance is left out: each check is to say what it alone sees.

selected = tuple(STACKS)
"""The stacks that checks look at; the process that runs them narrows it to be quick."""


@cache
def plan(name: str) -> StackPlan:
    """The plan of a stack."""
    return plan_stack(loads(STACKS[name], name))


@cache
def prover(name: str) -> Prover:
    """A stack, rendered and imported."""
    return Prover(plan(name), import_package(emit(plan(name), ORIGIN).files, name))


def plans() -> Iterator[StackPlan]:
    """The plans of the selected stacks."""
    return map(plan, selected)


def provers() -> Iterator[Prover]:
    """The selected stacks, ready to run cells."""
    return map(prover, selected)


def distinct() -> Iterator[tuple[Boundary, tuple[int, ...]]]:
    """Every different boundary with the sizes of its mesh."""
    seen = set()
    for planned in plans():
        for topology in planned.topologies:
            for table in (table for some in topology.tables.values() for table in some):
                for boundary in table.values():
                    if (boundary, topology.mesh.sizes) not in seen:
                        seen.add((boundary, topology.mesh.sizes))
                        yield boundary, topology.mesh.sizes


def planning() -> str | None:
    """Every stack can be planned."""
    try:
        list(plans())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def typing() -> str | None:
    """Every plan is made of legal operations and arrives where it must."""
    for boundary, _ in distinct():
        if not typed(boundary.path.ops, boundary):
            return f"{boundary.edge.producer} to {boundary.edge.consumer}: {boundary.path.ops}"
    return None


def rules() -> str | None:
    """A damaged plan that is still typed is still right, and moves are judged by what they move."""
    return disordered() or loose(distinct())


def demands() -> str | None:
    """Every plan does what its variant and its policy ask for."""
    return next(filter(None, map(unmet, plans())), None)


def traffic() -> str | None:
    """Ranks send as many collectives and bytes as their plans cost."""
    return next(filter(None, map(unplanned, provers())), None)


def provenance() -> str | None:
    """Every plan delivers every row with everything in it once."""
    for boundary, sizes in distinct():
        start, goal = declarations(boundary)
        for counts in count_vectors(sizes, boundary.facts.even):
            faults = check(boundary.path.ops, sizes=sizes, start=start, goal=goal, counts=counts)
            if faults:
                return f"{boundary.edge.producer} to {boundary.edge.consumer}: {faults[0]}"
    return None


def emission() -> str | None:
    """Every plan becomes modules that can be imported."""
    try:
        list(provers())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def cells(stop: Callable[[str], bool]) -> dict[str, str]:
    """Runs cells on simulated ranks until ``stop`` says so; what failed, by the kind of check.

    Values are those that the oracle calls wrong, census are collectives that do not agree or a
    deadlock, refusals are errors of the runtime.
    """
    found: dict[str, str] = {}
    for ready in provers():
        for number, cell in enumerate(_cells(ready.subject.plan)):
            outcome = ready.run(cell, schedule=number)
            if outcome.failure is not None:
                kind = _kind(outcome.failure)
                found.setdefault(kind, f"{cell}: {outcome.failure.splitlines()[0]}")
                if stop(kind):
                    return found
    return found


def _kind(failure: str) -> str:
    if failure.startswith("WorldError"):
        return "census"
    return "values" if failure.startswith("MismatchError") else "refusals"


def _cells(planned: StackPlan) -> list[Cell]:
    """A covering sample, small topologies first."""
    ranks = {topology.spec.name: topology.spec.tp for topology in planned.topologies}
    return sorted(
        covering(list(matrix(planned, Selection()))), key=lambda cell: ranks[cell.topology]
    )


def diagnostics() -> str | None:
    """What must be refused is refused, with the right code."""
    for code, text in INVALID:
        try:
            loads(text)
        except BoundarycError as error:
            if error.diagnostics[0].code != code:
                return f"{error.diagnostics[0].code} where {code} belongs"
        else:
            return f"a stack with {code} is accepted"
    return None


def units() -> str | None:
    """The tests of the runtime and of the planner that need one process only."""
    files = (
        "runtime/test_members.py",
        "runtime/test_stream.py",
        "runtime/test_exits.py",
        "runtime/test_batch.py",
        "runtime/test_sample.py::test_layers_are_runs_within_the_range",
        "runtime/test_rowwise.py",
        "runtime/test_rounding.py",
        "runtime/test_additive.py",
        "runtime/test_quantize.py",
        "test_topology.py",
        "plan/test_joint.py",
        "plan/test_compose.py",
        "language/test_load.py",
    )
    return _pytest(*files)


def gloo() -> str | None:
    """The collectives on four processes."""
    return _pytest("runtime/test_collectives.py")


def _pytest(*files: str) -> str | None:
    """What pytest says first, or None; nothing is printed."""
    caught = _Failures()
    arguments = ["-q", "-x", "-p", "no:cacheprovider", "--no-header", "--import-mode=importlib"]
    # nothing may put the working tree before the copy on the path, of started processes too
    arguments += ["-o", f"pythonpath={Path.cwd()}"]
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        code = pytest.main([*arguments, *(str(TESTS / file) for file in files)], [caught])
    return None if code == 0 else (caught.first or f"pytest ends with {code}")


class _Failures:
    """Remembers the first test that fails."""

    def __init__(self) -> None:
        self.first: str | None = None

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called by pytest for every phase of every test."""
        if report.failed and self.first is None:
            self.first = report.nodeid.rpartition("/")[2]


def demo() -> str | None:
    """The example models on simulated ranks agree with transformers."""
    from tests.verify.faults import models

    try:
        return models.difference()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
