"""One rank of the example: python -m examples.engines.sglang.worker FOLDER TOPOLOGY RANK ADDRESS.

`run` prepares the folder; this writes `<topology>-<rank>.pt` there: for each case the largest
difference of this rank's rows from the one-rank float64 model, and how many rows they were.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from examples.engines.sglang import process
from examples.engines.sglang.reference import Config, forward, weights

RANKS = 2

ARGUMENTS: dict[str, dict[str, Any]] = {
    "tp2": {},
    "tp2_dp2": {"enable_dp_attention": True, "dp_size": 2},
}
"""What SGLang is started with for each topology."""

CASES: dict[str, list[tuple[list[list[int]], dict[str, bool]]]] = {
    "tp2": [
        ([[5, 3]], {}),
        ([[3, 4]], {"sequence_parallel": True}),
    ],
    "tp2_dp2": [
        ([[5], [2, 1]], {}),
        ([[4, 2], []], {}),
        ([[], [7]], {}),
        ([[3], [3]], {}),
    ],
}
"""Lengths of the requests of each attention DP group, and the other facts of the batch."""


def main() -> None:
    """Runs all cases of one topology."""
    folder, topology, rank, address = sys.argv[1:]
    torch.set_num_threads(1)
    process.start(int(rank), RANKS, address, **ARGUMENTS[topology])
    results = run(topology, int(rank))
    torch.save(results, Path(folder) / f"{topology}-{rank}.pt")
    dist.destroy_process_group()
    gc.collect()


@torch.inference_mode()
def run(topology: str, rank: int) -> list[tuple[float, int]]:
    """The differences and the real rows of this rank, case by case."""
    from boundaryc.engines.sglang import SglangGroups
    from examples.engines.sglang import qwen3

    config = Config()
    given = weights(config)
    stack = import_module("generated.sglang_qwen3").load(topology, SglangGroups())
    model = qwen3.on_cpu(qwen3.load(qwen3.Model(config, stack), given))
    results = []
    for lengths, facts in CASES[topology]:
        group = rank * len(lengths) // RANKS
        own = lengths[group]
        generator = torch.Generator().manual_seed(group)
        requests = [torch.randn(length, config.hidden_size, generator=generator) for length in own]
        batch = process.forward_batch(lengths, rank, config.hidden_size)
        embedded = torch.zeros(batch.input_ids.shape[0], config.hidden_size)
        if requests:
            embedded[: sum(own)] = torch.cat(requests)
        output = model(batch.positions, embedded, batch, **facts)
        worst = 0.0
        if requests:
            expected = torch.cat([forward(config, given, one) for one in requests])
            difference = (output[: sum(own)].double() - expected).abs()
            # A NaN must not pass as small: it is no number's lesser.
            worst = float(difference.nan_to_num(nan=float("inf")).max())
        results.append((worst, sum(own)))
    return results


if __name__ == "__main__":
    main()
