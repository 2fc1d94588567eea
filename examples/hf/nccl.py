"""Every architecture on GPUs: its model cut over as many ranks as there are processes, over NCCL.

torchrun --standalone --nproc-per-node 2 -m examples.hf.nccl [--report FILE] [NAME ...]

On every topology of so many ranks the model runs with each pair of variant, policy, padding,
placement, mode and cut that occurs there. Rank 0 prints each run that is off, and writes the page.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from boundaryc.runtime import TorchGroups
from examples.hf.architecture import architecture_names
from examples.hf.cases import Case
from examples.hf.matrix import EVERY, covering
from examples.hf.program import RankProgram
from examples.hf_ranks import Harness


@dataclass(frozen=True, slots=True)
class Measured:
    """The runs of one architecture; ``worst`` is the largest difference on any rank."""

    name: str
    runs: int
    off: int
    worst: float
    allowed: float


def main() -> int:
    """One rank; returns the exit code, 1 where a run is off."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=architecture_names())
    parser.add_argument("--report", type=Path, help="the page to write")
    options = parser.parse_args()
    place = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(place)
    dist.init_process_group(
        "nccl", device_id=torch.device("cuda", place), timeout=timedelta(seconds=120)
    )
    groups, began = TorchGroups(), time.monotonic()
    found = []
    for name in options.names:
        found.append(_measured(name, groups))
        _say(f"{found[-1]} {time.monotonic() - began:.0f} s")
    if options.report and not dist.get_rank():
        options.report.write_text("\n".join(_page(found)) + "\n", encoding="utf-8")
    dist.destroy_process_group()
    return 1 if any(one.off for one in found) else 0


def runs(harness: Harness, ranks: int) -> list[Case]:
    """Runs on so many ranks in which each pair of properties occurs."""
    names = [name for name, sizes in EVERY.items() if sizes["tp"] == ranks]
    return covering([replace(case, edition="all") for case in harness.cases(names)])


def _measured(name: str, groups: TorchGroups) -> Measured:
    harness = Harness(name, "cuda")
    worst, off, allowed = 0.0, 0, harness.reference.tolerance
    found = runs(harness, dist.get_world_size())
    for case in found:
        with torch.device("cuda"), torch.inference_mode():
            own = RankProgram(harness.scene(case), groups).forward()
        error = torch.tensor(own, dtype=torch.float64, device="cuda")
        dist.all_reduce(error, dist.ReduceOp.MAX)
        if not float(error) <= allowed:
            off += 1
            _say(f"{name} {case}: {float(error):.1e}")
        worst = max(worst, float(error))
    return Measured(name, len(found), off, worst, allowed)


def _say(line: str) -> None:
    if not dist.get_rank():
        print(line, flush=True)


def _page(found: Sequence[Measured]) -> Iterator[str]:
    import transformers

    ranks = dist.get_world_size()
    yield f"# Hugging Face models over NCCL on {ranks} GPUs"
    yield ""
    yield f"    torchrun --standalone --nproc-per-node {ranks} -m examples.hf.nccl"
    yield ""
    topologies = [name for name, sizes in EVERY.items() if sizes["tp"] == ranks]
    yield (
        f"{time.strftime('%Y-%m-%d')}, {torch.cuda.get_device_name()} x {ranks}, torch "
        f"{torch.__version__}, transformers {transformers.__version__}. Topologies: "
        f"{', '.join(topologies)}. Each pair of topology, variant, policy, padding, placement, "
        "mode and cut that occurs there, all in float64, beside the model on the same GPU. Kernels "
        "of rows and of moves are the generated ones; those of hyper-connections take no float64."
    )
    yield ""
    yield "| model | runs | of them off | largest difference of a logit | allowed |"
    yield "|---|---:|---:|---:|---:|"
    for one in found:
        yield f"| {one.name} | {one.runs} | {one.off} | {one.worst:.1e} | {one.allowed:.1e} |"


if __name__ == "__main__":
    sys.exit(main())
