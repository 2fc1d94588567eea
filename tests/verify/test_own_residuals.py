"""Residuals that models bring along: wider than outputs, replaced, gone through twice, kept."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import BoundaryError, SingleGroups
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.run import Prover
from tests.verify.stream_operations import narrowed
from tests.verify.subjects import prover

WIDE = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
residual: {kind: custom, streams: 1, enter: widened, read: narrowed, leave: narrowed}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn, update: replaced}
layers: {pattern: "AMA", stages: {A: [attention], M: [mlp]}}
captures: {before_norm: {after: [2]}}
pipeline: {payload: complete}
topologies: {tp1: {tp: 1}, tp4_dp2: {tp: 4, attn_dp: 2}}
variants: [ordinary, sequence_parallel]
operations:
  widened: {role: enter, call: "tests.verify.stream_operations:widened"}
  narrowed: {role: read, call: "tests.verify.stream_operations:narrowed", facts: [row_wise],
             params: [scale]}
  replaced: {role: update, call: "tests.verify.stream_operations:replaced",
             facts: [row_wise, at_producer]}
"""
SCALE = SimpleNamespace(weight=torch.linspace(0.5, 2, 64, dtype=torch.bfloat16))


def small(x: Tensor) -> Tensor:
    """What the stages compute: too little to change a bfloat16 residual of 1."""
    return x * 2.0**-12


@pytest.fixture(scope="module")
def runs() -> Prover:
    """The stack above, compiled."""
    return prover(WIDE)


@pytest.fixture
def stack(runs: Prover) -> Any:
    """It on one rank."""
    return runs.subject.package.load("tp1", SingleGroups())


def through(stack: Any, hidden: Any, batch: Any, compute: Callable[[Tensor], Any] = small) -> Any:
    """All layers."""
    for index in stack.layers:
        layer = stack.layer(index)
        name = "mlp" if index == 1 else "attention"
        at = getattr(layer.bind(**{f"{name}_scale": SCALE}), name)
        x = at.prepare(hidden, batch)
        if index != 1:
            hidden = at.finish(compute(x), batch)
            continue
        with at.exit(batch) as output:
            y = output.reduce_output(compute(x))
        hidden = output.finish(y)
    return hidden


def meant(residual: Tensor) -> Tensor:
    """The residual behind all layers, by its definition."""
    residual = residual.float() + small(narrowed(residual.float(), SCALE)).float()
    residual = small(narrowed(residual, SCALE)).float()
    return residual + small(narrowed(residual, SCALE)).float()


def started(stack: Any) -> tuple[Any, Tensor]:
    """A batch of three rows, and what enters."""
    batch = stack.batch(rows_per_dp=[3], padding="unpadded", mode="decode")
    stack.start(batch)
    return batch, torch.ones(3, 64, dtype=torch.bfloat16)


def test_it_holds_on_every_rank(runs: Prover) -> None:
    """The residual's rows move as others do; an update replaces it whole."""
    cells = covering(list(matrix(runs.subject.plan, Selection())))[::3]
    found = [runs.run(cell) for cell in cells]

    assert {cell.variant for cell in cells} == {"ordinary", "sequence_parallel"}
    assert [f"{one.cell}: {one.failure}" for one in found if one.failure] == []


def test_a_residual_is_wider_than_what_stages_compute(stack: Any) -> None:
    """float32 from one end to the other under bfloat16 stages, and read before the final norm."""
    batch, hidden = started(stack)
    seen = []

    def compute(x: Tensor) -> Tensor:
        seen.append((x.dtype, batch.stream.residual.dtype, batch.stream.residual.clone()))
        return small(x)

    output = stack.norm(through(stack, hidden, batch, compute), batch, SCALE)
    (kept,) = batch.captured("before_norm")

    assert [dtypes for *dtypes, _ in seen] == [[torch.bfloat16, torch.float32]] * 3
    assert kept.equal(meant(hidden))
    assert output.dtype is torch.bfloat16
    assert output.equal(narrowed(kept, SCALE))
    first = torch.ones(3, 64) + small(narrowed(torch.ones(3, 64), SCALE)).float()
    assert not first.eq(1).any()
    assert first.bfloat16().eq(1).any()  # which a narrow residual would have lost


@pytest.mark.parametrize("normed", [False, True], ids=["folded", "normed"])
def test_a_looped_stack_runs_its_layers_again(stack: Any, normed: bool) -> None:
    """With the final norm between the loops and a start, or with the residual as it is."""
    batch, hidden = started(stack)
    once = through(stack, hidden, batch)
    if normed:
        again = stack.norm(once, batch, SCALE)
        stack.start(batch)
        expected = meant(narrowed(meant(hidden), SCALE))
    else:
        again = stack.written(stack.fold(once, batch), batch)
        expected = meant(meant(hidden))
    stack.norm(through(stack, again, batch), batch, SCALE)

    assert batch.captured("before_norm")[-1].equal(expected)


def test_a_wide_residual_goes_over_a_cut_alone(runs: Prover) -> None:
    """Folded; beside a narrow output it is refused, as a payload has one dtype."""
    load = runs.subject.package.load
    first, rest = (load("tp1", SingleGroups(), layers=own) for own in (range(1), range(1, 3)))
    for folded in (True, False):
        batch, hidden = started(first)
        left = through(first, hidden, batch)
        sent = first.to_pp(first.fold(left, batch) if folded else left, batch)
        arrived = rest.batch(rows_per_dp=[3], padding="unpadded", mode="decode")
        if not folded:
            with pytest.raises(BoundaryError, match="widths and dtypes are equal"):
                rest.from_pp(sent, arrived)
            continue
        rest.norm(through(rest, rest.from_pp(sent, arrived), arrived), arrived, SCALE)

        assert [(name, one.dtype) for name, one in sent.items()] == [("residual", torch.float32)]
        assert arrived.captured("before_norm")[0].equal(meant(hidden))


def test_a_producer_of_several_tensors_leaves_one(stack: Any) -> None:
    """The others are the model's; what it forgot to take apart is refused by name."""
    batch, hidden = started(stack)

    with pytest.raises(BoundaryError, match="a stage leaves a tensor, not a tuple"):
        through(stack, hidden, batch, lambda x: (small(x), x))
