"""Holds an output folder for one publisher, or for several readers, at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Waits until nobody else publishes into ``folder``, and then keeps others from it.

    With ``shared``, other readers may hold it too. The system lets go when the process ends,
    however it ends. Does nothing where folders cannot be locked, or there is no such folder.
    """
    handle = _lock(folder, shared)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _lock(folder: Path, shared: bool) -> int | None:
    try:
        import fcntl
    except ImportError:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # reading will say what is wrong with it
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle
