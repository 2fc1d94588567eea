"""Compiling again whenever a stack file changes, until the user has seen enough."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from boundaryc.cli import Exit
from boundaryc.cli.output import Style

ANYWAY_MS = 1000
"""After so long files are looked at although the system reported nothing of them.

It does not of those behind links and on some network drives, nor of what happened before it was
asked to.
"""

Stamps = dict[Path, tuple[int, int] | None]


def watching(how: Style, files: Sequence[Path], compile_: Callable[[], None]) -> int:
    """Runs ``compile_`` now, and again after every change of ``files``, until it is interrupted.

    What is wrong in a file is shown, and the next change awaited. UsageError without watchfiles,
    and where the result is a JSON document, which would have no end.
    """
    if how.json:
        raise click.UsageError("--watch does not end, and a JSON document does; leave one of both")
    try:
        import watchfiles
    except ImportError:
        message = "--watch needs watchfiles: pip install 'boundaryc[watch]'"
        raise click.UsageError(message) from None
    gc.enable()  # this command lasts
    folders = sorted({path.absolute().parent for path in files})
    try:
        seen = _stamps(files)
        _attempt(how, compile_, files)
        for _ in watchfiles.watch(
            *folders, recursive=False, debounce=200, rust_timeout=ANYWAY_MS, yield_on_timeout=True
        ):
            now = _stamps(files)
            if now != seen:
                changed = [path for path in files if now[path] != seen[path]]
                seen = now
                how.say(f"\nchanged: {_listed(changed)}")
                _attempt(how, compile_, files)
    except KeyboardInterrupt:  # how one ends it
        how.say("")
    return Exit.OK


def _stamps(files: Sequence[Path]) -> Stamps:
    """What tells whether a file has changed; None where there is none at the moment."""
    return {path: _stamp(path) for path in files}


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:  # an editor may be replacing it
        return None
    return found.st_mtime_ns, found.st_size


def _attempt(how: Style, compile_: Callable[[], None], files: Sequence[Path]) -> None:
    from boundaryc.emit.publish import PublishError
    from boundaryc.language import BoundarycError

    try:
        compile_()
    except BoundarycError as problem:
        how.errors(problem)
    except (PublishError, OSError) as problem:
        how.failure(str(problem))
    how.say(f"watching {_listed(files)}; Ctrl-C ends it")


def _listed(files: Sequence[Path]) -> str:
    return ", ".join(map(str, files))
