"""The committed boundaries of an example on four ranks of torch.distributed, as on simulated ones.

torchrun --nproc-per-node 4 -m examples.hf.gloo FILE NAME ...
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from boundaryc.runtime import TorchGroups
from boundaryc.topology.contracts import CONTEXT_PARALLEL
from examples.hf.cases import PLACEMENTS, Case
from examples.hf.editions import EXAMPLES, described, runnable
from examples.hf.matrix import PADDINGS, POLICIES
from examples.hf.program import RankProgram
from examples.hf_ranks import Harness

RANKS = 4

Errors = dict[tuple[str, Case], float]
"""The largest difference of any rank by the example's name and the run."""


def cases(harness: Harness) -> list[Case]:
    """Every topology of four ranks and variant with every placement of sequences."""
    stack, found = described(harness.architecture.name), []
    for spec in stack.topologies:
        if spec.tp != RANKS:
            continue
        sizes: dict[str, Any] = {"tp": spec.tp, "attn_dp": spec.attn_dp, "attn_cp": spec.attn_cp}
        sizes["moe"] = {"all_to_all": spec.moe.all_to_all}
        for variant in runnable(harness.architecture, sizes):
            if variant in stack.variants:
                found += [(spec.name, variant, placement) for placement in PLACEMENTS]
    choices = list(product(POLICIES, PADDINGS))
    return [
        Case(
            *(topology, "committed", variant, *choices[4 * index % len(choices)], placement),
            mode="decode" if index % 3 == 2 else "prefill",
            split="zigzag" if variant == CONTEXT_PARALLEL else "",
        )
        for index, (topology, variant, placement) in enumerate(found)
    ]


def measure(names: Sequence[str], folder: Path) -> Errors:
    """Runs the examples on four processes; CalledProcessError where a rank failed."""
    results = folder / "errors.pt"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(RANKS), "-m", "examples.hf.gloo", str(results), *names]
    # One thread a rank: four ranks share a small machine, and results do not depend on its size.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(EXAMPLES.parent)}
    subprocess.run(command, cwd=EXAMPLES.parent, env=environment, check=True)
    errors: Errors = torch.load(results, weights_only=False)
    return errors


def main() -> None:
    """One rank: runs all cases of the examples; rank 0 writes the errors."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    _run_all(Path(sys.argv[1]), sys.argv[2:])
    # Gloo's threads let go of the last tensors when they please. The interpreter must not end
    # before that, so their groups end first, which waits for the threads.
    dist.destroy_process_group()
    gc.collect()


def _run_all(results: Path, names: list[str]) -> None:
    groups, errors = TorchGroups(), {}
    for name in names:
        harness = Harness(name)
        made = (described(name), import_module(f"generated.{name}"))
        for case in cases(harness):
            with torch.inference_mode():
                own = RankProgram(harness.scene(case, made), groups).forward()
            every: list[Any] = [None] * RANKS
            dist.all_gather_object(every, own)
            errors[name, case] = max(every)
    if groups.rank == 0:
        torch.save(errors, results)


if __name__ == "__main__":
    main()
