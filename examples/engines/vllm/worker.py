"""The ranks of the example: python -m examples.engines.vllm.worker FOLDER.

`run` prepares the folder; each rank writes `tp2-<rank>.pt` there: for each case the largest
difference of its rows from the one-rank float64 model, and how many rows they were.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch

from examples.engines.sglang.reference import Config as Sizes
from examples.engines.sglang.reference import forward, weights
from examples.engines.vllm import process

CASES: list[tuple[list[int], str]] = [
    ([5, 3], "ordinary"),
    ([3, 4], "sequence_parallel"),
    ([4, 1, 3], "input_scattered"),
    ([6, 1], "input_scattered"),
    ([1], "input_scattered"),
]
"""Lengths of the requests of a prefill, and the variant of its batch; 7 rows are cut unevenly."""


@dataclass(frozen=True, slots=True)
class Config(Sizes):
    """Sizes of a tiny Qwen3."""

    vocab_size: int = 96


def main() -> None:
    """Runs all ranks."""
    process.prepare()
    import_module("examples.engines.vllm.qwen3")
    process.on_ranks(run, Path(sys.argv[1]))


def run(rank: int, folder: Path) -> None:
    """All cases on one rank."""
    with process.layout(tp=process.RANKS) as settings:
        results = [_case(lengths, variant, settings) for lengths, variant in CASES]
    torch.save(results, folder / f"tp2-{rank}.pt")


def _case(lengths: list[int], variant: str, settings: object) -> tuple[float, int]:
    """The difference and the rows of one batch."""
    from vllm.forward_context import set_forward_context

    from boundaryc.engines.vllm import VllmGroups
    from examples.engines.vllm import qwen3

    config, rows = Config(), sum(lengths)
    given = weights(config)
    generator = torch.Generator().manual_seed(rows)
    given["embedding"] = torch.randn(config.vocab_size, config.hidden_size, generator=generator)
    input_ids = torch.randint(config.vocab_size, (rows,), generator=generator)
    stack = import_module("generated.vllm_qwen3").load("tp2", VllmGroups())
    model = qwen3.build(config, stack, given, scatters=variant == "input_scattered")
    positions = torch.cat([torch.arange(length) for length in lengths])
    with set_forward_context(lengths, settings, num_tokens=rows):
        output = model(input_ids, positions, sequence_parallel=variant == "sequence_parallel")
    embedded = given["embedding"][input_ids].split(lengths)
    expected = torch.cat([forward(config, given, one) for one in embedded])
    difference = (output.double() - expected).abs()
    # A NaN must not pass as small: it is no number's lesser.
    return float(difference.nan_to_num(nan=float("inf")).max()), output.shape[0]


if __name__ == "__main__":
    main()
