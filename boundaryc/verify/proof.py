"""Runs a whole matrix, in several processes and in several sittings, and sums it up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from boundaryc.language import load
from boundaryc.plan.compose import plan_stack
from boundaryc.verify.cells import Cell, Outcome
from boundaryc.verify.modules import import_package
from boundaryc.verify.run import Prover

Rendered = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker process needs to judge one stack of a file: its generated texts, the seed."""

    source: Path
    stack: str
    files: Rendered
    seed: int

    def prover(self) -> Prover:
        """The stack, planned again, with the given texts imported."""
        family = {stack.name: stack for stack in load(self.source).family}
        plan = plan_stack(family[self.stack])
        return Prover(plan, import_package(self.files, plan.stack.name), seed=self.seed)


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a summary: all cells of a topology and variant, and those of them in halves."""

    topology: str
    variant: str
    cells: int
    failures: int
    error: float
    collectives: int
    wire_bytes: int
    halves: int


def prove(task: Task, cells: Sequence[Cell], *, jobs: int = 1) -> Iterator[Outcome]:
    """Judges cells, in their order; with several jobs in processes of their own."""
    if jobs == 1 or len(cells) < 2 * jobs:
        yield from task.prover().prove(cells)
        return
    with ProcessPoolExecutor(jobs, initializer=_start, initargs=(task,)) as pool:
        yield from pool.map(_judge, cells, chunksize=8)


_prover: Prover | None = None
"""The prover of a worker process: made once by its initializer."""


def _start(task: Task) -> None:
    import torch

    global _prover
    torch.set_num_threads(1)
    _prover = task.prover()


def _judge(cell: Cell) -> Outcome:
    assert _prover is not None
    return _prover.run(cell)


class Journal:
    """Outcomes on disk, one JSON line each, so that a long proof can be interrupted.

    Lines are kept only for the same ``version``: what was proven of other texts proves nothing.
    """

    def __init__(self, path: Path, version: str) -> None:
        self._path = path
        self._version = version
        self.known: dict[Cell, Outcome] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                record = json.loads(line)
                if record["version"] == version:
                    outcome = _from_record(record["outcome"])
                    self.known[outcome.cell] = outcome

    def run(
        self, cells: Sequence[Cell], judge: Callable[[Sequence[Cell]], Iterable[Outcome]]
    ) -> Iterator[Outcome]:
        """The outcomes of ``cells``: those on disk first, then the others as they are judged."""
        yield from (self.known[cell] for cell in cells if cell in self.known)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            for outcome in judge([cell for cell in cells if cell not in self.known]):
                record = {"version": self._version, "outcome": asdict(outcome)}
                file.write(json.dumps(record) + "\n")
                file.flush()
                yield outcome


def _from_record(record: dict[str, object]) -> Outcome:
    cell = dict(record["cell"])  # type: ignore[call-overload]
    cell |= {"rows": tuple(cell["rows"]), "cuts": tuple(cell["cuts"])}
    return Outcome(**{**record, "cell": Cell(**cell)})  # type: ignore[arg-type]


def summarise(outcomes: Iterable[Outcome]) -> list[Line]:
    """One line for each topology and variant, in the order in which they were met."""
    grouped: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        grouped.setdefault((outcome.cell.topology, outcome.cell.variant), []).append(outcome)
    return [
        Line(
            topology,
            variant,
            len(found),
            sum(1 for outcome in found if outcome.failure is not None),
            max(outcome.error for outcome in found),
            max(outcome.collectives for outcome in found),
            max(outcome.wire_bytes for outcome in found),
            sum(1 for outcome in found if outcome.cell.halves),
        )
        for (topology, variant), found in grouped.items()
    ]


def as_markdown(lines: Iterable[Line]) -> list[str]:
    """A summary as the rows of a Markdown table, with its head."""
    rows = [
        "| topology | variant | cells | failures | largest error | collectives | bytes a rank |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    rows.extend(
        f"| {line.topology} | {line.variant} | {line.cells} | {line.failures} | "
        f"{line.error:.1e} | {line.collectives} | {line.wire_bytes} |"
        for line in lines
    )
    return rows
