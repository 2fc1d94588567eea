"""Swaps two folders in one step, where the system can."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_AT_FDCWD = -100
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS


def exchange(one: Path, other: Path) -> bool:
    """Gives each of two existing folders the name of the other; False if nothing was done.

    Nobody ever sees only one of the two names. Not every system or file system can do this.
    """
    names = os.fsencode(one), os.fsencode(other)
    try:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "linux":
            code = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)
        elif sys.platform == "darwin":
            code = library.renamex_np(*names, _EXCHANGE)
        else:
            return False
    except (ImportError, OSError, TypeError, AttributeError):
        return False
    return bool(code == 0)
