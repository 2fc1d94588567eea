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

from benchmarks.kernels import FAMILIES

RESULTS = Path(__file__).resolve().parent / "results"
OTHERS = ("liger", "compile")
PLAIN = "add_norm"
NOTES = {
    "finalize": "Eight rows of experts a token, anywhere among those of all. This run had 16 warps "
    "at width 7168. With 8, which kernels have since, the same took 42.3 and 155.2 microseconds "
    "for 1,024 and 4,096 rows, 95 and 99 per cent of the copy. At 5120 4 warps reached 90 and 95, "
    "at 8192 16 warps 88 and 93.",
    "sandwich": "Two reductions of a row, one behind the other, with two barriers each: up to 128 "
    "rows the second takes 0.2 to 0.9 microseconds, which nothing hides. Above, a program keeps "
    "both inputs over both of them: fewer programs run beside it. 4, 8 and 16 warps, and the "
    "second weight loaded before or behind the first norm, were measured at every width: what "
    "`boundaryc/emit/launch.py` says was best.",
}


def main() -> int:
    """Writes the tables."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    lines = ["# Row-wise kernels on a GPU", ""]
    lines += [
        "Microseconds of a launch in a CUDA graph, the median of 15 replays, and behind a slash",
        "the per cent of what a copy of as many bytes reaches. Up to 128 rows are in the cache,",
        "more are not. bfloat16 rows and weights. Some copies between large buffers of exactly a",
        "power of two are slow: per cents far above 100 are theirs. Beside other families",
        "`add_norm` is the plain kernel in the same run, which moves 8 bytes for each number of a",
        "row. Where torch.compile has no time, the time for it was over.",
        "",
    ]
    for family in found:
        lines += [*table(family), ""]
    (folder / "kernels.md").write_text("\n".join(lines), encoding="utf-8")
    return 0


def table(family: dict[str, Any]) -> Iterator[str]:
    """The lines of one family."""
    cells = family["cells"]
    columns = [
        "ours",
        *(name for name in (*OTHERS, "whole") if any(name in cell for cell in cells)),
    ]
    yield f"## {family['family']}"
    yield ""
    yield f"{family['device']}, torch {family['torch']}, Triton {family['triton']}:"
    yield f"`{family['command']}`"
    yield ""
    plain = any(PLAIN in cell for cell in cells)
    last = f" | {PLAIN} |" if plain else " |"
    yield f"| width / rows | copy | {' | '.join(columns)}{last}"
    yield f"|---|---:|{'---:|' * (len(columns) + plain)}"
    for cell in cells:
        row = [place(cell), f"{cell['copy']:.2f}"]
        row += [shown(cell, name) for name in columns]
        row += [f"{cell[PLAIN]:.2f}" if PLAIN in cell else ""] * plain
        yield f"| {' | '.join(row)} |"
    yield ""
    yield from missed(family)
    host = ", ".join(f"{name} {value:.1f}" for name, value in family["host"].items())
    yield f"Microseconds of the CPU for a call of one row at width 4096: {host}."


def missed(family: dict[str, Any]) -> Iterator[str]:
    """What is slower than it should be, and why as far as that is known."""
    cells, bytes_of = family["cells"], FAMILIES[family["family"]]
    if bytes_of.kernel.startswith("hyper"):
        slow = [
            cell for cell in cells if cell["rows"] >= 1024 and cell["copy"] < 0.9 * cell["ours"]
        ]
        if slow:
            yield f"From 1,024 rows on below 90 % of the copy: {', '.join(map(place, slow))}."
            yield ""
        return
    late = [
        f"{place(cell)} ({cell['ours'] / best:.2f})"
        for cell in cells
        if cell["rows"] >= 1024
        and cell["ours"]
        > 1.03 * (best := min(cell[name] for name in ("ours", *OTHERS) if name in cell))
    ]
    if late:
        yield f"From 1,024 rows on more than 3 % behind the fastest: {', '.join(late)}."
        yield ""
    if bytes_of.parts.quantize is not None or not any(PLAIN in cell for cell in cells):
        return
    share = (bytes_of.read + bytes_of.written) / 8
    slower = [
        f"{place(cell)} ({cell['ours'] / cell[PLAIN] / share:.2f})"
        for cell in cells
        if cell["rows"] >= 1024 and cell["ours"] > 1.05 * share * cell[PLAIN]
    ]
    if slower:
        yield f"From 1,024 rows on over 1.05 times the plain kernel, by byte: {', '.join(slower)}."
        yield ""
    if family["family"] in NOTES:
        yield NOTES[family["family"]]
        yield ""


def place(cell: dict[str, Any]) -> str:
    """A cell by name."""
    return f"{cell['width']} / {cell['rows']}"


def shown(cell: dict[str, Any], name: str) -> str:
    """A time and its per cent of the copy; nothing where it was not measured."""
    if name not in cell:
        return ""
    return f"{cell[name]:.2f} / {100 * cell['copy'] / cell[name]:.0f}"


if __name__ == "__main__":
    sys.exit(main())
