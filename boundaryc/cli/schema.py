"""`boundaryc schema`."""

from __future__ import annotations

import click

NAMES = (
    "stack",
    "diagnostics",
    "explanation",
    "explain",
    "generated_line",
    "cost",
    "graph",
    "report",
    "init",
    "diff",
    "env",
    "compile",
    "check",
    "verify",
    "recordings",
    "trace",
    "completion",
    "error",
)
"""What has a schema: the first two are the language's, the others what commands print."""


@click.command("schema")
@click.argument("name", type=click.Choice(NAMES), default="stack")
def schema(name: str) -> None:
    """Prints the JSON Schema of stack files, or of what is written as JSON: its `kind` is the name.

    Example: boundaryc schema stack > stack.schema.json

    An editor uses it for a file that begins with the line
    "# yaml-language-server: $schema=stack.schema.json".

    Exits 2 for a name that there is not.
    """
    from boundaryc.language.json_schema import SCHEMAS, schema_text

    if name in SCHEMAS:
        click.echo(schema_text(name), nl=False)
        return
    from boundaryc.report.schemas import result_schema_text

    click.echo(result_schema_text(name), nl=False)
