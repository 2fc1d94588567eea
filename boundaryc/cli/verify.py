"""`boundaryc verify`."""

from __future__ import annotations

import gc
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from boundaryc.cli import Exit
from boundaryc.cli.output import style
from boundaryc.cli.verified import tell
from boundaryc.emit.origin import OUT

if TYPE_CHECKING:
    from boundaryc.emit.build import Build
    from boundaryc.language import Stack
    from boundaryc.plan.result import StackPlan
    from boundaryc.verify.cells import Cell, Outcome
    from boundaryc.verify.matrix import Selection
    from boundaryc.verify.proof import Task

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

SHOWN = 5
"""Failing cells that are told in full before the rest is only counted."""

MOST_ROWS = 4096
"""Tokens of one group in --rows: all ranks' rows are held in one process."""

LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Proof:
    """One stack's cells, those that were asked for, and what is needed to run them."""

    task: Task
    plan: StackPlan
    cells: list[Cell]


def _cells(command: CommandT) -> CommandT:
    """Adds the options that select cells."""
    repeatable = (
        ("--stack", "stacks", "Only this stack of the file: its own, or a draft by its full name."),
        ("--topology", "topologies", "Only this topology."),
        ("--variant", "variants", "Only this batch variant."),
        ("--policy", "policies", "Only this policy."),
        ("--padding", "paddings", "Only this padding."),
        ("--batches", "batches", "Only the batches of this name."),
        ("--split", "splits", "Only this split of context-parallel batches."),
        ("--entry", "entries", "Only this state of the stack's input: complete or partial."),
        ("--size", "sizes", "Only the plans of this size of batch: few or many rows."),
        (
            "--halves",
            "halves",
            "Only batches that are whole (none), or in two that overlap, whose "
            "FFNs compute in exits or alone; for a file with overlap.",
        ),
        ("--mode", "modes", "Only this mode: prefill or decode, where a stack tells them apart."),
    )
    for name, key, what in reversed(repeatable):
        command = click.option(name, key, multiple=True, help=f"{what} Repeatable.")(command)
    return command


def _recordings(command: CommandT) -> CommandT:
    """Adds the options that compare two recordings."""
    readable = click.Path(exists=True, dir_okay=False, path_type=Path)
    against = click.option(
        "--against",
        type=readable,
        help="A reference model's states per layer (torch.save of a list); needs --observed.",
    )
    observed = click.option(
        "--observed",
        type=readable,
        help="The same states of a real run, as boundaryc.verify.against.Recorder saves them.",
    )
    tolerance = click.option(
        "--tolerance",
        type=click.FloatRange(min=0),
        default=1e-4,
        show_default=True,
        help="For --against.",
    )
    return against(observed(tolerance(command)))


@click.command("verify")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(OUT),
    show_default=True,
    help="The folder that holds the published code.",
)
@_cells
@click.option("--rows", help="One batch: the tokens of each attention-DP group, as in 3,0,5,1.")
@click.option("--cut", help="The layers before which pipeline cuts lie, as in 2,5; or none.")
@click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    default=0,
    show_default=True,
    help="Of weights and tokens.",
)
@click.option("--covering", is_flag=True, help="A sample that covers every pair of choices.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Processes that run cells.",
)
@_recordings
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def verify(file: Path, out: Path, seed: int, jobs: int, as_json: bool, **chosen: Any) -> int:
    """Runs the published code of FILE's stacks on simulated ranks, against an independent oracle.

    Example: boundaryc verify examples/qwen3/stack.yaml --topology tp4_dp2 --rows 3,0

    Every rank's rows and residual are compared at every stage, for every topology, variant,
    policy, padding and batch that is not excluded. The smallest cell that still fails is shown with
    the command that reruns it. Custom operations are imported, from the current folder too. With
    --against and --observed nothing is run: the first layer that a run enters with another residual
    than its reference is named.

    Exits 1 if a cell fails or a layer differs, 2 for what there is not or what is not fresh.
    """
    if as_json:
        click.get_current_context().ensure_object(dict)["format"] = "json"
    if chosen["against"] is not None or chosen["observed"] is not None:
        return _against(file, chosen)
    selection = _selection(chosen)
    _needs_greenlet()
    gc.enable()  # ranks leave cycles behind
    from boundaryc.verify.meaning import OperationError

    try:
        with _current_folder():
            proofs = [
                _proof(made, selection, seed, chosen["covering"])
                for made in _fresh(file, out, chosen["stacks"])
            ]
            if not any(proof.cells for proof in proofs):
                raise click.UsageError(
                    "no cell is selected: no topology has all that the options name"
                )
            return _run(proofs, jobs, out)
    except OperationError as problem:
        style().failure(str(problem))
        return Exit.FINDINGS


