"""Boundary work in CUDA graphs: generated boundaries beside the same kernels launched by hand.

    python -m benchmarks.graphs [--replays 200] [--out benchmarks/results/graphs.md]

A Qwen3-shaped stack of 36 layers of 4,096 columns in bfloat16 on one GPU, attention and FFN one
matrix each. Graphs of one forward: through the boundaries; a loop that calls the same kernels
itself; matrices alone; and the first two once more without matrices. Each is captured several
times, because where a graph's memory lies is worth more than what is measured; all are replayed in
turns and the medians count. What the boundaries of a layer take beside matrices is the difference
to matrices alone. Beside it what a layer takes on the host without a graph. Exits 1 where
boundaries are more than 5 % dearer than by hand, or the outputs are not the same bit for bit.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from types import ModuleType

import torch
import triton
from torch import Tensor

from benchmarks.host_layers import LAYERS, Norm, compiled
from boundaryc.runtime import SingleGroups

WIDTH = 4096
TOKENS = (1, 2, 4, 8, 16, 32, 64)
LIMIT = 1.05
CAPTURES = 8
"""Graphs of each kind."""
EAGER = 50
"""Forwards without a graph, of which the median counts."""

Forward = Callable[[], Tensor]
Compute = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Line:
    """One number of tokens; microseconds of a layer, boundaries alone where it says so."""

    tokens: int
    matrices: float
    ours: float  # boundaries beside matrices
    hand: float  # the same
    alone: float  # boundaries without matrices
    alone_hand: float  # the same
    eager: float
    eager_hand: float


class Stack:
    """The stack with weights, and its three forwards over ``tokens`` rows."""

    def __init__(self, package: ModuleType, tokens: int) -> None:
        device = torch.device("cuda")
        torch.manual_seed(tokens)

        def random(*shape: int, scale: float) -> Tensor:
            return (torch.randn(*shape, device=device) * scale).to(torch.bfloat16)

        self.stack = package.load("tp1", SingleGroups())
        self.rowwise = importlib.import_module(f"{package.__name__}.rowwise")
        self.x = random(tokens, WIDTH, scale=1.0)
        self.norms = [Norm(random(WIDTH, scale=0.1) + 1) for _ in range(2 * LAYERS)]
        self.last = Norm(random(WIDTH, scale=0.1) + 1)
        self.matrices = [random(WIDTH, WIDTH, scale=WIDTH**-0.5) for _ in range(2 * LAYERS)]
        self.compute: Compute = torch.matmul
        self.batch = self.stack.batch(rows_per_dp=[tokens], padding="max_len", mode="decode")
        self.layers = [
            self.stack.layer(index).bind(
                attention=self.norms[2 * index], mlp=self.norms[2 * index + 1]
            )
            for index in range(LAYERS)
        ]

    def ours(self) -> Tensor:
        """Through the generated boundaries."""
        batch, hidden, compute = self.batch, self.x, self.compute
        self.stack.start(batch)
        matrices = iter(self.matrices)
        for layer in self.layers:
            hidden = layer.attention.prepare(hidden, batch)
            hidden = layer.attention.finish(compute(hidden, next(matrices)), batch)
            hidden = layer.mlp.prepare(hidden, batch)
            with layer.mlp.exit(batch) as output:
                hidden = output.reduce_output(compute(hidden, next(matrices)))
            hidden = output.finish(hidden)
        normed: Tensor = self.stack.norm(hidden, batch, self.last)
        return normed

    def hand(self) -> Tensor:
        """The same kernels, called one after the other."""
        rms_norm, add_rms_norm = self.rowwise.rms_norm, self.rowwise.add_rms_norm
        residual, compute = self.x, self.compute
        hidden: Tensor = rms_norm(residual, self.norms[0].weight)
        for matrix, norm in zip(self.matrices, [*self.norms[1:], self.last], strict=True):
            hidden, residual = add_rms_norm(compute(hidden, matrix), residual, norm.weight)
        return hidden

    def bare(self) -> Tensor:
        """Matrices alone."""
        hidden = self.x
        for matrix in self.matrices:
            hidden = hidden @ matrix
        return hidden


def graphed(forward: Forward) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A forward as a graph, and where its output is after a replay."""
    forward()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = forward()
    return graph, output


