"""Shows how far a long run is, where someone is watching."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from boundaryc.cli.output import Style

if TYPE_CHECKING:
    from rich.progress import Progress

    from boundaryc.api import Watch

DELAY = 1.0
"""Seconds before a run is long."""


@contextlib.contextmanager
def progress(style: Style, what: str) -> Iterator[Watch | None]:
    """Gives a function to be told how many of how many are done; None if nobody is watching."""
    errors: TextIO | None = sys.stderr  # None where a process was given none
    if style.quiet or errors is None or not errors.isatty():
        yield None
        return
    bar = _Bar(what)
    timer = threading.Timer(DELAY, bar.show)
    timer.daemon = True
    timer.start()
    try:
        yield bar.update
    finally:
        timer.cancel()
        bar.close()


class _Bar:
    """A bar that is not there until it is shown, and leaves nothing behind."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._done, self._total = 0, 1
        self._lock = threading.Lock()
        self._closed = False
        self._progress: Progress | None = None

    def update(self, done: int, total: int) -> None:
        """Is told how many of how many are done."""
        with self._lock:
            self._done, self._total = done, total
            if self._progress is not None:
                self._progress.update(self._progress.task_ids[0], completed=done, total=total)

    def show(self) -> None:
        """Draws the bar from now on; rich is imported only here."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        with self._lock:
            if self._closed:
                return
            columns = SpinnerColumn(), TextColumn(self._what), BarColumn(), MofNCompleteColumn()
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.add_task(self._what, completed=self._done, total=self._total)
            self._progress.start()

    def close(self) -> None:
        """Takes the bar away."""
        with self._lock:
            self._closed = True
            if self._progress is not None:
                self._progress.stop()
