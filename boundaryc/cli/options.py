"""What several commands are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from boundaryc.cli.output import FORMATS, remember
from boundaryc.emit.origin import OUT

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def output_style(command: CommandT) -> CommandT:
    """Adds --output-format and --quiet, which `boundaryc.cli.output.style` then knows."""
    format_ = click.option(
        "--output-format",
        type=click.Choice(FORMATS),
        default="full",
        show_default=True,
        is_eager=True,
        expose_value=False,
        callback=remember,
        help="How diagnostics and results are written.",
    )
    quiet = click.option(
        "--quiet",
        "-q",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=remember,
        help="Only what is wrong.",
    )
    return format_(quiet(command))


def json_too(command: CommandT) -> CommandT:
    """Adds --json, which is short for --output-format json."""
    return click.option(
        "--json",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=remember,
        help="Short for --output-format json.",
    )(command)


def stack_files(command: CommandT) -> CommandT:
    """Adds the stack files."""
    return click.argument(
        "files",
        nargs=-1,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
    )(command)


def files_and_out(command: CommandT) -> CommandT:
    """Adds the stack files, the output folder and the number of processes."""
    out = click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(OUT),
        show_default=True,
        help="The folder that holds one folder for each stack.",
    )
    jobs = click.option(
        "--jobs",
        "-j",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Processes that compile, each one file at a time.",
    )
    return stack_files(out(jobs(command)))


def chosen(files: tuple[Path, ...], out: Path) -> tuple[Path, ...]:
    """The named files, else those that the output was made from; a usage error without any."""
    from boundaryc.api import sources

    found = files or tuple(sources(out))
    if not found:
        raise click.UsageError(
            f"no stack files: name some, or run where {out} was made from some or a stack.yaml lies"
        )
    return found
