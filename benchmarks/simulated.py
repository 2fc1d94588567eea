"""How long simulated ranks take: a cell of 64 ranks and four layers, and a deadlock of 64 ranks.

    python -m benchmarks.simulated

Prints the median of several runs, each beside a fixed product of matrices for the machine's speed;
exits 1 where one takes a second or more.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from boundaryc.emit.diagnose import planned
from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.language import loads
from boundaryc.runtime import Mesh
from boundaryc.verify.cells import Cell
from boundaryc.verify.modules import import_package
from boundaryc.verify.run import Prover
from boundaryc.verify.world import SimulatedGroups, World, WorldError

RUNS = 7
LIMIT = 1.0
"""Seconds."""

TEXT = """\
boundaryc: 1
stack: large
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn}
layers: {count: 4, default: [attention, mlp]}
topologies: {big: {tp: 64, attn_dp: 8}}
variants: [ordinary]
"""
CELL = Cell("big", "ordinary", "rsv", "sum_len", (3, 0, 5, 1, 8, 2, 2, 7))
LINE = Mesh((("attn_tp", 64, "attn_tp"),))


def median(run: Callable[[], object]) -> float:
    """Seconds of a run, the median of several."""
    found = []
    for _ in range(RUNS):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def deadlock() -> None:
    """One rank of 64 leaves a collective out, and is named."""

    def program(groups: SimulatedGroups) -> torch.Tensor:
        group = groups.collective(LINE, ("attn_tp",))
        first = group.all_reduce(torch.ones(1, 4))
        return first if groups.rank == 5 else group.all_reduce(first)

    found = ""
    try:
        World[torch.Tensor](64).run(program)
    except WorldError as error:
        found = str(error)
    assert "waits for ranks [5]" in found


def main() -> int:
    """Measures and prints."""
    torch.set_num_threads(1)
    plan = planned(loads(TEXT, "large.yaml"), {"large.yaml": TEXT})
    files = emit(plan, Origin("large.yaml", "boundaryc compile large.yaml", "0" * 64)).files
    prover = Prover(plan, import_package(files, "large"))
    prover.scene(CELL)  # the oracle's numbers are made once for all cells of a batch
    assert prover.run(CELL).failure is None
    square = torch.randn(1024, 1024)
    machine = median(lambda: square @ square)
    slow = 0
    for name, run in (("a cell of 64 ranks", lambda: prover.run(CELL)), ("a deadlock", deadlock)):
        seconds = median(run)
        slow += seconds >= LIMIT
        print(f"{name:20} {seconds:6.3f} s, {seconds / machine:6.1f} products of 1024 x 1024")
    return int(slow > 0)


if __name__ == "__main__":
    raise SystemExit(main())
