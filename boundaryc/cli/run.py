"""The group of commands, and what becomes of every way a command may end."""

from __future__ import annotations

import importlib
import sys
import tempfile
import traceback
from itertools import pairwise
from typing import Any

import click

from boundaryc import __version__
from boundaryc.cli import Exit
from boundaryc.cli.output import Style

COMMANDS = {
    "check": "boundaryc.cli.check:check",
    "compile": "boundaryc.cli.compile:compile_",
    "completion": "boundaryc.cli.completion:completion",
    "cost": "boundaryc.cli.cost:cost",
    "diff": "boundaryc.cli.diff:diff",
    "env": "boundaryc.cli.env:env",
    "explain": "boundaryc.cli.explain:explain",
    "graph": "boundaryc.cli.graph:graph",
    "init": "boundaryc.cli.init:init",
    "lint": "boundaryc.cli.lint:lint",
    "report": "boundaryc.cli.report:report",
    "schema": "boundaryc.cli.schema:schema",
    "trace": "boundaryc.cli.trace:trace",
    "verify": "boundaryc.cli.verify:verify",
}
"""Where each command is; a module is imported when its command is used."""


class Commands(click.Group):
    """Loads a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="boundaryc", message="%(prog)s %(version)s")
def boundaryc() -> None:
    """Compiles a description of a decoder stack into the code between its stages.

    Example: boundaryc compile stack.yaml

    Exit codes: 0 all good, 1 something in your files, 2 cannot be run as asked, 3 a bug of
    boundaryc, 130 interrupted.
    """


def run(words: list[str]) -> int:
    """Runs one command and returns its exit code, whatever happens."""
    asked: dict[str, Any] = {}
    try:
        result = boundaryc.main(words, prog_name="boundaryc", standalone_mode=False, obj=asked)
        return int(result or Exit.OK)
    except (Exception, KeyboardInterrupt) as problem:
        asked.setdefault("format", "json" if _wants_json(words) else "full")
        return _ended(problem, Style(**asked))


def _wants_json(words: list[str]) -> bool:
    """Whether a command line asks for a document; one that cannot be parsed may, too."""
    long = "--output-format"
    return bool({"--json", f"{long}=json"} & {*words}) or (long, "json") in pairwise(words)


def _ended(problem: Exception | KeyboardInterrupt, how: Style) -> int:
    """The exit code of a command that ended with ``problem``, which is told to the user."""
    if isinstance(problem, (KeyboardInterrupt, click.Abort)):
        click.echo("interrupted", err=True)
        return Exit.INTERRUPTED
    if isinstance(problem, click.ClickException):
        how.document("error", message=problem.format_message(), report="")
        problem.show()
        return Exit.UNUSABLE
    return _failed(problem, how)


def _failed(problem: BaseException, how: Style) -> int:
    """Reports what is wrong in the user's files, around them, or in us."""
    from boundaryc.emit.publish import PublishError
    from boundaryc.language import BoundarycError

    if isinstance(problem, BoundarycError):
        how.errors(problem)
        return Exit.FINDINGS
    if isinstance(problem, (PublishError, OSError)):
        how.failure(str(problem))
        return Exit.UNUSABLE
    with tempfile.NamedTemporaryFile(
        "w", prefix="boundaryc-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(f"boundaryc {__version__}, Python {sys.version}\n\n")
        file.write("".join(traceback.format_exception(problem)))
    message = f"{type(problem).__name__}: {problem}"
    how.document("error", message=message, report=file.name)
    click.echo(
        f"boundaryc failed: {message}\n"
        f"This is a bug. Please report it with {file.name} and the stack file.",
        err=True,
    )
    return Exit.BUG
