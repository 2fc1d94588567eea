"""Additions between an update and a read: in one call with both, with the bits of three steps."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from boundaryc.runtime.rowwise import add
from boundaryc.verify.run import Prover
from tests.verify.fused import HEAD, WIDTH, Forward, Model, Rank, census, forwards
from tests.verify.subjects import compiled, prover

STACK = """\
stages:
  attention: {kind: attention, post_addition: true}
  mlp: {kind: ffn, update: {scaled_add: 0.5}}
layers: {count: 2, default: [attention, mlp]}
topologies: {tp2: {tp: 2}, tp4_dp2: {tp: 4, attn_dp: 2}}
fusion: {providers: [kernels]}
"""
SANDWICH = "read: sandwich, update: sandwich"
ROWS = {"tp2": (3,), "tp4_dp2": (3, 1)}


@pytest.fixture(scope="module")
def runs() -> Prover:
    """A stack with an addition behind a scaled update."""
    return prover(HEAD + STACK)


def _model(*, at_once: bool) -> Model:
    """A forward with an addition to the second layer; ``at_once`` or in steps."""

    def model(forward: Forward) -> Tensor:
        forward.dtype = torch.bfloat16
        stack, batch = forward.rank.stack, forward.rank.batch
        hidden = forward.run(forward.start(), [0])
        attention = forward.boundary(1, "attention")
        extra = torch.linspace(-3, 3, batch.stack_rows * WIDTH, dtype=torch.bfloat16)
        extra = extra.view(-1, WIDTH)
        if at_once:
            x = attention.prepare(hidden, batch, post_residual_addition=extra)
        else:
            folded = stack.fold(hidden, batch)
            x = attention.prepare(stack.written(add(extra, folded), batch), batch)
        read_from = batch.stream.residual.clone()
        return torch.cat([x.flatten(), read_from.flatten()])

    return model


def _found(ranks: list[Rank]) -> list[Tensor]:
    return [rank.output for rank in ranks]


@pytest.mark.parametrize("topology", ROWS)
def test_it_has_the_bits_of_three_steps(runs: Prover, topology: str) -> None:
    """In bfloat16, where every rounding shows; and the same collectives."""
    rows = ROWS[topology]
    ranks, traces = forwards(runs, topology, _model(at_once=True), rows=rows)
    stepwise, expected = forwards(runs, topology, _model(at_once=False), rows=rows)

    for one, other in zip(_found(ranks), _found(stepwise), strict=True):
        assert torch.equal(one, other)
    assert census(traces) == census(expected)


def test_a_gap_in_the_rounding_shows() -> None:
    """The comparison above fails where the sum is not rounded before the addition."""

    def damage(files: dict[str, str]) -> None:
        text, once = files["rowwise.py"], "runtime.add(addition, runtime.add(x, residual, scale))"
        assert once in text
        wide = "runtime.add(addition, x.float() * scale + residual.float()).to(residual.dtype)"
        files["rowwise.py"] = text.replace(once, wide)

    broken = prover(HEAD + STACK, damage)
    ranks, _ = forwards(broken, "tp2", _model(at_once=True))
    stepwise, _ = forwards(broken, "tp2", _model(at_once=False))
    assert not torch.equal(_found(ranks)[0], _found(stepwise)[0])


def test_one_kernel_has_the_update_the_addition_and_the_read() -> None:
    """Also behind the norm of an output; where rows move in between, a part of them."""
    _, files = compiled(HEAD + STACK)

    at_once = files["tp2/ordinary_access.py"]
    assert "added=mlp_with_addition_to_attention," in at_once
    given = "hidden stream.residual addition norm.weight 0.5".replace(" ", r",\s*")
    assert re.search(rf"add_addition_rms_norm\(\s*{given},?\s*\)", at_once)
    assert "def add_addition_rms_norm" in files["kernels.py"]
    _, files = compiled(HEAD + STACK.replace("update: {scaled_add: 0.5}", SANDWICH))
    assert "rms_add_addition_rms_norm(" in files["tp2/ordinary_access.py"]


def test_a_stack_without_additions_has_no_word_of_them() -> None:
    """Code is as short as the stack is plain."""
    _, files = compiled(HEAD + STACK.replace(", post_addition: true", ""))
    assert not [name for name, text in files.items() if "addition" in text]
