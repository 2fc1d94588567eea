"""Whether a generated package and this runtime fit: one number, the version of what is between.

A generated package states the number it was compiled for, and a runtime the range that it runs.
`ABI` goes up when generated code begins to need something of the runtime that it did not need
before, `OLDEST` when the runtime ceases to run what was generated for an older number. Compiling
again always helps against a package that is too old; nothing but another runtime does against one
that is too new.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from boundaryc.runtime.errors import BoundaryError

ABI = 1
"""What code that is generated now is written against, and the newest that this runtime runs."""

OLDEST = 1
"""The oldest that this runtime still runs."""


def require(compiled_for: int, package: str) -> None:
    """BoundaryError where this runtime does not run what ``package`` was compiled for.

    ``package`` is the name of the generated package, for people, and to say how it was made.
    """
    if OLDEST <= compiled_for <= ABI:
        return
    runs = f"version {ABI}" if OLDEST == ABI else f"versions {OLDEST} to {ABI}"
    compiler, again = _made(package)
    if compiled_for > ABI:
        fix = (
            "upgrade the runtime (pip install --upgrade boundaryc), or compile the package with "
            f"the boundaryc that is installed ({again})"
        )
    else:
        fix = f"compile it again ({again}), or install the boundaryc that compiled it{compiler}"
    raise BoundaryError(
        f"{package} was compiled for version {compiled_for} of the runtime's interface, and the "
        f"runtime in {Path(__file__).parent} runs {runs}: {fix}"
    )


def _made(package: str) -> tuple[str, str]:
    """How to install what compiled a package, in parentheses, and the command that compiled it.

    Both are in the manifest beside the package; where there is none nothing more is known.
    """
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    try:
        said = json.loads(Path(file).with_name("manifest.json").read_text(encoding="utf-8"))
        return f" (pip install 'boundaryc=={said['boundaryc']}')", str(said["regenerate"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", "boundaryc compile"
