"""Standard output that whoever reads it may close: a command still ends with its own verdict."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


class _Outlasting:
    """A stream whose reader may go away; what is written from then on is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """As the stream does."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        """As the stream does."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        """Leads the stream, with what it still holds, to nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


@contextmanager
def outlasting() -> Iterator[None]:
    """Has `sys.stdout` outlast its reader, and be there even if the process was given none."""
    before = sys.stdout
    if before is None:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - no path
            sys.stdout = nowhere
            yield
            sys.stdout = before
        return
    sys.stdout = cast("TextIO", _Outlasting(before))
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = before
