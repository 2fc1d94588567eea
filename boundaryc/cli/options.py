"""What several commands are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from boundaryc.emit.origin import OUT

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def files_and_out(command: CommandT) -> CommandT:
    """Adds the stack files and the output folder."""
    files = click.argument(
        "files",
        nargs=-1,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
    )
    out = click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(OUT),
        show_default=True,
        help="The folder that holds one folder for each stack.",
    )
    return files(out(command))


def chosen(files: tuple[Path, ...], out: Path) -> tuple[Path, ...]:
    """The named files, else those that the output was made from; a usage error without any."""
    from boundaryc.api import sources

    found = files or tuple(sources(out))
    if not found:
        raise click.UsageError(
            f"no stack files: name some, or run where {out} was made from some or a stack.yaml lies"
        )
    return found
