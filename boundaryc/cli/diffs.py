"""Text differences on standard output, so many that they can be read."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from boundaryc.cli.output import colored

SHOWN = 60
"""Lines of a file's diff that are printed before the rest is only counted."""

FILES = 10
"""Files whose diffs are printed; of the others the number."""

_COLORS = {"+": "green", "-": "red", "@": "cyan"}


def show_diffs(diffs: Sequence[Sequence[str]]) -> None:
    """Prints the diffs of some files, each the lines of a unified one."""
    for lines in diffs[:FILES]:
        _show(lines)
    if len(diffs) > FILES:
        click.echo(f"\n... and the diffs of {len(diffs) - FILES} more files")


def _show(lines: Sequence[str]) -> None:
    color = colored(sys.stdout)
    click.echo()
    for line in lines[:SHOWN]:
        click.secho(line, fg=_COLORS.get(line[:1]) if color else None)
    hidden = len(lines) - SHOWN
    if hidden > 0:
        click.echo(f"... and {hidden} more lines")
