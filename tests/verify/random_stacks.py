"""Judges random stacks: an accepted one is right on simulated ranks, a rejected one says why."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from boundaryc.emit.diagnose import planned_family
from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.language import BoundarycError, loads, render
from boundaryc.plan.judge import declarations
from boundaryc.plan.provenance import check
from boundaryc.plan.provenance_batches import count_vectors, size_vectors
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan
from boundaryc.topology.contracts import CONTEXT_PARALLEL
from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, all_plain, matrix
from boundaryc.verify.modules import forget, import_package
from boundaryc.verify.overlap import overlapped
from boundaryc.verify.run import Prover
from tests.verify.random_texts import Case, cases

ORIGIN = Origin("sample.yaml", "boundaryc compile sample.yaml", "0" * 64)
MOST_RANKS = 36
"""Provenance is checked on meshes of at most this many ranks; larger ones are much slower."""


class WrongError(AssertionError):
    """A stack that was accepted and does not hold, or one refused without a diagnostic."""


@dataclass
class Tally:
    """What came of many cases; ``codes`` counts rejections by the code of their first error."""

    accepted: int = 0
    plans: int = 0
    cells: int = 0
    codes: Counter[str] = field(default_factory=Counter)

    @property
    def rejected(self) -> int:
        """Stacks with a diagnostic."""
        return self.codes.total()

    @property
    def stacks(self) -> int:
        """All stacks."""
        return self.accepted + self.rejected


def judge(case: Case, tally: Tally) -> None:
    """Takes a case all the way; raises whatever is wrong with it and adds to ``tally``."""
    try:
        stack = loads(case.text, "sample.yaml")
        plans = planned_family(stack, {"sample.yaml": case.text})
    except BoundarycError as error:
        tally.codes[_first_code(error, case)] += 1
        return
    draw = random.Random(case.seed)
    for plan in plans:
        _judge_plan(plan, case, draw, tally)
    tally.accepted += 1


def _judge_plan(plan: StackPlan, case: Case, draw: random.Random, tally: Tally) -> None:
    """One stack of an accepted file: its plans on provenance, its code on simulated ranks."""
    tally.plans += _check_plans(plan, draw)
    files = emit(plan, ORIGIN).files
    package = import_package(files, "sample")
    try:
        prover = Prover(plan, package, seed=case.seed)
        for cell in _cells(plan, draw):
            outcome = prover.run(cell, schedule=draw.randrange(1 << 30))
            if outcome.failure is not None:
                raise WrongError(f"{cell}: {outcome.failure}")
            tally.cells += 1
            if plan.stack.two_batch and cell.variant != CONTEXT_PARALLEL:
                _overlap(prover, cell, draw)
    finally:
        forget(package)


def _overlap(prover: Prover, cell: Cell, draw: random.Random) -> None:
    """The same cell in two halves, whose FFNs run with or without exits."""
    first = tuple(draw.randint(0, rows) for rows in cell.rows)
    without_exits, schedule = draw.random() < 0.7, draw.randrange(1 << 30)
    if cell.cuts and not all_plain(prover.subject.plan):
        without_exits = False  # such an output is folded where it travels
    try:
        overlapped(prover, cell, first, without_exits=without_exits, schedule=schedule)
    except Exception as error:
        raise WrongError(f"{cell} in halves, the first {first}: {error}") from error


def _first_code(error: BoundarycError, case: Case) -> str:
    if not error.diagnostics:
        raise WrongError("rejected without a diagnostic") from error
    for diagnostic in error.diagnostics:
        if not (diagnostic.message and diagnostic.help and diagnostic.span):
            raise WrongError(f"a diagnostic lacks its place or its help: {diagnostic}") from error
    if not render(error.diagnostics, {"sample.yaml": case.text}):
        raise WrongError("the diagnostics have no text") from error
    return error.diagnostics[0].code


def _check_plans(plan: StackPlan, draw: random.Random) -> int:
    """Runs every different plan on provenance, each on one drawn mesh and batch."""
    seen: set[object] = set()
    for topology in plan.topologies:
        for boundary in _boundaries(topology):
            if (boundary, len(topology.mesh.atoms)) in seen:
                continue
            seen.add((boundary, len(topology.mesh.atoms)))
            _check_plan(boundary, len(topology.mesh.atoms), draw)
    return len(seen)


def _boundaries(topology: TopologyPlan) -> dict[Boundary, None]:
    tables = [table for tables in topology.tables.values() for table in tables]
    return dict.fromkeys(boundary for table in tables for boundary in table.values())


def _check_plan(boundary: Boundary, atoms: int, draw: random.Random) -> None:
    meshes = [sizes for sizes in size_vectors(atoms) if _ranks(sizes) <= MOST_RANKS]
    sizes = draw.choice(meshes)
    counts = draw.choice(count_vectors(sizes, boundary.facts.even))
    start, goal = declarations(boundary)
    faults = check(boundary.path.ops, sizes=sizes, start=start, goal=goal, counts=counts)
    if faults:
        raise WrongError(f"{boundary.edge} {boundary.path.ops} on {sizes} {counts}: {faults[0]}")


def _ranks(sizes: tuple[int, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _cells(plan: StackPlan, draw: random.Random) -> list[Cell]:
    """One to three cells of the stack, each with rows of its own."""
    chosen = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        topology = draw.choice(plan.topologies)
        selection = Selection(topologies=(topology.spec.name,), rows=_rows(topology, draw))
        known = list(matrix(plan, selection))
        if known:
            variant = draw.choice(sorted({cell.variant for cell in known}))
            chosen.append(draw.choice([cell for cell in known if cell.variant == variant]))
    return chosen


def _rows(topology: TopologyPlan, draw: random.Random) -> tuple[int, ...]:
    """Rows of every group: few or many, empty or not, equal or not."""
    spec = topology.spec
    most = draw.choice((1, 3, 2 * spec.attn_cp, 2 * spec.attn_tp * spec.attn_cp + 1, 16))
    if draw.random() < 0.2:
        return (draw.randint(0, most),) * spec.attn_dp
    empty = draw.choice((0.0, 0.3))
    return tuple(0 if draw.random() < empty else draw.randint(0, most) for _ in range(spec.attn_dp))


def run_chunk(number: int, count: int) -> Tally:
    """Judges ``count`` cases of the seed ``number``; a failure is shrunk and raised."""
    torch.set_num_threads(1)
    tally = Tally()

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(cases())
    def every(case: Case) -> None:
        judge(case, tally)

    every()
    return tally
