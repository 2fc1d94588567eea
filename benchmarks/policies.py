"""Which reduction policy is fastest under attention data parallelism, beside what `cost` predicts.

    torchrun --standalone --nproc-per-node 2 -m benchmarks.policies [--out benchmarks/results]

A Qwen3-MoE-shaped stack of 12 layers of 4,096 columns in bfloat16, one GPU a rank and attention
data parallel over all of them; attention and experts are one matrix each, experts in every layer.
One forward under each policy is a CUDA graph; they are replayed in turns, and a cell is the
microseconds of a layer on the slowest rank, the median of 30 replays. Batches are even ones,
groups padded alike, and uneven ones, where one group has half the rows of the others. All policies
give the same output before they are measured. Stops after ``--seconds`` with what there is.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.host_layers import Norm
from boundaryc import api
from boundaryc.plan.result import StackPlan
from boundaryc.report.costs import costs
from boundaryc.runtime import TorchGroups

WIDTH, LAYERS, REPLAYS = 4096, 12, 30
POLICIES = ("ar", "rs", "rsv", "rs+rsv")
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 8192)
"""Of each group, of the largest ones where they are uneven."""


def text(ranks: int) -> str:
    """The stack file."""
    return (
        f"boundaryc: 1\nstack: reduction_policies\nhidden_size: {WIDTH}\n"
        "norm: {kind: rms, eps: 1.0e-6}\n"
        "stages:\n  attention: {kind: attention}\n  experts: {kind: ffn, sparse: true}\n"
        f"layers: {{count: {LAYERS}, default: [attention, experts]}}\n"
        f"topologies: {{dp: {{tp: {ranks}, attn_dp: {ranks}, moe: {{ep: {ranks}}}}}}}\n"
        "variants: [ordinary]\n"
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """What is measured: the rows of each group, and how they are padded."""

    name: str
    rows: tuple[int, ...]
    padding: str

    @classmethod
    def all(cls, ranks: int) -> list[Batch]:
        """Even and uneven batches of every size."""
        found = []
        for tokens in TOKENS:
            found.append(cls(f"{tokens} even", (tokens,) * ranks, "max_len"))
            uneven = (tokens // 2, *(tokens,) * (ranks - 1))
            found.append(cls(f"{tokens} uneven", uneven, "unpadded"))
        return found


class Model:
    """The stack under one policy on this rank."""

    def __init__(self, package: ModuleType, policy: str, weights: Sequence[Tensor]) -> None:
        self.stack = package.load("dp", TorchGroups(device="cuda"), policy=policy)
        self.weights = weights
        norms = [Norm(torch.ones(WIDTH, dtype=torch.bfloat16, device="cuda")) for _ in range(2)]
        self.last = norms[0]
        self.layers = [
            self.stack.layer(index).bind(attention=norms[0], experts=norms[1])
            for index in range(LAYERS)
        ]

    def forward(self, batch: Any, hidden: Tensor) -> Tensor:
        """The normed output of this rank's rows."""
        self.stack.start(batch)
        weights = iter(self.weights)
        for layer in self.layers:
            hidden = layer.attention.prepare(hidden, batch)
            hidden = layer.attention.finish(hidden @ next(weights), batch)
            hidden = layer.experts.prepare(hidden, batch)
            with layer.experts.exit(batch) as output:
                hidden = output.reduce_output(hidden @ next(weights))
            hidden = output.finish(hidden)
        normed: Tensor = self.stack.norm(hidden, batch, self.last)
        return normed


def slowest(value: float) -> float:
    """The largest of all ranks' values."""
    held = torch.tensor(value, device="cuda")
    dist.all_reduce(held, dist.ReduceOp.MAX)
    return held.item()


