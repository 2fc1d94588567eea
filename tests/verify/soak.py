"""As many random stacks as wanted, in several processes and in several sittings.

    python -m tests.verify.soak --count 100000 --seed 1 --jobs 2

Every chunk of stacks that was judged is a line of the journal; what is there for the same seed and
the same sources is not run again. Exits 1 where a stack failed.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 250
"""Stacks that one process judges before it reports."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of one chunk; ``failure`` is the shrunk stack and its error, or None."""

    version: str
    seed: int
    chunk: int
    stacks: int
    accepted: int
    plans: int
    cells: int
    codes: dict[str, int]
    failure: str | None


def main(arguments: list[str] | None = None) -> int:
    """Runs what the journal lacks and prints the sum; returns the exit code."""
    options = _options(arguments)
    version = sources_version()
    chunks = range(-(-options.count // CHUNK))
    known = read_journal(options.journal, version, options.seed)
    missing = [chunk for chunk in chunks if chunk not in known]
    click.echo(
        f"seed {options.seed}: {len(chunks) * CHUNK} stacks, "
        f"{(len(chunks) - len(missing)) * CHUNK} of them judged before",
    )
    reports = [known[chunk] for chunk in chunks if chunk in known]
    began = time.monotonic()
    for report in _judge_all(missing, options, version):
        reports.append(report)
        done = len(reports) * CHUNK
        click.echo(f"\r{done} stacks, {time.monotonic() - began:.0f} s", nl=False, err=True)
        if report.failure:
            click.echo(f"\nchunk {report.chunk} failed:\n{report.failure}")
    click.echo(err=True)
    click.echo(summary(options.seed, reports))
    return 1 if any(report.failure for report in reports) else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.verify.soak", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="stacks to judge")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--journal", type=Path, default=ROOT / "build" / "soak.jsonl")
    return parser.parse_args(arguments)


def _judge_all(missing: list[int], options: argparse.Namespace, version: str) -> Iterator[Report]:
    """The reports of chunks as they are judged, each written down before it is returned.

    Workers are replaced often: in twenty chunks one grows, and slows down by a fifth.
    """
    options.journal.parent.mkdir(parents=True, exist_ok=True)
    with (
        options.journal.open("a", encoding="utf-8") as journal,
        get_context("spawn").Pool(
            options.jobs, initializer=_spare_collections, maxtasksperchild=5
        ) as pool,
    ):
        for report in pool.imap_unordered(partial(judge_chunk, version, options.seed), missing):
            journal.write(json.dumps(asdict(report)) + "\n")
            journal.flush()
            yield report


def _spare_collections() -> None:
    """Keeps what is imported out of the cycle collector, which takes a tenth of the time."""
    import tests.verify.random_stacks  # noqa: F401

    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def judge_chunk(version: str, seed: int, chunk: int) -> Report:
    """Judges the stacks of one chunk; what they are depends on the two numbers alone."""
    from tests.verify.random_stacks import run_chunk

    number = int.from_bytes(hashlib.sha256(f"{seed} {chunk}".encode()).digest()[:8], "big")
    nothing = Report(version, seed, chunk, 0, 0, 0, 0, {}, None)
    try:
        tally = run_chunk(number, CHUNK)
    except Exception:  # a soak goes on and reports what it found
        return replace(nothing, failure=traceback.format_exc())
    return replace(
        nothing,
        stacks=tally.stacks,
        accepted=tally.accepted,
        plans=tally.plans,
        cells=tally.cells,
        codes=dict(tally.codes),
    )


def read_journal(path: Path, version: str, seed: int) -> dict[int, Report]:
    """The chunks that were judged before, by number; a line that a kill cut short is none."""
    known: dict[int, Report] = {}
    if not path.exists():
        return known
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            report = Report(**json.loads(line))
        except (ValueError, TypeError):
            continue
        if (report.version, report.seed) == (version, seed):
            known[report.chunk] = report
    return known


def summary(seed: int, reports: list[Report]) -> str:
    """The result in one line."""
    codes: Counter[str] = Counter()
    for report in reports:
        codes.update(report.codes)
    rejected = ", ".join(f"{code} {count}" for code, count in sorted(codes.items())) or "none"
    failed = sum(1 for report in reports if report.failure)
    return (
        f"seed {seed}: {sum(report.stacks for report in reports)} stacks, "
        f"{sum(report.accepted for report in reports)} accepted "
        f"({sum(report.plans for report in reports)} plans on provenance, "
        f"{sum(report.cells for report in reports)} cells on simulated ranks), "
        f"{codes.total()} rejected ({rejected}); {failed} chunks failed"
    )


def sources_version() -> str:
    """A hash of everything that a result depends on."""
    found = hashlib.sha256()
    for folder in ("boundaryc", "templates", "tests/verify"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".jinja"):
                found.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
