"""`python -m boundaryc.verify.document`: proves whole stacks and writes down what was proven.

Interrupted, it goes on where it stopped: outcomes are kept in a journal, one line each, and count
only for the texts they were found with.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boundaryc.api import plan
from boundaryc.emit.build import Build, build
from boundaryc.verify.cells import Outcome
from boundaryc.verify.matrix import Selection, matrix
from boundaryc.verify.proof import Journal, Task, as_markdown, prove, summarise

HEAD = """\
# Proof

Every stack below was planned, emitted and run on simulated ranks: every topology, variant, policy,
padding and batch of its matrix, every rank compared at every stage with a float64 oracle that knows
neither planner nor topology (see `boundaryc/verify`). An error is relative to the largest value
compared; the limit is 1e-12. Collectives and bytes are the largest of any rank for one forward.

`make prove` writes this page. It can be interrupted and goes on where it stopped.
"""


@dataclass(frozen=True, slots=True)
class Proven:
    """One stack's outcomes, and the seconds spent on those that were not known before."""

    source: Path
    stack: str
    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def failures(self) -> int:
        """How many cells do not hold."""
        return sum(1 for outcome in self.outcomes if outcome.failure is not None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Proves the stacks named on the command line; 1 if a cell fails."""
    parser = argparse.ArgumentParser(prog="python -m boundaryc.verify.document")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    builds = [one for file in options.files for one in build(file, Path("generated"))]
    proven = [_prove(one, options.journal, options.jobs, options.seed) for one in builds]
    options.report.write_text(page(proven, options.seed))
    return 1 if any(stack.failures for stack in proven) else 0


def _prove(made: Build, journal: Path, jobs: int, seed: int) -> Proven:
    files = made.output.files
    version = hashlib.sha256(f"{seed}{sorted(files.items())}".encode()).hexdigest()
    task = Task(made.source, made.name, files, seed)
    cells = list(matrix(plan(made.stack), Selection()))
    book = Journal(journal, version)
    began = time.monotonic()
    outcomes = tuple(book.run(cells, lambda some: prove(task, some, jobs=jobs)))
    return Proven(made.source, made.name, outcomes, time.monotonic() - began)


def page(proven: Sequence[Proven], seed: int) -> str:
    """The page that tells what was proven."""
    lines = [HEAD, f"Seed {seed}.", ""]
    for stack in proven:
        lines += [f"## {stack.source.as_posix()}: {stack.stack}", ""]
        held = len(stack.outcomes) - stack.failures
        lines += [f"{held} of {len(stack.outcomes)} cells hold ({stack.seconds:.0f} s).", ""]
        lines += [*as_markdown(summarise(stack.outcomes)), ""]
        lines += [f"* `{o.cell}`: {o.failure}" for o in stack.outcomes if o.failure is not None]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
