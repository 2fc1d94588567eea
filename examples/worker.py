"""One rank of the demo; `torchrun` starts it and `examples.demo` prepares its folder.

torchrun --nproc-per-node 4 -m examples.worker FOLDER
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from boundaryc.runtime import TorchGroups
from examples.cases import SEQUENCE_PARALLEL, Case, Result, steps
from examples.common.attention import KVCache, tokens
from examples.common.decoder import Decoder
from examples.counting import CountingGroups
from examples.reference import Reference


def main() -> None:
    """Runs all cases of the folder; rank 0 writes `results.pt` there."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    _run_all(Path(sys.argv[1]))
    # Gloo's threads let go of the last tensors when they please. The interpreter must not end
    # before that, so their groups end first, which waits for the threads.
    dist.destroy_process_group()
    gc.collect()


def _run_all(folder: Path) -> None:
    groups = TorchGroups()
    plan: tuple[dict[str, Reference], list[Case]] = torch.load(
        folder / "cases.pt", weights_only=False, mmap=True
    )
    references, cases = plan
    results = []
    for case in cases:
        results.append(run(case, references[case.stack], CountingGroups(groups)))
        if groups.rank == 0:
            print(".", end="", file=sys.stderr, flush=True)
    if groups.rank == 0:
        print(file=sys.stderr)
        torch.save(results, folder / "results.pt")


def run(case: Case, reference: Reference, groups: CountingGroups) -> Result:
    """Runs one case on this rank; every rank returns the same result."""
    generated = import_module(f"generated.{case.stack}")
    stack = generated.load(case.topology, groups, policy=case.policy)
    parallel = case.parallel.at(groups.rank)
    build = import_module(f"examples.{case.stack}.model").build
    model: Decoder = build(stack, reference.config, parallel, reference.weights)
    calls = _count_middle_layer(model, groups)

    cache, worst, total = KVCache(), 0.0, 0
    for index, step in enumerate(steps(case.attn_dp, reference.sequences)):
        batch = stack.batch(
            rows_per_dp=[sum(len(ids) for _, ids in group) for group in step],
            padding=case.padding,
            mode="decode" if index else "prefill",
            sequence_parallel=case.variant == SEQUENCE_PARALLEL,
        )
        own = step[parallel.group]
        new = tokens(reference.config, cache, own)
        worst = max(worst, _difference(model(batch, new, cache), own, cache, reference))
        total += sum(len(ids) for group in step for _, ids in group)
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, (worst, groups.traffic.bytes))
    return Result(
        case=case,
        calls=dict(calls[0]),
        received=sum(received for _, received in every),
        tokens=total,
        difference=max(difference for difference, _ in every),
    )


def _difference(
    logits: Tensor, own: list[tuple[int, list[int]]], cache: KVCache, reference: Reference
) -> float:
    """The largest difference of this rank's logits from the reference; 0 without tokens."""
    if not own:
        return 0.0
    expected = []
    for sequence, ids in own:
        end = cache.length(sequence)
        expected.append(reference.logits[sequence][end - len(ids) : end])
    # A NaN must not pass as small: it is no number's lesser.
    return float((logits - torch.cat(expected)).abs().nan_to_num(nan=float("inf")).max())


def _count_middle_layer(model: Decoder, groups: CountingGroups) -> list[Counter[str]]:
    """Collects, forward by forward, the collectives that run inside the middle layer."""
    counted: list[Counter[str]] = []
    middle = model.layers[len(model.layers) // 2]
    middle.register_forward_pre_hook(lambda *_: counted.append(groups.traffic.calls.copy()))

    def after(*_: object) -> None:
        counted[-1] = groups.traffic.calls - counted[-1]

    middle.register_forward_hook(after)
    return counted


if __name__ == "__main__":
    main()
