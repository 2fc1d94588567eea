"""Finding the layer at which a run leaves its reference."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from boundaryc.cli.run import run
from boundaryc.runtime import SingleGroups
from boundaryc.verify.against import Recorder, compare_states
from boundaryc.verify.fixture import Parameter, Place, embeddings
from boundaryc.verify.oracle import interpret
from boundaryc.verify.run import Prover
from tests.verify.subjects import HEAD, prover

TEXT = HEAD + "topologies: {tp1: {tp: 1}}\nvariants: [ordinary]\n"
ROWS = 5


def _recorded(subject: Prover, tokens: Tensor, wrong_layer: int | None = None) -> Recorder:
    """One rank's run of the sample stack, watched; an FFN is scaled in ``wrong_layer``."""
    stack = subject.subject.package.load("tp1", SingleGroups())
    batch = stack.batch(rows_per_dp=[ROWS], padding="sum_len", mode="prefill")
    recorder, fixture = Recorder(), subject.subject.fixture
    stack.start(batch)
    hidden = tokens.clone()
    for index in range(4):
        names = ("attention", "experts")
        norms = {n: Parameter(fixture.weights[Place(index, n)].params["norm"]) for n in names}
        layer = stack.layer(index).bind(**norms)
        attention = recorder.watch(layer.attention)
        x = attention.prepare(hidden, batch)
        y = fixture.contribution(Place(index, "attention"), x, mixes=True)
        hidden = attention.finish(y, batch)
        x = layer.experts.prepare(hidden, batch)
        with layer.experts.exit(batch) as output:
            y = fixture.contribution(Place(index, "experts"), x, mixes=False)
            hidden = output.reduce_output(y * (1.1 if index == wrong_layer else 1))
        hidden = output.finish(hidden)
    return recorder


@pytest.fixture(scope="module")
def subject() -> Prover:
    """A stack of four layers on one rank."""
    return prover(TEXT)


@pytest.fixture(scope="module")
def tokens(subject: Prover) -> Tensor:
    """The stack's input."""
    return embeddings(ROWS, subject.subject.fixture.width, 3)


@pytest.fixture(scope="module")
def reference(subject: Prover, tokens: Tensor) -> list[Tensor]:
    """The stream that enters each layer, from the oracle."""
    stack = subject.subject.plan.stack
    found = interpret(stack, subject.subject.fixture, tokens, [ROWS])
    return [found.residuals[Place(index, "attention")] for index in range(4)]


def test_a_right_run_agrees(subject: Prover, tokens: Tensor, reference: list[Tensor]) -> None:
    growth = compare_states(reference, _recorded(subject, tokens).states, 1e-12)

    assert growth.first is None
    assert len(growth.errors) == 4


def test_the_first_wrong_layer_is_named(
    subject: Prover, tokens: Tensor, reference: list[Tensor]
) -> None:
    observed = _recorded(subject, tokens, wrong_layer=1).states
    growth = compare_states(reference, observed, 1e-6)

    assert growth.first == 2
    assert growth.errors[1] < 1e-12 < 1e-3 < growth.errors[2]
    assert "boundaries of attention, experts" in growth.lines(subject.subject.plan.stack)[-1]


def test_shapes_must_match(reference: list[Tensor]) -> None:
    with pytest.raises(ValueError, match="4 reference states, 3 observed"):
        compare_states(reference, reference[:3], 1e-6)
    with pytest.raises(ValueError, match="layer 0"):
        compare_states(reference, [one[:1] for one in reference], 1e-6)


def test_command_line(
    subject: Prover,
    tokens: Tensor,
    reference: list[Tensor],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "stack.yaml"
    source.write_text(TEXT)
    torch.save(reference, tmp_path / "reference.pt")
    _recorded(subject, tokens, wrong_layer=2).save(tmp_path / "run.pt")
    words = ["verify", str(source), "--against", str(tmp_path / "reference.pt")]

    assert run([*words, "--observed", str(tmp_path / "run.pt")]) == 1
    assert "after layer 2" in capsys.readouterr().out
    assert run([*words, "--observed", str(tmp_path / "reference.pt")]) == 0
    assert run(words) == 2
