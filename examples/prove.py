"""Runs the whole matrix of every architecture cut over simulated ranks, and writes a page about it.

python -m examples.prove --journal build/hugging_face.jsonl --report docs/hugging_face.md

It can be interrupted: the journal has what was run, and is good for the same code only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path

import torch

from examples.hf.architecture import architecture_names
from examples.hf.cases import Case
from examples.hf.report import Run, page
from examples.hf_ranks import Harness

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Chunk:
    """Runs of one architecture on one compiled stack."""

    name: str
    cases: tuple[Case, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Proves the architectures named on the command line, or all; 1 if a run fails."""
    parser = argparse.ArgumentParser(prog="python -m examples.prove")
    parser.add_argument("names", nargs="*", help="architectures; all of them if none is named")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    names = options.names or architecture_names()
    runs = [run for name in names for run in _proven(name, options.journal, options.jobs)]
    options.report.write_text(page(runs, {name: _harness(name).reference for name in names}))
    failures = sum(not run.holds for run in runs)
    print(f"{len(runs) - failures} of {len(runs)} runs hold ({time.monotonic() - began:.0f} s)")
    return 1 if failures else 0


def _proven(name: str, journal: Path, jobs: int) -> list[Run]:
    """All runs of an architecture: those of the journal, and the others, which are added to it."""
    known = {run.case: run for run in _noted(name, journal)}
    cases = _harness(name).cases()
    missing = sorted((case for case in cases if case not in known), key=_stack)
    chunks = [Chunk(name, tuple(own)) for _, own in groupby(missing, key=_stack)]
    journal.parent.mkdir(parents=True, exist_ok=True)
    with journal.open("a") as file:
        for run in _judged(chunks, jobs):
            record = {"version": _version(), "run": asdict(run)}
            file.write(json.dumps(record) + "\n")
            file.flush()
            known[run.case] = run
    return [known[case] for case in cases]


def _noted(name: str, journal: Path) -> Iterator[Run]:
    for line in journal.read_text().splitlines() if journal.exists() else ():
        record = json.loads(line)
        if record["version"] == _version() and record["run"]["name"] == name:
            yield Run.of(record["run"])


def _judged(chunks: list[Chunk], jobs: int) -> Iterator[Run]:
    if jobs == 1:
        for chunk in chunks:
            yield from _run(chunk)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(_run, chunk) for chunk in chunks]):
            yield from done.result()


def _run(chunk: Chunk) -> list[Run]:
    torch.set_num_threads(1)
    harness = _harness(chunk.name)
    found = []
    for case in chunk.cases:
        error, failure = float("inf"), ""
        try:
            error = harness.run(case)
        except Exception as problem:  # a proof reports every kind of failure of what it judges
            failure = f"{type(problem).__name__}: {problem}"
        holds = error <= harness.reference.tolerance
        found.append(Run(chunk.name, case, error, holds, failure))
    return found


@cache
def _harness(name: str) -> Harness:
    return Harness(name)


@cache
def _version() -> str:
    """What the code and the stack files are, of which a run has been made."""
    digest = sha256()
    for folder in ("boundaryc", "templates", "examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _stack(case: Case) -> tuple[str, str]:
    return case.topology, case.edition


if __name__ == "__main__":
    sys.exit(main())
