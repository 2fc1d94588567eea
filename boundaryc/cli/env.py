"""`boundaryc env`."""

from __future__ import annotations

from dataclasses import asdict

import click

from boundaryc.cli.options import json_too, output_style
from boundaryc.cli.output import style


@click.command("env")
@json_too
@output_style
def env() -> None:
    """Prints what a bug report needs: versions, devices, and our variables that are set.

    Example: boundaryc env --json

    Exits 0 whatever is missing: that is in the report.
    """
    from boundaryc.report.environment import environment, text
    from boundaryc.report.text import columns

    found, how = environment(), style()
    how.result("\n".join(text(found, columns())))
    how.document("env", **asdict(found))
