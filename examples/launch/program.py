"""One rank of a decoder that runs on several machines; `torchrun` starts it on each.

torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \
    -m examples.launch.program

Consecutive ranks are a pipeline stage, so ranks that share sums are on one machine where its
processes are enough for a stage. Every topology that the number of ranks is a multiple of runs, and
the last stage compares its rows with the same decoder on one rank.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from boundaryc.runtime import AnyBatch, AnyStack, PayloadTensor, TorchGroups
from examples.launch.model import LAYERS, WIDTH, Weights, sequence
from generated import convoy

TOKENS = (5, 3)  # of the one sequence that each attention-DP group has
STAGE = {"tp2": 2, "tp2_dp2": 2, "tp4_dp2": 4}  # ranks of a pipeline stage
CLOSE = 1e-12


def main() -> int:
    """Runs all topologies that fit; 1 where one differs from the decoder on one rank."""
    device = _joined()
    wrong = 0
    for topology in convoy.TOPOLOGIES:
        if dist.get_world_size() % STAGE[topology]:
            continue
        rank = Rank(topology, device)
        own = rank.forward()
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, own)
        worst = max(error for error in every if error is not None)
        wrong += not worst < CLOSE  # a NaN is no small number
        if dist.get_rank() == 0:
            print(f"{topology} x {rank.stages} stages: largest difference {worst:.1e}", flush=True)
    # Gloo's threads let go of the last tensors when they please. The interpreter must not end
    # before that, so their groups end first, which waits for the threads.
    dist.destroy_process_group()
    gc.collect()
    return min(wrong, 1)


def _joined() -> torch.device:
    """Joins the others, whom torchrun's environment variables name; where tensors are then."""
    timeout = timedelta(seconds=120)
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
        dist.init_process_group("gloo", timeout=timeout)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=timeout, device_id=device)
    return device


class Rank:
    """One rank of one topology: its layers, its part of their weights, and its neighbours."""

    def __init__(self, topology: str, device: torch.device) -> None:
        self.size = STAGE[topology]
        self.stages = dist.get_world_size() // self.size
        stage = dist.get_rank() // self.size
        layers = range(LAYERS * stage // self.stages, LAYERS * (stage + 1) // self.stages)
        groups = TorchGroups(stage_size=self.size)
        self.stack: AnyStack = convoy.load(topology, groups, layers=layers)
        self.weights, self.device = Weights.drawn(device), device
        self.groups = 2 if topology.endswith("dp2") else 1
        # Ranks of a group are neighbours: attention tensor parallel is the innermost axis.
        self.group, self.head = divmod(groups.rank, self.size // self.groups)

    def forward(self) -> float | None:
        """The largest difference of this rank's rows; None before the last stage."""
        stack, first, last = self.stack, self.stack.layers[0] == 0, self.stack.layers.stop == LAYERS
        tokens = TOKENS[: self.groups]
        batch = stack.batch(rows_per_dp=tokens, padding="sum_len", mode="prefill")
        own = sequence(tokens[self.group], self.group, self.device)
        hidden: Any
        if first:
            stack.start(batch)
            hidden = own.new_zeros(batch.stack_rows, WIDTH)  # tokens first, then pads
            hidden[: len(own)] = own
        else:
            hidden = stack.from_pp(self._received(batch), batch)
        for index in stack.layers:
            hidden = self._layer(index, hidden, batch)
        if not last:
            self._send(stack.to_pp(hidden, batch), batch)
            return None
        found = stack.norm(hidden, batch, self.weights.final)[: len(own)]
        return float((found - self.weights.whole(own)).abs().max())

    def _layer(self, index: int, hidden: Any, batch: AnyBatch) -> Any:
        """A layer whose compute returns its part and sums nothing by itself."""
        layer, rank = self.weights.layers[index], self.stack.rank
        at: Any = self.stack.layer(index).bind(attention=layer.norms[0], mlp=layer.norms[1])
        x = at.attention.prepare(hidden, batch)
        part = layer.attention(x, self.head, self.size // self.groups)
        hidden = at.attention.finish(part, batch)
        x = at.mlp.prepare(hidden, batch)
        with at.mlp.exit(batch) as output:
            part = output.reduce_output(layer.mlp(x, rank, self.size))
        return output.finish(part)

    # Each rank talks to the rank that has its number in the stage before or behind.

    def _received(self, batch: AnyBatch) -> dict[str, Tensor]:
        found = {}
        for part in _some(self.stack.payload(batch, incoming=True)):
            shape = (part.rows, *(WIDTH if size is None else size for size in part.inner))
            found[part.name] = torch.empty(shape, dtype=torch.float64, device=self.device)
            if part.rows:
                dist.recv(found[part.name], dist.get_rank() - self.size)
        return found

    def _send(self, tensors: dict[str, Tensor], batch: AnyBatch) -> None:
        for part in _some(self.stack.payload(batch, incoming=False)):
            if part.rows:
                dist.send(tensors[part.name].contiguous(), dist.get_rank() + self.size)


def _some(parts: tuple[PayloadTensor, ...]) -> Iterator[PayloadTensor]:
    """The tensors of a payload in an order that both sides know."""
    yield from sorted(parts, key=lambda part: part.name)


if __name__ == "__main__":
    sys.exit(main())
