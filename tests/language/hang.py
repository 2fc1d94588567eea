"""A limit for what might hang, far above what anything takes on a busy machine."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS = 60.0


class HangError(Exception):
    """The guarded block is still running."""


@contextmanager
def no_hang(seconds: float = SECONDS) -> Iterator[None]:
    """Raise HangError in the block if it runs longer than that; for the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise HangError(f"still running after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
