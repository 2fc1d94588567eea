"""`boundaryc schema`."""

from __future__ import annotations

import click


@click.command("schema")
@click.argument("name", type=click.Choice(["stack", "diagnostics"]), default="stack")
def schema(name: str) -> None:
    """Prints the JSON Schema of stack files, or of diagnostics that are written as JSON.

    Example: boundaryc schema stack > stack.schema.json

    An editor uses it for a file that begins with the line
    "# yaml-language-server: $schema=stack.schema.json".
    """
    from boundaryc.language.json_schema import schema_text

    click.echo(schema_text(name), nl=False)
