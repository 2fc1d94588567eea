"""What compiling costs: all examples everywhere, one change, no change; depth; memory.

    python -m benchmarks.compile [--matrix]

Compiles every example on 64 topologies in four variants with one command of its own: from nothing,
again with nothing changed, and with one stage of one stack changed. Prints CPU seconds of one core
and the most memory that was in use. ``--matrix``: instead the matrix of the tests, in this process,
and a thousand layers against four. Exits 1 where a limit is exceeded.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.topologies import everywhere
from boundaryc.emit.build import build

ROOT = Path(__file__).parents[1]
MATRIX = ROOT / "tests" / "fixtures" / "matrix"
RUNS = 3
CHANGED = "qwen3"
"""The stack of which a stage is changed."""


def loop() -> float:
    """CPU seconds of three million additions, to compare machines, and loads of one machine."""
    began, total = time.process_time(), 0
    for number in range(3_000_000):
        total += number
    return time.process_time() - began


def command(sources: list[Path], out: Path) -> tuple[float, float, str]:
    """CPU seconds and MiB of one `boundaryc compile`, and the last line that it prints."""
    words = [sys.executable, "-m", "boundaryc", "compile", *map(str, sources), "--out", str(out)]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read().splitlines()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said[-1]


def examples() -> int:
    """Measures all examples everywhere."""
    exceeded = 0
    # An installed package has its bytecode.
    subprocess.run([sys.executable, "-m", "compileall", "-q", "boundaryc"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = []
        for stack in sorted(ROOT.glob("examples/*/stack.yaml")):
            source = folder / f"{stack.parent.name}.yaml"
            source.write_text(everywhere(stack), encoding="utf-8")
            sources.append(source)
        print(f"{len(sources)} stack files x 64 topologies x 4 variants")
        for title, limit in (("from nothing", 20), ("nothing changed", 1), ("a stage changed", 2)):
            if limit == 2:
                changed = folder / f"{CHANGED}.yaml"
                text = changed.read_text(encoding="utf-8")
                old, new = "kind: attention", "kind: attention\n    update: {scaled_add: 0.5}"
                changed.write_text(text.replace(old, new, 1), encoding="utf-8")
            before = loop()
            spent, memory, said = command(sources, folder / "out")
            print(f"{title:<16} {spent:6.2f} s  {memory:4.0f} MiB  {said}")
            print(f"{'':16} loops beside it: {before:.2f} and {loop():.2f} s", flush=True)
            exceeded |= spent > limit or memory > 400
    return exceeded


def seconds(sources: list[Path], out: Path) -> float:
    """CPU seconds to compile ``sources`` in memory, the best of ``RUNS``; the first one is cold."""
    best = float("inf")
    for _ in range(RUNS):
        began = time.process_time()
        for source in sources:
            build(source, out)
        best = min(best, time.process_time() - began)
    return best


def matrix() -> int:
    """Measures the matrix of the tests, and depth."""
    with tempfile.TemporaryDirectory() as folder:
        out, deep = Path(folder) / "out", Path(folder) / "deep.yaml"
        text = (MATRIX / "dense.yaml").read_text()
        deep.write_text(text.replace("count: 4", "count: 1000"))
        began = time.process_time()
        for name in ("dense", "moe"):
            build(MATRIX / f"{name}.yaml", out)
        whole = time.process_time() - began
        shallow, thousand = seconds([MATRIX / "dense.yaml"], out), seconds([deep], out)
    print(f"two stacks x 30 topologies, all variants and policies  {whole:6.2f} s")
    print(f"4 layers x 30 topologies, again                        {shallow:6.2f} s")
    print(f"1,000 layers x 30 topologies, again                    {thousand:6.2f} s")
    print(f"ratio                                                  {thousand / shallow:6.2f}")
    return int(whole >= 10 or thousand > 1.2 * shallow)


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile")
    parser.add_argument("--matrix", action="store_true", help="the matrix of the tests instead")
    options = parser.parse_args()
    print(f"three million additions in a loop: {loop():.2f} s")
    return matrix() if options.matrix else examples()


if __name__ == "__main__":
    raise SystemExit(main())
