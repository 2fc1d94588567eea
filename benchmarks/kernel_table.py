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
PLAIN, SAME, TWICE = "add_norm", "same_bytes", "two_reductions"
NOTES = {
    "add_norm_fp8": (
        "With 16,384 columns, 1,024 rows and 138 registers it took 42.2 microseconds: one "
        "program on a multiprocessor, warps 12 % of what it holds, DRAM 48 % of its peak "
        "(`ncu`). Of values divided in halves a thread needs 64 registers, which is two "
        "programs. Up to 128 rows the second reduction takes 0.2 to 0.5 microseconds. `ncu` at "
        "7168 / 1: two warps on a scheduler, which issues in 46 % of its cycles, 4.2 cycles "
        "between two instructions of a warp, DRAM idle: latency. 16 warps take 2 % less there, "
        "but 3 to 7 % more for 1,024 rows of 7168 or 8192 columns."
    ),
    "add_norm_fp8_group128": (
        "`ncu` at 7168 / 1: two warps on a scheduler, which issues in 47 % of its cycles, 4.3 "
        "cycles between two instructions of a warp, DRAM idle: latency. 16 warps take 5 to 8 % "
        "less for up to 128 rows of 7168 or 8192 columns, but 1 to 5 % more for 1,024."
    ),
    "add_norm_fp8_static": (
        "`ncu` at 8192 / 1: two warps on a scheduler, which issues in 45 % of its cycles, 4.2 "
        "cycles between two instructions of a warp. 16 warps take 1.75 microseconds there and "
        "2.25 for 128 rows, but 2 to 3 % more for 1,024."
    ),
    "hyper": (
        "`ncu` at 7168 / 1024: with 80 registers three programs on a multiprocessor, 2.59 "
        "turns, issue slots 52 % full, DRAM 63 % of its peak; with 64 four programs, 1.94 "
        "turns, DRAM 69 %. A chunk loaded ahead and weights loaded at once are 1 to 2 % of "
        "the time each."
    ),
    "hyper_fp8": (
        "A rounding that gives the rounded value in float32 with it takes 4 % fewer instructions; "
        "without, 7168 / 1024 took 38.7 microseconds, 89 to 90 % of the copy. `ncu` at 4096 / "
        "1024, rounded one at a time: four programs on a multiprocessor (64 registers, no "
        "spills), 1.94 turns, issue slots 63 % full, warps 44 % of the most, DRAM 53 % of its "
        "peak, 57.8 MB moved; of the cycles between two instructions of a warp 4.6 wait for "
        "memory, 1.0 for a barrier. A program waits for two reductions behind one another when "
        "its loads are over, and in two turns nearly all programs do so at the same time. The "
        "next program's row asked for into the cache at that moment takes 5 to 12 % longer for "
        "1,024 rows and a third longer for 8,192; quantised values kept instead of made again "
        "take 1 to 2 % longer."
    ),
    "post_norm": (
        "At most 1.03 times the plain kernel that moves as many bytes, at all sizes. `ncu` at "
        "2048 / 1024, with eight warps: all programs at once (0.97 turns), DRAM 33 % of its "
        "peak, a scheduler issues in 68 % of its cycles; with four warps, as here, it takes 2 % "
        "less."
    ),
    "sandwich": (
        "Up to 128 rows 1.13 to 1.38 times the plain kernel, which is 0.99 to 1.13 times the "
        "plain kernel with a second reduction and nothing else added: the sum of the second norm "
        "needs the scale of the first. Both sums in one pass, from sums of products, would not "
        "see the rounding in between, and is slower: 1.21 to 2.43 microseconds for one row of "
        "2048 to 7168 columns. Triton 3.6 does not compile a row divided over a cluster. `ncu` at"
        " 7168 / 1: two warps on a scheduler, which issues in 41 % of its cycles, 4.7 cycles "
        "between two instructions of a warp, DRAM idle: latency. At 7168 / 1024, where loads are "
        "late and four programs share a multiprocessor: 1.94 turns, warps 44 % of the most, DRAM "
        "46 % of its peak; of 17.5 cycles between two instructions of a warp 9.5 wait for memory."
        " With all loads early 8,192 rows take 2 (4096) to 22 % (16384) longer; with loads late "
        "up to 128 rows take a tenth longer, half as long again with the four warps of 4096."
    ),
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
        "row, and `same bytes` that kernel with so many rows that it moves as many bytes as ours;",
        "`two reductions` is the plain kernel with a second reduction that needs the first.",
        "Where torch.compile has no time, the time for it was over.",
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
    plain = [name for name in (PLAIN, SAME, TWICE) if any(name in cell for cell in cells)]
    titles = [name.replace("_", " ") if name != PLAIN else name for name in (*columns, *plain)]
    yield f"| width / rows | copy | {' | '.join(titles)} |"
    yield f"|---|---:|{'---:|' * len(titles)}"
    for cell in cells:
        row = [place(cell), f"{cell['copy']:.2f}"]
        row += [shown(cell, name) for name in columns]
        row += [f"{cell[name]:.2f}" if name in cell else "" for name in plain]
        yield f"| {' | '.join(row)} |"
    yield ""
    yield from missed(family)
    if family["family"] in NOTES:
        yield NOTES[family["family"]]
        yield ""
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
    of_bytes = [(cell, cell.get(SAME, cell[PLAIN] * bytes_of.share)) for cell in cells]
    slower = [
        f"{place(cell)} ({cell['ours'] / plain:.2f})"
        for cell, plain in of_bytes
        if cell["rows"] >= 1024 and cell["ours"] > 1.05 * plain
    ]
    if slower:
        yield f"From 1,024 rows on over 1.05 times the plain kernel, by byte: {', '.join(slower)}."
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
