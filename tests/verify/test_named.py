"""Sandwich and post-norm: their definition in float64 on one rank, and simulated ranks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from boundaryc.language import loads
from boundaryc.language.model import Stack
from boundaryc.verify.fixture import Fixture, Place
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.oracle import interpret
from tests.verify.subjects import prover

TEXT = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 0.125, weight_offset: 1}
stages:
  attention: {kind: attention, update: NAME}
  mlp: {kind: ffn, update: NAME, read: NAME, norm: {kind: rms, eps: 0.5}}
layers: {count: 3, default: [attention, mlp]}
topologies: {tp2: {tp: 2}, tp4_dp2: {tp: 4, attn_dp: 2}}
variants: [ordinary, sequence_parallel]
"""
NAMES = ("sandwich", "post_norm")


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """A norm as papers write it."""
    return x * weight / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def by_definition(stack: Stack, fixture: Fixture, x: Tensor, *, reads: bool) -> Tensor:
    """Adds norm(f(norm(x))) for every stage, or norm(f(x)) where nothing is normed before."""
    for index, names in enumerate(stack.layers):
        for name in names:
            place = Place(index, name)
            eps, offset = (0.125, 1) if name == "attention" else (0.5, 0)
            bound = {key: value + offset for key, value in fixture.weights[place].params.items()}
            seen = rms(x, bound["norm"], eps) if reads else x
            output = fixture.contribution(place, seen, mixes=name == "attention")
            x = x + rms(output, bound["output_norm"], eps)
    return rms(x, fixture.final + 1, 0.125)


@pytest.mark.parametrize("name", NAMES)
def test_against_the_definition(name: str) -> None:
    """The oracle, written apart from this, says the same."""
    subject = prover(TEXT.replace("NAME", name)).subject
    stack, fixture = subject.plan.stack, subject.fixture
    tokens = torch.randn(5, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = by_definition(stack, fixture, tokens, reads=name == "sandwich")
    found = interpret(stack, fixture, tokens, [5]).output
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert all(("norm" in one.params) is (name == "sandwich") for one in fixture.weights.values())


@pytest.mark.parametrize("name", NAMES)
def test_they_hold_on_simulated_ranks(name: str) -> None:
    """A plain forward, and one that uses outputs between all stages."""
    runs = prover(TEXT.replace("NAME", name))
    selected = Selection(paddings=("sum_len",), policies=("auto",))
    cells = covering(list(matrix(runs.subject.plan, selected)))
    done = [runs.run(cell, deeds=seed) for seed, cell in enumerate(cells)]
    assert len(cells) > 10
    assert [f"{one.cell}: {one.failure}" for one in done if one.failure] == []


def test_they_are_short_for_a_transform() -> None:
    """The same stack as with the words spelled out."""
    for name, read in (("sandwich", "norm"), ("post_norm", "raw")):
        short = TEXT.replace("NAME", name)
        long = short.replace(f", read: {name}", "").replace(
            f"update: {name}", f"read: {read}, update: add, transform: norm"
        )
        assert loads(short) == loads(long)
