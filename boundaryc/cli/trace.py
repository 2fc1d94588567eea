"""`boundaryc trace`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from boundaryc.cli import Exit
from boundaryc.cli.options import json_too, output_style
from boundaryc.cli.output import annotation, style

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group("trace", no_args_is_help=False)
def trace() -> None:
    """Reads the traces that ranks write into the folder that BOUNDARYC_TRACE names.

    Example: boundaryc trace compare traces/

    Exits as its commands do.
    """


@trace.command("compare")
@click.argument("first", metavar="A", type=_FOLDER)
@click.argument("second", metavar="[B]", type=_FOLDER, required=False)
@json_too
@output_style
def compare(first: Path, second: Path | None) -> int:
    """Finds the first collective in which the ranks of run A differ, or the runs A and B.

    Example: boundaryc trace compare traces/today traces/yesterday

    Exits 1 if they differ, 2 where there are no traces.
    """
    from boundaryc.report.trace import TraceError
    from boundaryc.report.trace import compare as compared

    try:
        report = compared(first, second)
    except TraceError as problem:
        raise click.ClickException(str(problem)) from None
    how = style()
    if how.format == "github" and report.first is not None:
        click.echo(annotation("error", "boundaryc trace", str(report.first)))
    if not (how.quiet and report.agree):
        how.result(str(report))
    how.document("trace", **asdict(report.document()))
    return Exit.OK if report.agree else Exit.FINDINGS
