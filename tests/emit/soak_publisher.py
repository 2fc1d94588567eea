"""Publishes two versions of a stack in turn until it is killed.

Arguments: their sources and the output folder. Prints a line when it begins.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from boundaryc.emit.build import build
from boundaryc.emit.publish import publish


def main(old: str, new: str, out: str) -> None:
    """Never returns."""
    outputs = [build(Path(source), Path(out))[0].output for source in (new, old)]
    sys.stdout.write("begin\n")
    sys.stdout.flush()
    for output in itertools.cycle(outputs):
        publish(output, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