def _import_operations(plan: StackPlan) -> None:
    """Fails now, not in every cell, where one is not there or not as claimed: OperationError."""
    from boundaryc.verify.meaning import load_operation
    from boundaryc.verify.probe import probe

    for declared in plan.stack.operations:
        load_operation(declared)
        probe(declared, plan.stack.hidden_size)


def _run(proofs: list[Proof], jobs: int, out: Path) -> int:
    """Runs cells and tells what they showed. OperationError where a custom operation fails."""
    from boundaryc.verify.proof import prove

    found = [
        (proof, list(_watched(prove(proof.task, proof.cells, jobs=jobs), len(proof.cells))))
        for proof in proofs
    ]
    failed = [(p, [one for one in outcomes if one.failure is not None]) for p, outcomes in found]
    tell(found)
    for proof, failures in failed:
        if failures:
            _explain(proof.task, failures, out)
    total = sum(len(outcomes) for _, outcomes in found)
    wrong = sum(len(failures) for _, failures in failed)
    click.echo(f"{total - wrong} of {total} cells hold", err=True)
    return Exit.FINDINGS if wrong else Exit.OK


def _proof(made: Build, selection: Selection, seed: int, sample: bool) -> Proof:
    """The cells to run of one stack, whose operations are there."""
    from boundaryc.api import plan
    from boundaryc.verify.matrix import covering, matrix
    from boundaryc.verify.proof import Task

    planned = plan(made.stack)
    _import_operations(planned)
    try:
        cells = list(matrix(planned, selection))
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    task = Task(made.source, made.name, made.output.files, seed)
    return Proof(task, planned, covering(cells) if sample else cells)


def _needs_greenlet() -> None:
    try:
        import greenlet  # noqa: F401 - whether it is there
    except ImportError:
        raise click.ClickException(
            "simulated ranks need greenlet; install boundaryc with its extra: boundaryc[verify]"
        ) from None


@contextmanager
def _current_folder() -> Iterator[None]:
    """Lets custom operations be imported from the current folder, behind all that is installed.

    An installed script, unlike ``python -m``, does not see that folder.
    """
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _against(file: Path, chosen: dict[str, Any]) -> int:
    from boundaryc.language import load
    from boundaryc.report.documents import Recordings
    from boundaryc.verify.against import compare_states

    if chosen["against"] is None or chosen["observed"] is None:
        raise click.UsageError("--against and --observed go together")
    if not math.isfinite(chosen["tolerance"]):
        raise click.UsageError("--tolerance takes a finite number")
    reference, observed = (_states(chosen, name) for name in ("against", "observed"))
    try:
        growth = compare_states(reference, observed, chosen["tolerance"])
    except ValueError as problem:
        raise click.UsageError(f"--against and --observed do not match: {problem}") from None
    how = style()
    for line in growth.lines(_selected(load(file).family, chosen["stacks"])[0]):
        how.result(line)
    found = Recordings(growth.errors, growth.tolerance, growth.first)
    how.document("recordings", **asdict(found))
    return Exit.OK if growth.first is None else Exit.FINDINGS


def _states(chosen: dict[str, Any], option: str) -> list[Any]:
    from boundaryc.verify.against import read_states

    try:
        return read_states(chosen[option])
    except ValueError as problem:
        raise click.UsageError(f"--{option}: {problem}") from None


