"""`boundaryc check`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from boundaryc.cli import Exit
from boundaryc.cli.options import chosen, files_and_out
from boundaryc.emit.freshness import Finding, Report, State
from boundaryc.emit.origin import command

SHOWN = 60
"""Lines of a file's diff that are printed before the rest is only counted."""


@click.command("check")
@files_and_out
@click.option("--no-diff", is_flag=True, help="List the files only.")
def check(files: tuple[Path, ...], out: Path, no_diff: bool) -> int:
    """Compares the published code with what would be published now; changes nothing.

    Exits 1 for a file that is stale, edited by hand, missing or orphaned, and if there was nothing
    to compare. Without FILES, those from which the output folder was made, else stack.yaml.
    """
    from boundaryc.api import check as compare

    found = chosen(files, out)
    report = compare(*found, out=out)
    for finding in report.findings:
        click.echo(f"{finding.state.value}: {(out / finding.path).as_posix()}")
    if not no_diff:
        for finding in report.findings:
            _show(finding)
    click.echo(_summary(report), err=True)
    if report.fresh:
        return Exit.OK
    for line in _fixes(report, [str(file) for file in files], out):
        click.echo(f"fix: {line}", err=True)
    return Exit.FINDINGS


def _show(finding: Finding) -> None:
    if not finding.diff:
        return
    click.echo()
    for line in finding.diff[:SHOWN]:
        click.echo(line)
    hidden = len(finding.diff) - SHOWN
    if hidden > 0:
        click.echo(f"... and {hidden} more lines")


def _summary(report: Report) -> str:
    if not report.compared:
        return "nothing was compared"
    counts = {state: sum(finding.state is state for finding in report.findings) for state in State}
    words = [f"{count} {state.value}" for state, count in counts.items() if count]
    return f"{report.compared} files compared: {', '.join(words) or 'all fresh'}"


def _fixes(report: Report, files: list[str], out: Path) -> list[str]:
    """Commands that put the findings right, in the user's own words."""
    fixes = []
    if not report.compared or any(not finding.by_hand for finding in report.findings):
        fixes.append(command("compile", files, out.as_posix()))
    by_hand = [(out / finding.path).as_posix() for finding in report.findings if finding.by_hand]
    if by_hand:
        fixes.append(shlex.join(["rm", "--", *by_hand]))
    return fixes
