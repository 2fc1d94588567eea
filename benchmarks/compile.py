"""What compiling costs: the whole matrix, and a deep stack against a shallow one.

    python -m benchmarks.compile

Prints CPU seconds of one core, the best of several runs, side by side in one process; exits 1 where
the matrix takes ten seconds or more, or a thousand layers more than 1.2 times what four take.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from boundaryc.emit.build import build
from boundaryc.plan import access

MATRIX = Path(__file__).parents[1] / "tests" / "fixtures" / "matrix"
RUNS = 3


def seconds(sources: list[Path], out: Path) -> float:
    """CPU seconds to compile ``sources`` in memory, the best of ``RUNS``, nothing remembered."""
    best = float("inf")
    for _ in range(RUNS):
        access.forget()
        began = time.process_time()
        for source in sources:
            build(source, out)
        best = min(best, time.process_time() - began)
    return best


def main() -> int:
    """Measures and prints."""
    with tempfile.TemporaryDirectory() as folder:
        out, deep = Path(folder) / "out", Path(folder) / "deep.yaml"
        text = (MATRIX / "dense.yaml").read_text()
        deep.write_text(text.replace("count: 4", "count: 1000"))
        whole = seconds([MATRIX / "dense.yaml", MATRIX / "moe.yaml"], out)
        shallow, thousand = seconds([MATRIX / "dense.yaml"], out), seconds([deep], out)
    print(f"two stacks x 30 topologies, all variants and policies  {whole:6.2f} s")
    print(f"4 layers x 30 topologies                               {shallow:6.2f} s")
    print(f"1,000 layers x 30 topologies                           {thousand:6.2f} s")
    print(f"ratio                                                  {thousand / shallow:6.2f}")
    return int(whole >= 10 or thousand > 1.2 * shallow)


if __name__ == "__main__":
    raise SystemExit(main())
