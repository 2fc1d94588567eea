"""`boundaryc completion`."""

from __future__ import annotations

from dataclasses import asdict

import click
from click.shell_completion import get_completion_class

from boundaryc.cli.options import json_too, output_style
from boundaryc.cli.output import style

SHELLS = ("bash", "zsh", "fish")

VARIABLE = "_BOUNDARYC_COMPLETE"
"""What the scripts set when they ask us; click derives the same from our name."""


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@json_too
@output_style
def completion(shell: str) -> None:
    """Prints the script that completes our commands, options and files in a SHELL.

    Example: boundaryc completion bash > ~/.local/share/bash-completion/completions/boundaryc

    Example: boundaryc completion fish > ~/.config/fish/completions/boundaryc.fish

    Exits 2 for another shell.
    """
    from boundaryc.cli.run import boundaryc
    from boundaryc.report.documents import Completion

    known = get_completion_class(shell)
    assert known is not None
    found, how = Completion(shell, known(boundaryc, {}, "boundaryc", VARIABLE).source()), style()
    how.result(found.script.rstrip("\n"))
    how.document("completion", **asdict(found))
