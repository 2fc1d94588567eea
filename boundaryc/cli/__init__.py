"""The command line: a thin user of `boundaryc.api`.

Standard output carries the result, standard error what people should read. Exit codes are those of
`Exit`; what exactly was found is in the output, not in more codes.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from contextlib import suppress
from enum import IntEnum
from typing import NoReturn

from boundaryc.cli.stdout import outlasting


class Exit(IntEnum):
    """How a run ended; docs/cli.md has the same table."""

    OK = 0  # all good
    FINDINGS = 1  # something in the user's files
    UNUSABLE = 2  # we could not run as asked
    BUG = 3  # our fault
    INTERRUPTED = 130  # by the user


def script() -> NoReturn:
    """The process of one command.

    It looks for no cycles unless the command asks for it, and ends without taking apart all that it
    remembers: either would take longer than many commands.
    """
    gc.disable()
    code = main()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):  # whoever reads it may have gone
                stream.flush()
    os._exit(code)


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    with outlasting():
        if words == ["--version"]:  # before anything else is imported
            from boundaryc import __version__

            sys.stdout.write(f"boundaryc {__version__}\n")
            return Exit.OK
        from boundaryc.cli.run import run

        return run(words)
