"""A sum over ranks, the add and the norm behind it, on one GPU a rank: four ways beside each other.

    torchrun --standalone --nproc-per-node 2 -m benchmarks.all_reduce [--out benchmarks/results]

bfloat16. "nccl" is NCCL's all-reduce and then the generated kernel, "torch" torch's one-shot
all-reduce of what lies in symmetric memory and then the same kernel; "one-shot" and "two-shot" are
the generated kernels that do all of it. Every way is compared with float64 first, on every rank. A
cell is microseconds of a call in a CUDA graph: the median of 15 replays, on the slowest rank. All
calls use the same memory. Stops after ``--seconds`` with what there is by then.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import triton
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric

from benchmarks.kernels import PLAIN, chosen, modules_of, timed
from boundaryc.emit.norms import Norms
from boundaryc.emit.render import render
from boundaryc.emit.summing import sum_view
from boundaryc.language.model import NormSpec
from boundaryc.runtime import Mesh, SumLimits, SumWorkspace, TorchGroups

WIDTHS = (4096, 7168)
ROWS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
EPS = 1e-6

Way = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Of this rank's part: the norm and the updated residual."""


@dataclass(frozen=True, slots=True)
class Ways:
    """What is measured for one width; ``group`` is the runtime's group of all ranks."""

    width: int
    group: Any
    fused: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    kernel: Any
    spaces: dict[str, SumWorkspace]
    memory: Tensor

    def of(self, rows: int, residual: Tensor, weight: Tensor) -> dict[str, Way]:
        """Each way by name; "torch" finds its part in symmetric memory."""
        process_group = self.group.process_group
        held = self.memory[:rows]

        def nccl(part: Tensor) -> tuple[Tensor, Tensor]:
            dist.all_reduce(part, group=process_group)
            return self.fused(part, residual, weight)

        def of_torch(part: Tensor) -> tuple[Tensor, Tensor]:
            total = torch.ops.symm_mem.one_shot_all_reduce(held, "sum", process_group.group_name)
            return self.fused(total, residual, weight)

        def own(space: SumWorkspace) -> Way:
            call = space.call(rows)
            return lambda part: self.kernel(part, residual, weight, space.table, call)

        return {
            "nccl": nccl,
            "torch": of_torch,
            **{name: own(space) for name, space in self.spaces.items()},
        }


def ways_of(width: int, most: int, group: Any, folder: Path) -> Ways:
    """The generated modules for rows of ``width`` columns, and memory for ``most`` rows."""
    norm = Norms(NormSpec("rms", EPS, "fp32"))
    path = folder / f"symmetric_kernels_{width}.py"
    path.write_text(render("symmetric_kernels.py.jinja", sum_view("benchmark", width, norm)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    spaces = {
        name: SumWorkspace.allocate(group, SumLimits(group.size, width, torch.bfloat16, most, once))
        for name, once in (("one-shot", most), ("two-shot", 0))
    }
    device = torch.device("cuda", torch.cuda.current_device())
    memory = symmetric.empty(most, width, dtype=torch.bfloat16, device=device)
    symmetric.rendezvous(memory, group.process_group)
    fused = modules_of(PLAIN, width, folder).ours
    return Ways(
        width, group, lambda *given: fused(list(given)), module.sum_add_rms_norm, spaces, memory
    )


def measured(ways: Ways, rows: int) -> dict[str, float]:
    """Microseconds of every way, once it is right."""
    generator = torch.Generator("cuda").manual_seed(rows)

    def drawn() -> Tensor:
        return torch.randn(rows, ways.width, generator=generator, device="cuda").bfloat16()

    parts, residual = [drawn() for _ in range(ways.group.size)], drawn()
    weight = torch.ones(ways.width, device="cuda", dtype=torch.bfloat16)
    own = parts[ways.group.rank]
    exact = sum(part.double() for part in parts) + residual.double()
    normed = exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + EPS)
    cells = {}
    for name, way in ways.of(rows, residual, weight).items():
        ways.memory[:rows] = own
        dist.barrier()
        found = way(own.clone())
        torch.testing.assert_close(found[1].double(), exact, rtol=0.02, atol=0.05)
        torch.testing.assert_close(found[0].double(), normed, rtol=0.02, atol=0.05)
        ways.memory.zero_()  # sums of what was summed must not grow
        dist.barrier()
        launches = max(4, min(100, 200_000 // max(rows, 1000)))
        taken = timed(lambda given, way=way: way(given[0]), [[torch.zeros_like(own)]], launches)
        slowest = torch.tensor(taken, device="cuda")
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        cells[name] = round(slowest.item(), 2)
    for space in ways.spaces.values():
        space.check()
    return cells


def table(records: list[dict[str, Any]], ranks: int, command: str) -> str:
    """The page of what was measured."""
    names = [name for name in records[0] if name not in ("width", "rows")]
    versions = f"torch {torch.__version__}, Triton {triton.__version__}"
    lines = [
        f"# A sum over {ranks} ranks with the add and the norm behind it",
        "",
        "Microseconds of a call in a CUDA graph, the median of 15 replays, on the slowest rank;",
        "bfloat16. `benchmarks/all_reduce.py` says what each column is.",
        "",
        f"{torch.cuda.get_device_name()} x {ranks}, {versions}:",
        f"`{command}`",
        "",
        f"| width / rows | KiB | {' | '.join(names)} |",
        f"|---|{'---:|' * (len(names) + 1)}",
    ]
    for record in records:
        size = record["rows"] * record["width"] * 2 // 1024
        cells = " | ".join(f"{record[name]:.2f}" for name in names)
        lines.append(f"| {record['width']} / {record['rows']} | {size} | {cells} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Measures all sizes and writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--widths", help="instead of 4096 and 7168")
    parser.add_argument("--rows", help="instead of 1 to 8192")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    asked = parser.parse_args()
    end = time.monotonic() + asked.seconds
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    ranks = dist.get_world_size()
    mesh = Mesh((("attn_tp", ranks, "attn_tp"),))
    group = TorchGroups(device="cuda").collective(mesh, ("attn_tp",))
    counts, records = chosen(asked.rows, ROWS), []
    with tempfile.TemporaryDirectory() as folder:
        for width in chosen(asked.widths, WIDTHS):
            ways = ways_of(width, max(counts), group, Path(folder))
            for rows in counts:
                over = torch.tensor(float(time.monotonic() > end), device="cuda")
                dist.all_reduce(over)
                if over.item():
                    break
                records.append({"width": width, "rows": rows, **measured(ways, rows)})
                if dist.get_rank() == 0:
                    print(records[-1], flush=True)
            del ways
    if dist.get_rank() == 0:
        asked.out.mkdir(parents=True, exist_ok=True)
        command = f"torchrun --standalone --nproc-per-node {ranks} -m benchmarks.all_reduce"
        (asked.out / "all_reduce.md").write_text(table(records, ranks, command), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
