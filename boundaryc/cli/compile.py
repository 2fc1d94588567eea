"""`boundaryc compile`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from boundaryc.cli import Exit
from boundaryc.cli.options import chosen, files_and_out, json_too, output_style
from boundaryc.cli.output import Style, annotation, style
from boundaryc.cli.progress import progress

if TYPE_CHECKING:
    from boundaryc.api import Compiled
    from boundaryc.emit.publish import Published


@click.command("compile")
@files_and_out
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option("--replace", is_flag=True, help="Replace what another file was compiled to.")
@click.option("--full", is_flag=True, help="Compile also what its manifest says is unchanged.")
@click.option(
    "--vendor-runtime/--no-vendor-runtime",
    "vendor",
    default=None,
    help="With a copy of the runtime beside the code, or without. As it is published unless given.",
)
@click.option("--watch", "keeps_on", is_flag=True, help="Compile again whenever a file changes.")
@json_too
@output_style
def compile_(
    files: tuple[Path, ...], out: Path, jobs: int, dry_run: bool, keeps_on: bool, **options: Any
) -> int:
    """Compiles stack files and publishes the code, all of it or nothing.

    Example: boundaryc compile models/qwen3/stack.yaml --out generated

    Without FILES, those from which the output folder was made, else stack.yaml.

    Exits 1 for what is wrong in a stack file, 2 where the output cannot be written as asked. With
    --watch it shows both and goes on, and an interruption ends it with 0.
    """
    how = style()
    sources = chosen(files, out)
    once = partial(_once, how, sources, out, jobs=jobs, dry_run=dry_run, **options)
    if keeps_on:
        from boundaryc.cli.watching import watching

        return watching(how, sources, once)
    once()
    return Exit.OK


def _once(how: Style, sources: Sequence[Path], out: Path, *, dry_run: bool, **options: Any) -> None:
    """Compiles, and says what became of it."""
    from boundaryc import api
    from boundaryc.report.text import columns, wrapped

    with progress(how, "compiling") as watch:
        done = api.compile(*sources, out=out, dry_run=dry_run, watch=watch, **options)
    for warning in done.warnings:
        if how.format == "github":
            how.result(annotation("warning", "boundaryc", warning))
        click.echo(f"warning: {warning}", err=True)
    for note in done.notes:
        if how.format == "github":
            how.result(annotation("notice", "boundaryc", note))
        how.say(f"note: {note}")
    if dry_run:
        for one in done.published:
            for verb, names in (("write", one.written), ("remove", one.removed)):
                for name in names:
                    how.result(f"would {verb}: {(out / one.stack / name).as_posix()}")
    if not how.quiet:
        text = f"{'dry run: ' if dry_run else ''}{summary(done.published)}"
        how.result("\n".join(wrapped(text, columns())))
    if how.json:
        how.document("compile", **_content(done, dry_run))


def summary(published: Sequence[Published]) -> str:
    """How many files of all stacks became what."""
    return ", ".join(f"{count} {word}" for word, count in _counts(published).items())


def _counts(published: Sequence[Published]) -> dict[str, int]:
    return {
        "written": sum(len(one.written) for one in published),
        "unchanged": sum(len(one.unchanged) for one in published),
        "removed": sum(len(one.removed) for one in published),
    }


def _content(done: Compiled, dry_run: bool) -> dict[str, object]:
    from boundaryc.report.documents import Compilation, Counted, PublishedStack

    stacks = tuple(
        PublishedStack(
            one.stack,
            tuple(one.written),
            tuple(one.unchanged),
            tuple(one.removed),
            tuple(one.kept),
            tuple(one.edited),
        )
        for one in done.published
    )
    counts = Counted(**_counts(done.published))
    return asdict(Compilation(dry_run, counts, stacks, tuple(done.notes), tuple(done.warnings)))
