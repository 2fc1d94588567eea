"""How long the commands take that are run most often, beside an interpreter that does nothing.

    python -m benchmarks.startup [--times 9]

Compiles the examples into a temporary folder first. The fastest of several runs counts, because
what else the machine does only adds to it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = tuple(ROOT / f"examples/{name}/stack.yaml" for name in ("qwen3", "qwen3_moe"))
LIMITS = {"--version": 0.15, "check": 0.5, "check --full": 6.0}
"""Seconds."""


def fastest(times: int, *words: str) -> float:
    """The least seconds that the interpreter takes with ``words``."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
        found.append(time.perf_counter() - begin)
    return min(found)


def main() -> int:
    """Prints a line for each command; 1 if one takes too long."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=9)
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder:
        files = [*map(str, SOURCES), "--out", folder]
        boundaryc = ("-m", "boundaryc")
        commands = {
            "--version": (*boundaryc, "--version"),
            "check": (*boundaryc, "check", *files),
            "check --full": (*boundaryc, "check", "--full", *files),
        }
        subprocess.run([sys.executable, *boundaryc, "compile", "-q", *files], cwd=ROOT, check=True)
        print(f"{'bare interpreter':16} {fastest(times, '-c', 'pass'):6.3f} s")
        slow = 0
        for name, words in commands.items():
            seconds = fastest(times, *words)
            slow += seconds >= LIMITS[name]
            print(f"{name:16} {seconds:6.3f} s   at most {LIMITS[name]} s")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
