"""LR-1: the batch says which tokens every stage's input has, zero included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, covering, matrix
from tests.plan.simulated import Stage, numbers, subject, summed, verified
from tests.plan.stacks import ATTENTION, EXPERTS, MLP, stack, topology
from tests.verify.subjects import prover
from tests.verify.test_operations import SMALL, STACKS, text

ADAPTERS = torch.tensor([0.0, 0.5, -0.25], dtype=torch.float64)
"""What an adapter adds to each column of a stage's output, by adapter."""


def test_lr1_rows_are_those_of_this_step() -> None:
    """sgl-project/sglang#32707: steps [4, 3] and [0, 2], each token with an adapter of its own.

    The FFN sees rows of both groups; in the second step the ranks of group 0 have none of their
    own, and an index from the first would not fit.
    """
    spec = topology(4, dp=2)
    layers = (("attention", "mlp"), ("attention", "experts"))
    sample = stack(spec, layers=layers, variants=("ordinary",))
    with subject(replace(sample, lora=True)) as runs:
        for rows in ((4, 3), (0, 2)):
            adapter = torch.arange(sum(rows)) % len(ADAPTERS)
            seen: dict[tuple[int, int, str], list[int]] = {}

            def compute(
                at: Stage,
                x: Tensor,
                adapter: Tensor = adapter,
                seen: dict[tuple[int, int, str], list[int]] = seen,
            ) -> Tensor:
                tokens = at.batch.lora_rows
                assert tokens.shape[0] == x.shape[0]
                seen[at.rank, at.layer, at.name] = tokens.tolist()
                real = tokens >= 0
                y = torch.zeros_like(x)
                y[real] += ADAPTERS[adapter[tokens[real]]].unsqueeze(1)
                if at.exit is None:
                    return y / 2  # each rank of attn_tp has a half of it
                return summed(at, y / 4)

            done, _ = numbers(runs, spec.name, compute, rows_per_dp=rows)
            first = 0
            for group, count in enumerate(rows):
                expected = 4 * ADAPTERS[adapter[first : first + count]]
                for one in done[2 * group : 2 * group + 2]:
                    right = expected.unsqueeze(1).expand(count, 64)
                    torch.testing.assert_close(one.residual[:count], right)
                own = list(range(first, first + count))
                for rank in (2 * group, 2 * group + 1):
                    for layer, ffn in enumerate(("mlp", "experts")):
                        assert [t for t in seen[rank, layer, "attention"] if t >= 0] == own
                        assert [t for t in seen[rank, layer, ffn] if t >= 0] == list(
                            range(sum(rows))
                        )
                first += count


@pytest.mark.parametrize("name", STACKS)
def test_published_rows_are_those_of_the_input(name: str) -> None:
    """Every variant, shard, padding and construct; also past outputs that were used in between."""
    runs = prover(text(name, SMALL) + "lora: true\n")
    for number, cell in enumerate(covering(list(matrix(runs.subject.plan, Selection())))[::5]):
        outcome = runs.run(cell, deeds=number if number % 2 else None)
        assert outcome.failure is None, f"{cell}: {outcome.failure}"


def test_stale_rows_are_found() -> None:
    """What these tests compare is what is published: rows of another stage's input fail them."""

    def damage(files: dict[str, str]) -> None:
        for path, content in files.items():
            files[path] = content.replace("= rows.tokens_of_all", "= rows.tokens_of_attn_dp")

    written = text("tails", "topologies: {tp4_dp2: {tp: 4, attn_dp: 2}}\n") + "lora: true\n"
    written = written.replace(", context_parallel", "").replace(", input_scattered", "")
    outcome = prover(written, damage).run(Cell("tp4_dp2", "ordinary", "ar", "sum_len", (3, 2)))
    assert "published rows" in str(outcome.failure)


def test_nothing_is_published_before_the_first_stage() -> None:
    """A batch that is started again does not show rows of the forward before."""
    spec = topology(1)
    with subject(replace(stack(spec, variants=("ordinary",)), lora=True)) as runs:
        found = verified(runs, Cell(spec.name, "ordinary", "ar", "sum_len", (3,)))
        (program,) = found.programs
        batch: Any = program.batch
        assert batch.lora_rows.tolist() == [0, 1, 2]
        program.stack.start(batch)
        assert batch.lora_rows is None


@pytest.mark.parametrize("lora", [True, False])
def test_an_ffn_keeps_its_sum(lora: bool) -> None:
    """X15: with adapters an FFN's output is added to, so no FFN leaves its sum; mixers may."""
    spec = topology(2)
    sample = replace(stack(spec, stages=(ATTENTION, MLP, EXPERTS)), lora=lora)
    with subject(sample) as runs:
        found = verified(runs, Cell(spec.name, "ordinary", "ar", "sum_len", (5,)))
        assert [one.fuse for one in found.decided[0]] == [not lora] * 3 + [False]
