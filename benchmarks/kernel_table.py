"""Tables of what `python -m benchmarks.kernels` measured, one for each family.

    python -m benchmarks.kernel_table [folder]

Reads every result of the folder, benchmarks/results if none is given, and writes kernels.md there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
OTHERS = ("liger", "compile", "whole")


def main() -> int:
    """Writes the tables."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    lines = ["# Row-wise kernels on a GPU", ""]
    lines += [
        "Microseconds of a launch in a CUDA graph, the median of 15 replays, and behind a slash",
        "the per cent of what a copy of as many bytes reaches. Up to 128 rows are in the cache,",
        "more are not. bfloat16 rows and weights. Some copies between large buffers of exactly a",
        "power of two are slow: per cents far above 100 are theirs.",
        "",
    ]
    for family in found:
        lines += [*table(family), ""]
    (folder / "kernels.md").write_text("\n".join(lines), encoding="utf-8")
    return 0


def table(family: dict[str, Any]) -> Iterator[str]:
    """The lines of one family."""
    cells = family["cells"]
    columns = ["ours", *(name for name in OTHERS if name in cells[0])]
    yield f"## {family['family']}"
    yield ""
    yield f"{family['device']}, torch {family['torch']}, Triton {family['triton']}:"
    yield f"`{family['command']}`"
    yield ""
    yield f"| width / rows | copy | {' | '.join(columns)} |"
    yield f"|---|---:|{'---:|' * len(columns)}"
    for cell in cells:
        shown = [f"{cell[name]:.2f} / {100 * cell['copy'] / cell[name]:.0f}" for name in columns]
        row = [f"{cell['width']} / {cell['rows']}", f"{cell['copy']:.2f}", *shown]
        yield f"| {' | '.join(row)} |"
    host = ", ".join(f"{name} {value:.1f}" for name, value in family["host"].items())
    yield ""
    yield f"Microseconds of the CPU for a call of one row at width 4096: {host}."


if __name__ == "__main__":
    sys.exit(main())
