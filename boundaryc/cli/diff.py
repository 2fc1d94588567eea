"""`boundaryc diff`."""

from __future__ import annotations

from dataclasses import asdict

import click

from boundaryc.cli import Exit
from boundaryc.cli.completing import files
from boundaryc.cli.diff_annotations import annotated
from boundaryc.cli.diffs import show_diffs
from boundaryc.cli.options import json_too, output_style
from boundaryc.cli.output import style


@click.command("diff")
@click.argument("old", metavar="OLD", shell_complete=files)
@click.argument("new", metavar="NEW", shell_complete=files)
@click.option("--breaking", is_flag=True, help="Exit 1 if a change breaks callers.")
@click.option("--no-code", is_flag=True, help="Leave the text of the generated code out.")
@click.option("--skip-wrong", is_flag=True, help="Leave out what is wrong in OLD, and say so.")
@json_too
@output_style
def diff(old: str, new: str, breaking: bool, no_code: bool, skip_wrong: bool) -> int:
    """Says what differs in meaning between OLD and NEW, then how the generated code does.

    Example: boundaryc diff main:models/qwen3/stack.yaml models/qwen3/stack.yaml --breaking

    Example: boundaryc diff HEAD~1 models

    Each is a stack file, a folder of them, REVISION:PATH of git, or a revision, which means the
    path of the other side, or the whole repository. Both are planned by this boundaryc, on every
    topology, in every variant, under every policy. Comments and the order of keys are no
    difference.

    Exits 1 for what is wrong in a stack file and, with --breaking, for a change that breaks
    callers; 2 for what there is not. With --skip-wrong, stacks that are wrong in OLD are not
    compared and told instead.
    """
    from boundaryc.report.deployment import AskedError
    from boundaryc.report.diff.compare import differences
    from boundaryc.report.diff.sources import versions
    from boundaryc.report.diff.text import lines
    from boundaryc.report.text import columns

    try:
        before, after = versions(old, new, skips=skip_wrong)
        found = differences(before, after, code=not no_code, skips=skip_wrong)
    except AskedError as problem:
        raise click.UsageError(str(problem)) from None
    how = style()
    if how.format == "github":
        for line in annotated(found, after.stacks, "error" if breaking else "warning"):
            click.echo(line)
    if not how.quiet or found.breaking or found.skipped:
        how.result("\n".join(lines(found, columns(), breaking=how.quiet)))
    if how.format in ("full", "github") and not how.quiet:
        show_diffs([one.diff for stack in found.stacks for one in stack.files])
    how.document("diff", **asdict(found))
    return Exit.FINDINGS if breaking and found.breaking else Exit.OK
