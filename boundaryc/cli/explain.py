"""`boundaryc explain`."""

from __future__ import annotations

import click

from boundaryc.cli.options import output_style
from boundaryc.cli.output import style


@click.command("explain")
@click.argument("code")
@output_style
def explain(code: str) -> None:
    """Says what a diagnostic CODE means, with an example that fails and one that works.

    Example: boundaryc explain BC204
    """
    from boundaryc.language.explain import explain as text
    from boundaryc.language.explain import explanation

    code = code.upper()
    try:
        parts = explanation(code)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    how = style()
    how.result(text(code).rstrip("\n"))
    how.document(
        "explanation",
        code=parts.code,
        title=parts.title,
        story=parts.story,
        fails=parts.fails,
        works=parts.works,
    )