def _fresh(file: Path, out: Path, stacks: Sequence[str]) -> list[Build]:
    """The named stacks of a file, or all, as they are published; refuses what is not fresh."""
    from boundaryc.emit.build import build, to_publish
    from boundaryc.emit.freshness import compare

    every = build(file, out)
    names = [stack.name for stack in _selected([made.stack for made in every], stacks)]
    found = [made for made in every if made.name in names]
    # A copy of the runtime is what we have here: what runs is the same code without it.
    for finding in compare(to_publish(every, out), out).findings:
        stack = finding.path.partition("/")[0]
        if stack in names:
            again = shlex.join(["boundaryc", "compile", str(file), *_out_words(out)])
            raise click.ClickException(
                f"{out / stack} is not what {file} compiles to "
                f"({finding.path} is {finding.state.value}); run: {again}"
            )
    return found


def _selected(family: Sequence[Stack], names: Sequence[str]) -> list[Stack]:
    """The stacks of a file that --stack names; all without it."""
    known = [stack.name for stack in family]
    for name in names:
        if name not in known:
            raise click.UsageError(f"--stack: unknown name {name!r}; there is {', '.join(known)}")
    return [stack for stack in family if not names or stack.name in names]


def _out_words(out: Path) -> list[str]:
    return [] if out == Path(OUT) else ["--out", str(out)]


def _selection(chosen: dict[str, Any]) -> Selection:
    from boundaryc.verify.matrix import Selection

    names = ("topologies", "variants", "policies", "paddings")
    more = ("batches", "splits", "entries", "sizes", "modes", "halves")
    if chosen["rows"] is not None and chosen["batches"]:
        raise click.UsageError("--rows is a batch of its own; it excludes --batches")
    rows = None if chosen["rows"] is None else _rows(chosen["rows"])
    cuts = None if chosen["cut"] is None else _layers(chosen["cut"])
    return Selection(**{name: chosen[name] for name in (*names, *more)}, rows=rows, cuts=cuts)


def _layers(text: str) -> tuple[int, ...]:
    """The numbers of --cut."""
    words = [word.strip() for word in text.split(",")]
    if words == ["none"]:
        return ()
    if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in words):
        raise click.UsageError(f"--cut takes layers, as in 2,5, or none: {text[:60]!r}")
    return tuple(sorted({int(word) for word in words}))


def _rows(text: str) -> tuple[int, ...]:
    """The numbers of --rows."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise click.UsageError(f"--rows takes numbers from 0 on, as in 3,0: {text[:60]!r}")
    rows = tuple(int(word) for word in words)
    if max(rows) > MOST_ROWS:
        raise click.UsageError(f"--rows takes at most {MOST_ROWS} tokens a group, not {max(rows)}")
    return rows


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


def _explain(task: Task, failures: list[Outcome], out: Path) -> None:
    """Tells the first failures, each shrunk, with the command that reruns just that one."""
    from boundaryc.verify.run import shrink

    prover = task.prover()
    for failure in failures[:SHOWN]:
        smallest = shrink(prover, failure.cell)
        click.echo(f"failed: {failure.cell}\n  smallest: {smallest.cell}", err=True)
        click.echo(f"  {smallest.failure}".replace("\n", "\n  "), err=True)
        stack = prover.subject.plan.stack
        cuts, halves = stack.pipeline is not None, stack.two_batch
        selects = _cell_words(smallest.cell, can_cut=cuts, can_split=halves)
        words = ["boundaryc", "verify", str(task.source), *_out_words(out)]
        words += ["--stack", task.stack, *selects, "--seed", str(task.seed)]
        click.echo(f"  rerun: {shlex.join(words)}", err=True)
    if len(failures) > SHOWN:
        click.echo(f"... and {len(failures) - SHOWN} more", err=True)


def _cell_words(cell: Cell, *, can_cut: bool = False, can_split: bool = False) -> list[str]:
    """The options that select one cell and no other."""
    words = ["--topology", cell.topology, "--variant", cell.variant]
    words += ["--policy", cell.policy, "--padding", cell.padding]
    words += ["--rows", ",".join(map(str, cell.rows))]
    words += ["--cut", ",".join(map(str, cell.cuts)) or "none"] if can_cut else []
    words += ["--halves", cell.halves or "none"] if can_split else []
    if cell.split:
        words += ["--split", cell.split]
    words += ["--entry", cell.entry, "--size", "many" if cell.many else "few"]
    return [*words, "--mode", cell.mode]