def replayed(graphs: Sequence[torch.cuda.CUDAGraph], count: int) -> list[float]:
    """Microseconds of one replay of each, medians of ``count`` in turns."""
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(count):
        for graph, found in zip(graphs, times, strict=True):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            found.append(begin.elapsed_time(end) * 1000)
    return [median(found) for found in times]


def eager(forwards: Sequence[Forward]) -> list[float]:
    """Microseconds of the host for one forward of each without a graph, in turns."""
    times: list[list[float]] = [[] for _ in forwards]
    for _ in range(EAGER):
        for forward, found in zip(forwards, times, strict=True):
            torch.cuda.synchronize()
            begin = time.perf_counter_ns()
            forward()
            found.append((time.perf_counter_ns() - begin) / 1000)
    return [median(found) for found in times]


def given(hidden: Tensor, matrix: Tensor) -> Tensor:
    """Compute that does nothing."""
    return hidden


def in_graphs(forwards: Sequence[Forward], replays: int) -> list[float]:
    """Microseconds of a layer of each forward in a graph, medians over its captures' medians.

    Raises SystemExit where the first two give other outputs.
    """
    captures = [[graphed(one) for one in forwards] for _ in range(CAPTURES)]
    every = [graph for capture in captures for graph, _ in capture]
    replayed(every, 3)
    if not all(torch.equal(ours[1], hand[1]) for ours, hand, *_ in captures):
        raise SystemExit("another output than that by hand")
    times = replayed(every, replays)
    kinds = [times[kind :: len(forwards)] for kind in range(len(forwards))]
    return [median(kind) / LAYERS for kind in kinds]


def measured(package: ModuleType, tokens: int, replays: int) -> Line:
    """One line."""
    one = Stack(package, tokens)
    ours, hand, bare = in_graphs((one.ours, one.hand, one.bare), replays)
    host, host_hand = (spent / LAYERS for spent in eager((one.ours, one.hand)))
    one.compute = given
    alone, alone_hand = in_graphs((one.ours, one.hand), replays)
    return Line(tokens, bare, ours - bare, hand - bare, alone, alone_hand, host, host_hand)


def table(lines: Sequence[Line], replays: int) -> str:
    """Markdown."""
    text = [
        "# Boundaries in CUDA graphs",
        "",
        "    python -m benchmarks.graphs --out benchmarks/results/graphs.md",
        "",
        f"{date.today()}, {torch.cuda.get_device_name()}, torch {torch.__version__}, Triton "
        f"{triton.__version__}: {LAYERS} layers of {WIDTH} columns, medians of {replays} replays "
        f"of each of {CAPTURES} captures; microseconds of a layer.",
        "",
        "| tokens | matrices | boundaries beside them, ours | by hand | ratio "
        "| boundaries alone, ours | by hand | ratio | eager on the host, ours | by hand |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in lines:
        text.append(
            f"| {one.tokens} | {one.matrices:.2f} | {one.ours:.3f} | {one.hand:.3f} "
            f"| {one.ours / one.hand:.3f} | {one.alone:.3f} | {one.alone_hand:.3f} "
            f"| {one.alone / one.alone_hand:.3f} | {one.eager:.1f} | {one.eager_hand:.1f} |"
        )
    return "\n".join(text) + "\n"


def main() -> int:
    """Measures and prints; 1 if the limit is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--replays", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        compiled(Path(folder), WIDTH)
        sys.path.insert(0, folder)
        package = importlib.import_module("qwen3")
        lines = [measured(package, tokens, options.replays) for tokens in TOKENS]
    text = table(lines, options.replays)
    print(text, end="")
    if options.out:
        options.out.write_text(text)
    pairs = [(one.ours, one.hand) for one in lines] + [(one.alone, one.alone_hand) for one in lines]
    return int(any(ours > LIMIT * hand for ours, hand in pairs))


if __name__ == "__main__":
    raise SystemExit(main())