def measured(models: dict[str, Model], batch: Batch) -> dict[str, float]:
    """Microseconds of a layer under each policy. Raises AssertionError where outputs differ."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    graphs, outputs, kept = {}, {}, []
    hidden = torch.randn(batch.rows[rank], WIDTH, device="cuda").bfloat16()
    for policy, model in models.items():
        own = model.stack.batch(rows_per_dp=list(batch.rows), padding=batch.padding, mode="decode")
        padded = hidden.new_zeros(own.stack_rows, WIDTH)
        padded[: len(hidden)] = hidden
        model.forward(own, padded)
        torch.cuda.synchronize()
        graphs[policy] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[policy]):
            outputs[policy] = model.forward(own, padded)
        kept.append((own, padded))
    times: dict[str, list[float]] = {policy: [] for policy in graphs}
    for _ in range(REPLAYS):
        for policy, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[policy].append(begin.elapsed_time(end) * 1000 / LAYERS)
    first = outputs[POLICIES[0]][: len(hidden)]
    for output in outputs.values():
        torch.testing.assert_close(output[: len(hidden)], first, rtol=0.05, atol=0.05)
    return {policy: round(slowest(median(found)), 2) for policy, found in times.items()}


def predicted(plan: StackPlan, batch: Batch) -> str:
    """The policies by what `boundaryc cost` says of them, equal ones beside each other."""
    if len(set(batch.rows)) > 1:
        return ""  # it deals tokens out evenly
    tokens = sum(batch.rows)
    lines = costs((plan,), (tokens,), POLICIES, batch.padding).lines
    by_cost: dict[float, list[str]] = {}
    for line in lines:
        by_cost.setdefault(line.microseconds, []).append(line.policy)
    return " < ".join(" = ".join(by_cost[cost]) for cost in sorted(by_cost))


def table(plan: StackPlan, records: Sequence[tuple[Batch, dict[str, float]]], ranks: int) -> str:
    """Markdown."""
    lines = [
        f"# Reduction policies under attention data parallelism on {ranks} GPUs",
        "",
        f"    torchrun --standalone --nproc-per-node {ranks} -m benchmarks.policies",
        "",
        f"{date.today()}, {torch.cuda.get_device_name()} x {ranks}, torch {torch.__version__}: "
        f"microseconds of a layer of {WIDTH} columns, matrices included, in a CUDA graph; the "
        "median on the slowest rank.",
        "",
        f"| rows of a group | {' | '.join(POLICIES)} | fastest | cheapest first by `cost` |",
        f"|---|{'---:|' * len(POLICIES)}---|---|",
    ]
    for batch, cells in records:
        best = min(cells.values())
        fastest = ", ".join(name for name, value in cells.items() if value <= 1.01 * best)
        values = " | ".join(f"{cells[policy]:.2f}" for policy in POLICIES)
        lines.append(f"| {batch.name} | {values} | {fastest} | {predicted(plan, batch)} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Measures and writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    asked = parser.parse_args()
    end = time.monotonic() + asked.seconds
    place = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(place)
    dist.init_process_group("nccl", device_id=torch.device("cuda", place))
    ranks = dist.get_world_size()
    with tempfile.TemporaryDirectory() as name:  # every rank has its own
        folder = Path(name)
        source = folder / "stack.yaml"
        source.write_text(text(ranks), encoding="utf-8")
        api.compile(source, out=folder / "made")
        plan = api.plan(source)
        sys.path.insert(0, str(folder / "made"))
        package = importlib.import_module("reduction_policies")
        records = run(package, Batch.all(ranks), end)
    if dist.get_rank() == 0:
        page = table(plan, records, ranks)
        print(page, flush=True)
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "policies.md").write_text(page, encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    return 0


def run(
    package: ModuleType, batches: Sequence[Batch], end: float
) -> list[tuple[Batch, dict[str, float]]]:
    """All batches until the time is over."""
    torch.manual_seed(7)
    weights = [
        (torch.randn(WIDTH, WIDTH, device="cuda") * WIDTH**-0.5).bfloat16()
        for _ in range(2 * LAYERS)
    ]
    records = []
    with torch.inference_mode():
        models = {policy: Model(package, policy, weights) for policy in POLICIES}
        for batch in batches:
            if slowest(float(time.monotonic() > end)):
                break
            records.append((batch, measured(models, batch)))
            if dist.get_rank() == 0:
                print(*records[-1], flush=True)
    return records


if __name__ == "__main__":
    raise SystemExit(main())
