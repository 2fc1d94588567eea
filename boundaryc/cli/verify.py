"""`boundaryc verify`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from boundaryc.cli import Exit
from boundaryc.emit.origin import OUT

if TYPE_CHECKING:
    from boundaryc.plan.result import StackPlan
    from boundaryc.verify.cells import Outcome
    from boundaryc.verify.matrix import Selection
    from boundaryc.verify.proof import Task

SHOWN = 5
"""Failing cells that are told in full before the rest is only counted."""


@click.command("verify")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(OUT),
    show_default=True,
    help="The folder that holds the published code.",
)
@click.option("--topology", "topologies", multiple=True, help="Only this topology; repeatable.")
@click.option("--variant", "variants", multiple=True, help="Only this batch variant; repeatable.")
@click.option("--policy", "policies", multiple=True, help="Only this policy; repeatable.")
@click.option("--padding", "paddings", multiple=True, help="Only this padding; repeatable.")
@click.option("--batches", multiple=True, help="Only the batches of this name; repeatable.")
@click.option("--rows", help="One batch: the tokens of each attention-DP group, as in 3,0,5,1.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of weights and tokens.")
@click.option("--covering", is_flag=True, help="A sample that covers every pair of choices.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A reference model's states per layer (torch.save of a list); needs --observed.",
)
@click.option(
    "--observed",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The same states of a real run, as boundaryc.verify.against.Recorder saves them.",
)
@click.option("--tolerance", type=float, default=1e-4, show_default=True, help="For --against.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def verify(file: Path, out: Path, seed: int, jobs: int, as_json: bool, **chosen: Any) -> int:
    """Runs the published code of stack FILE on simulated ranks, against an independent oracle.

    Every rank's rows and residual are compared at every stage, for every topology, variant,
    policy, padding and batch that is not excluded, e.g.

        boundaryc verify examples/qwen3/stack.yaml --topology tp4_dp2 --rows 3,0

    Exits 1 if a cell fails; the smallest cell that still fails is shown with the command that
    reruns it. With --against and --observed nothing is run: the first layer that a run enters with
    another residual than its reference is named.
    """
    if chosen["against"] is not None or chosen["observed"] is not None:
        return _against(file, chosen)
    from boundaryc.verify.matrix import covering, matrix
    from boundaryc.verify.proof import prove

    task, plan = _task(file, out, seed)
    try:
        cells = list(matrix(plan, _selection(chosen)))
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    if chosen["covering"]:
        cells = covering(cells)
    if not cells:
        raise click.UsageError("no cell is selected")
    outcomes = list(_watched(prove(task, cells, jobs=jobs), len(cells)))
    failures = [outcome for outcome in outcomes if outcome.failure is not None]
    if as_json:
        _print_json(outcomes)
    else:
        _print_lines(outcomes)
    if failures:
        _explain(task, failures, file, seed)
    click.echo(f"{len(outcomes) - len(failures)} of {len(outcomes)} cells hold", err=True)
    return Exit.FINDINGS if failures else Exit.OK


def _against(file: Path, chosen: dict[str, Any]) -> int:
    from boundaryc.language import load
    from boundaryc.verify.against import compare_states, read_states

    if chosen["against"] is None or chosen["observed"] is None:
        raise click.UsageError("--against and --observed go together")
    try:
        reference, observed = read_states(chosen["against"]), read_states(chosen["observed"])
        growth = compare_states(reference, observed, chosen["tolerance"])
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    for line in growth.lines(load(file)):
        click.echo(line)
    return Exit.OK if growth.first is None else Exit.FINDINGS


def _task(file: Path, out: Path, seed: int) -> tuple[Task, StackPlan]:
    """The published texts of a stack and its plan; refuses what is not fresh."""
    from boundaryc.api import plan
    from boundaryc.emit.build import build
    from boundaryc.emit.freshness import compare
    from boundaryc.verify.proof import Task

    made = build(file, out)
    report = compare([made], out)
    own = [finding for finding in report.findings if finding.path.startswith(made.output.stack)]
    if own:
        raise click.ClickException(
            f"{out / made.output.stack} is not what {file} compiles to "
            f"({own[0].path} is {own[0].state.value}); run: boundaryc compile {file}"
        )
    return Task(file, made.output.files, seed), plan(file)


def _selection(chosen: dict[str, Any]) -> Selection:
    from boundaryc.verify.matrix import Selection

    rows = None
    if chosen["rows"] is not None:
        try:
            rows = tuple(int(count) for count in chosen["rows"].split(","))
        except ValueError:
            raise click.UsageError(f"--rows takes numbers, as in 3,0: {chosen['rows']!r}") from None
    return Selection(
        topologies=chosen["topologies"],
        variants=chosen["variants"],
        policies=chosen["policies"],
        paddings=chosen["paddings"],
        batches=chosen["batches"],
        rows=rows,
    )


def _watched(outcomes: Iterable[Outcome], total: int) -> Iterator[Outcome]:
    """The outcomes, with a progress bar where someone is watching."""
    if not sys.stderr.isatty():
        yield from outcomes
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(
        outcomes, total=total, console=Console(stderr=True), description="cells", transient=True
    )


def _print_lines(outcomes: list[Outcome]) -> None:
    from boundaryc.verify.proof import summarise

    for line in summarise(outcomes):
        click.echo(
            f"{line.topology:12} {line.variant:18} {line.cells:5} cells {line.failures:4} failed   "
            f"error {line.error:.1e}   {line.collectives:4} collectives "
            f"{line.wire_bytes:9} bytes a rank"
        )


def _print_json(outcomes: list[Outcome]) -> None:
    cells = [asdict(outcome) for outcome in outcomes]
    for cell in cells:
        if cell["error"] == float("inf"):
            cell["error"] = None
    failures = sum(1 for outcome in outcomes if outcome.failure is not None)
    document = {"version": 1, "kind": "verify", "failures": failures, "cells": cells}
    click.echo(json.dumps(document, indent=1))


def _explain(task: Task, failures: list[Outcome], file: Path, seed: int) -> None:
    """Tells the first failures, each shrunk, with the command that reruns just that one."""
    from boundaryc.verify.run import shrink

    prover = task.prover()
    for failure in failures[:SHOWN]:
        smallest = shrink(prover, failure.cell)
        cell = smallest.cell
        words = ["boundaryc", "verify", str(file), "--topology", cell.topology]
        words += ["--variant", cell.variant, "--policy", cell.policy, "--padding", cell.padding]
        words += ["--rows", ",".join(map(str, cell.rows)), "--seed", str(seed)]
        click.echo(f"failed: {failure.cell}\n  smallest: {cell}", err=True)
        click.echo(f"  {smallest.failure}".replace("\n", "\n  "), err=True)
        click.echo(f"  rerun: {shlex.join(words)}", err=True)
    if len(failures) > SHOWN:
        click.echo(f"... and {len(failures) - SHOWN} more", err=True)
