"""The group of commands, and what becomes of every way a command may end."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import traceback

import click

from boundaryc import __version__
from boundaryc.cli import Exit
from boundaryc.language import BoundarycError

COMMANDS = {
    "check": "boundaryc.cli.check:check",
    "compile": "boundaryc.cli.compile:compile_",
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
    """Compiles a description of a decoder stack into the code between its stages."""


def run(words: list[str]) -> int:
    """Runs one command and returns its exit code, whatever happens."""
    try:
        result = boundaryc.main(words, prog_name="boundaryc", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return Exit.INTERRUPTED
    except click.ClickException as problem:
        problem.show()
        return Exit.UNUSABLE
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep the interpreter from flushing into it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except BoundarycError as problem:
        click.echo(str(problem), err=True)
        return Exit.FINDINGS
    except Exception as problem:
        return _failed(problem)
    return int(result or Exit.OK)


def _failed(problem: Exception) -> int:
    """Reports what the user cannot put right in their stack file."""
    from boundaryc.emit.publish import PublishError

    if isinstance(problem, (PublishError, OSError)):
        click.echo(f"error: {problem}", err=True)
        return Exit.UNUSABLE
    with tempfile.NamedTemporaryFile(
        "w", prefix="boundaryc-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(f"boundaryc {__version__}, Python {sys.version}\n\n")
        file.write("".join(traceback.format_exception(problem)))
    click.echo(
        f"boundaryc failed: {type(problem).__name__}: {problem}\n"
        f"This is a bug. Please report it with {file.name} and the stack file.",
        err=True,
    )
    return Exit.BUG
