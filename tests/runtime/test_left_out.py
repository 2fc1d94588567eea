"""What a model leaves out is named: parameters that were not bound, a stage that was not left."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from boundaryc.runtime import BoundaryError, SingleGroups
from boundaryc.runtime.unbound import Unbound
from boundaryc.verify.fixture import Parameter
from boundaryc.verify.modules import import_package
from tests.verify.subjects import compiled

STACK = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  attention_2: {kind: attention, transform: norm}
  mlp: {kind: ffn}
  raw: {kind: ffn, read: raw, update: gated}
  bare: {kind: ffn, read: raw}
operations:
  gated: {role: update, call: "tests.verify.operations:gated_add", params: [gate],
          facts: [row_wise, outlives_producer]}
layers: {pattern: "AB", stages: {A: [attention, attention_2, mlp, raw], B: [bare]}}
topologies: {tp1: {tp: 1}}
"""
NAMES = ("attention", "attention_2", "attention_2_output_norm", "mlp", "raw_gate")
NORM = Parameter(torch.ones(64))
HOW = (
    "is not bound: call `bind` of its layer with the parameters of that layer, as in "
    "`stack.layer(index).bind(...)`, and use the boundaries of what it returns"
)
LEFT = (
    "give what it computes to its `finish`, to the `finish` of its exit where it has one, or to "
    "`branch_output` beside a branch"
)


class Forward:
    """A forward on one rank."""

    def __init__(self, stack: Any) -> None:
        self.stack = stack
        self.batch = stack.batch(rows_per_dp=[2], padding="unpadded", mode="prefill")
        self.stack.start(self.batch)
        self.unbound, self.hidden = stack.layer(0), torch.ones(2, 64)
        self.layer = self.unbound.bind(**dict.fromkeys(NAMES, NORM))

    def run(self, *names: str) -> Forward:
        """Stages of the first layer, bound."""
        for name in names:
            boundary = getattr(self.layer, name)
            x = boundary.prepare(self.hidden, self.batch)
            if name.startswith("attention"):
                self.hidden = boundary.finish(x, self.batch)
                continue
            with boundary.exit(self.batch) as out:
                x = out.reduce_output(x)
            self.hidden = out.finish(x)
        return self


@pytest.fixture(scope="module")
def stack() -> Any:
    """Stages that bind a norm, two, something of their update alone, and nothing."""
    return import_package(compiled(STACK)[1], "sample").load("tp1", SingleGroups())


@pytest.fixture
def forward(stack: Any) -> Forward:
    """A forward that begins."""
    return Forward(stack)


@pytest.mark.parametrize(
    ("ran", "name"),
    [((), "attention"), (("attention",), "attention_2"), (("attention", "attention_2"), "mlp")],
)
def test_a_boundary_that_was_not_bound(forward: Forward, ran: tuple[str, ...], name: str) -> None:
    """At the first and at later stages, whose parameters are unpacked where they are used."""
    forward.run(*ran)
    with pytest.raises(BoundaryError) as caught:
        getattr(forward.unbound, name).prepare(forward.hidden, forward.batch)

    assert str(caught.value) == f"the boundary of `{name}` of layer 0 {HOW}"


def test_a_boundary_that_was_not_bound_behind_a_fold(forward: Forward) -> None:
    """The way from another form of the stream takes the parameters elsewhere."""
    forward.run("attention")
    forward.hidden = forward.stack.fold(forward.hidden, forward.batch)
    with pytest.raises(BoundaryError, match=r"^the boundary of `attention_2` of layer 0 is not b"):
        forward.unbound.attention_2.prepare(forward.hidden, forward.batch)


def test_an_update_that_was_not_bound(forward: Forward) -> None:
    """A stage whose read has no parameters is found when it is left."""
    forward.run("attention", "attention_2", "mlp")
    x = forward.layer.raw.prepare(forward.hidden, forward.batch)
    with forward.unbound.raw.exit(forward.batch) as out:
        y = out.reduce_output(x)
    with pytest.raises(BoundaryError, match=r"^the boundary of `raw` of layer 0 is not bound"):
        out.finish(y)


def test_a_layer_without_parameters_need_not_be_bound(forward: Forward) -> None:
    forward.run("attention", "attention_2", "mlp", "raw")
    forward.layer = forward.stack.layer(1)
    forward.run("bare")
    assert forward.stack.norm(forward.hidden, forward.batch, NORM).shape == (2, 64)


def test_an_update_without_parameters_need_not_be_bound(forward: Forward) -> None:
    """Whoever writes the stream may leave a stage whose norm it does not run."""
    forward.layer.attention.prepare(forward.hidden, forward.batch)
    forward.unbound.attention.finish(forward.hidden, forward.batch)


def test_unbound_boundaries_are_copied(stack: Any) -> None:
    """As layers are, with a model."""
    found = copy.deepcopy(stack.layer(0)).attention.read
    assert isinstance(found, Unbound)
    assert found.stage == "`attention` of layer 0"


def test_a_stage_that_is_not_left(forward: Forward) -> None:
    """The error names it, and not only the one that comes too early."""
    x = forward.layer.attention.prepare(forward.hidden, forward.batch)
    with pytest.raises(BoundaryError) as caught:
        forward.layer.attention_2.prepare(x, forward.batch)

    assert str(caught.value) == (
        "`attention` of layer 0 was prepared, and its output was not left before `attention_2` of "
        f"layer 0: {LEFT}"
    )
    forward.hidden = forward.layer.attention.finish(x, forward.batch)
    forward.run("attention_2")


def test_an_exit_that_is_not_finished(forward: Forward) -> None:
    """What was computed inside it goes on as it is."""
    forward.run("attention", "attention_2")
    x = forward.layer.mlp.prepare(forward.hidden, forward.batch)
    with forward.layer.mlp.exit(forward.batch) as out:
        x = out.reduce_output(x)
    with pytest.raises(BoundaryError, match=r"^`mlp` of layer 0 was prepared, .* before `raw` of"):
        forward.layer.raw.prepare(x, forward.batch)


def test_the_last_stage_is_not_left(forward: Forward) -> None:
    """What follows takes an output that is none."""
    forward.run("attention", "attention_2", "mlp", "raw")
    x = forward.stack.layer(1).bare.prepare(forward.hidden, forward.batch)
    for take in (forward.stack.complete_output, forward.stack.fold):
        with pytest.raises(BoundaryError) as caught:
            take(x, forward.batch)
        assert str(caught.value) == (
            "`bare` of layer 1 was prepared, and its output was not left before an output was "
            f"taken: {LEFT}"
        )
    with pytest.raises(BoundaryError, match=r"^`bare` of layer 1 was prepared"):
        forward.stack.norm(x, forward.batch, NORM)
