"""`boundaryc compile`."""

from __future__ import annotations

from pathlib import Path

import click

from boundaryc.cli.options import chosen, files_and_out


@click.command("compile")
@files_and_out
def compile_(files: tuple[Path, ...], out: Path) -> None:
    """Compiles stack files and publishes the code, all of it or nothing.

    Without FILES, those from which the output folder was made, else stack.yaml.
    """
    from boundaryc import api

    done = api.compile(*chosen(files, out), out=out)
    for note in done.notes:
        click.echo(f"note: {note}", err=True)
    for one in done.published:
        click.echo(str(one))
