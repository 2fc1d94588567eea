"""`boundaryc check`."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundaryc.cli import Exit
from boundaryc.cli.diffs import show_diffs
from boundaryc.cli.options import chosen, files_and_out, json_too, output_style
from boundaryc.cli.output import MAX_ANNOTATIONS, Style, annotation, style
from boundaryc.cli.progress import progress
from boundaryc.emit.origin import command

if TYPE_CHECKING:
    from boundaryc.emit.freshness import Finding, Report


@click.command("check")
@files_and_out
@click.option("--full", is_flag=True, help="Render everything again, whatever the hashes say.")
@click.option("--staged", is_flag=True, help="Find also what git's index has not, as it is here.")
@click.option("--no-diff", is_flag=True, help="List the files only.")
@json_too
@output_style
def check(
    files: tuple[Path, ...], out: Path, jobs: int, full: bool, staged: bool, no_diff: bool
) -> int:
    """Compares the published code with what would be published now; changes nothing.

    Example: boundaryc check --full models/qwen3/stack.yaml

    A stack is rendered again only if the manifest's hashes of its meaning, of the compiler or of a
    file do not hold; with --full, as in continuous integration, always.

    Exits 1 for a file that is stale, edited by hand, missing, orphaned or, with --staged, not what
    a commit would have, and if there was nothing to compare. Without FILES, those from which the
    output folder was made, else stack.yaml.
    """
    from boundaryc import api

    how = style()
    sources = chosen(files, out)
    with progress(how, "checking") as watch:
        report = api.check(*sources, out=out, full=full, staged=staged, jobs=jobs, watch=watch)
    fixes = [] if report.fresh else _fixes(report, [str(file) for file in files], out)
    _list(how, report, out)
    if how.format in ("full", "github") and not no_diff:
        show_diffs([finding.diff for finding in report.findings if finding.diff])
    how.document("check", **_content(report, out, fixes))
    if fixes or not how.quiet:
        click.echo(_summary(report), err=True)
    for line in fixes:
        click.echo(f"fix: {line}", err=True)
    return Exit.OK if report.fresh else Exit.FINDINGS


def _list(how: Style, report: Report, out: Path) -> None:
    shown = [(finding.state.value, _shown(finding, out)) for finding in report.findings]
    if how.format == "github":
        for state, path in shown[:MAX_ANNOTATIONS]:
            click.echo(annotation("error", f"boundaryc check: {state}", f"{state}: {path}", path))
        if not report.compared:
            click.echo(annotation("error", "boundaryc check", "nothing was compared"))
    for state, path in shown:
        how.result(f"{state}: {path}")


def _shown(finding: Finding, out: Path) -> str:
    """A finding's path for people; that of a stack file leads out of the folder again."""
    return Path(os.path.normpath(out / finding.path)).as_posix()


def _summary(report: Report) -> str:
    if not report.compared:
        return "nothing was compared"
    words = [f"{count} {state}" for state, count in _counts(report).items() if count]
    return f"{report.compared} files compared: {', '.join(words) or 'all fresh'}"


def _counts(report: Report) -> dict[str, int]:
    from boundaryc.emit.freshness import State

    return {
        state.value: sum(finding.state is state for finding in report.findings) for state in State
    }


def _content(report: Report, out: Path, fixes: list[str]) -> dict[str, object]:
    from boundaryc.report.documents import Check, Found

    findings = tuple(
        Found(
            finding.state.value,
            _shown(finding, out),
            finding.by_hand,
            tuple(finding.diff),
        )
        for finding in report.findings
    )
    summary = {"compared": report.compared, **_counts(report)}
    return asdict(Check(report.fresh, summary, findings, tuple(fixes)))


def _fixes(report: Report, files: list[str], out: Path) -> list[str]:
    """Commands that put the findings right, in the user's own words."""
    from boundaryc.emit.freshness import State

    fixes = []
    if not report.compared or any(not finding.by_hand for finding in report.findings):
        fixes.append(command("compile", files, out.as_posix()))
    by_hand = [finding for finding in report.findings if finding.by_hand]
    for words, staged in ((["rm", "--"], False), (["git", "add", "--"], True)):
        found = [_shown(one, out) for one in by_hand if (one.state is State.UNSTAGED) is staged]
        if found:
            fixes.append(shlex.join([*words, *found]))
    return fixes
