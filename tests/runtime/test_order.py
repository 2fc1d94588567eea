"""The stages of a stack run once and in their order; whatever else a model runs is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from boundaryc.runtime import BoundaryError
from boundaryc.verify.fixture import Parameter
from boundaryc.verify.world import SimulatedGroups, World
from tests.verify.subjects import HEAD, prover

TEXT = HEAD.replace("{count: 4, default: [attention, experts]}", '{pattern: "AA.AA", STAGES}')
TEXT = TEXT.replace("STAGES", 'stages: {A: [attention, experts], ".": []}')
TEXT += "topologies: {tp2: {tp: 2}}\n"

Run = Callable[["Forward"], Any]


class Forward:
    """A forward on one rank, whose model runs stages as it is told."""

    def __init__(self, groups: SimulatedGroups, package: Any, final: Any, **loaded: Any) -> None:
        self.stack = package.load("tp2", groups, **loaded)
        self.norm = Parameter(final)
        self.batch = self.begin()
        self.hidden: Any = torch.ones(3, final.shape[0], dtype=torch.float64)

    def begin(self) -> Any:
        """A batch with a stream of its own."""
        batch = self.stack.batch(rows_per_dp=[3], padding="sum_len", mode="prefill")
        self.stack.start(batch)
        return batch

    def layer(self, index: int) -> Any:
        """A layer's boundaries, bound."""
        return self.stack.layer(index).bind(attention=self.norm, experts=self.norm)

    def attention(self, index: int, leave_by: int | None = None) -> None:
        """The first stage of a layer, perhaps left through another layer's boundary."""
        x = self.layer(index).attention.prepare(self.hidden, self.batch)
        leaving = self.layer(index if leave_by is None else leave_by)
        self.hidden = leaving.attention.finish(x * 0.5, self.batch)

    def experts(self, index: int, leave_by: int | None = None) -> None:
        """The second."""
        x = self.layer(index).experts.prepare(self.hidden, self.batch)
        leaving = self.layer(index if leave_by is None else leave_by)
        with leaving.experts.exit(self.batch) as output:
            y = output.reduce_output(x * 0.5)
        self.hidden = output.finish(y)

    def layers(self, *indices: int) -> Any:
        """Whole layers."""
        for index in indices:
            self.attention(index)
            self.experts(index)

    def end(self) -> Any:
        """The final norm."""
        return self.stack.norm(self.hidden, self.batch, self.norm)


def run(what: Run, **loaded: Any) -> list[Any]:
    """What a model's forward gives on each rank."""
    subject = prover(TEXT).subject
    final = subject.fixture.final
    world: World[Any] = World(2)
    return world.run(lambda groups: what(Forward(groups, subject.package, final, **loaded)))


WRONG: dict[str, tuple[Run, str]] = {
    "an equal layer is skipped": (
        lambda f: f.layers(0, 3),
        "`attention` of layer 3 does not come after `experts` of layer 0",
    ),
    "an equal layer is run twice": (
        lambda f: f.layers(0, 1, 1),
        "`attention` of layer 1 does not come after `experts` of layer 1",
    ),
    "two layers change places": (
        lambda f: f.layers(0, 3, 1, 4),
        "`attention` of layer 3 does not come after `experts` of layer 0",
    ),
    "the first layer is skipped": (
        lambda f: f.layers(1),
        "`attention` of layer 1 does not come first",
    ),
    "a stage is skipped": (
        lambda f: (f.attention(0), f.attention(1)),
        "`attention` of layer 1 does not come after `attention` of layer 0",
    ),
    "an ffn is another layer's": (
        lambda f: (f.attention(0), f.experts(1)),
        "`experts` of layer 1 does not come after `attention` of layer 0",
    ),
    "a stage is left through another layer's boundary": (
        lambda f: f.attention(0, leave_by=1),
        "`attention` of layer 0 was prepared, and its output was not left before `attention` of l",
    ),
    "an exit is another layer's": (
        lambda f: (f.attention(0), f.experts(0, leave_by=1)),
        "`experts` of layer 0 was prepared, and its output was not left before `experts` of l",
    ),
    "a folded output is taken before the end": (
        lambda f: (f.layers(0), _fold(f), f.stack.take_output(f.hidden, f.batch)),
        "the final output follows the last stage of this rank's layers; run all of them",
    ),
    "a folded output skips a layer": (
        lambda f: (f.layers(0), _fold(f), f.layers(3)),
        "`attention` of layer 3 does not come after `experts` of layer 0",
    ),
    "the stack is left early": (
        lambda f: (f.layers(0, 1, 3), f.end()),
        "the final norm follows the last stage of the stack",
    ),
    "a folded output is left early": (
        lambda f: (f.layers(0), _fold(f), f.end()),
        "the final norm follows the last stage of the stack",
    ),
}


def _fold(forward: Forward) -> None:
    forward.hidden = forward.stack.fold(forward.hidden, forward.batch)


def _write(forward: Forward) -> None:
    _fold(forward)
    forward.hidden = forward.stack.written(forward.hidden * 2, forward.batch)


@pytest.mark.parametrize("what", WRONG)
def test_stages_out_of_order_are_refused(what: str) -> None:
    """With the names of both stages, before anything of the wrong one ran."""
    forward, message = WRONG[what]

    with pytest.raises(BoundaryError, match=message):
        run(forward)


RIGHT: dict[str, Run] = {
    "all layers, one of them without stages": lambda f: (f.layers(0, 1, 3, 4), f.end()),
    "in segments": lambda f: (f.layers(0, 1), f.layers(3), f.layers(4), f.end()),
    "layers that the model runs itself": lambda f: (f.layers(0), _write(f), f.layers(4), f.end()),
    "an early end of what the model wrote": lambda f: (f.layers(0), _write(f), f.end()),
    "again after a refusal": lambda f: (_refused(f), f.layers(0, 1, 3, 4), f.end()),
    "two microbatches in turn": lambda f: _interleaved(f),
}


def _refused(forward: Forward) -> None:
    hidden = forward.hidden
    with pytest.raises(BoundaryError):
        forward.layers(0, 3)
    forward.hidden = hidden
    forward.stack.start(forward.batch)


def _interleaved(forward: Forward) -> None:
    hidden, first = forward.hidden, forward.batch
    second, other = forward.begin(), hidden
    for index in (0, 1, 3, 4):
        forward.batch, forward.hidden = first, hidden
        forward.layers(index)
        hidden = forward.hidden
        forward.batch, forward.hidden = second, other
        forward.layers(index)
        other = forward.hidden
    forward.end()


@pytest.mark.parametrize("what", RIGHT)
def test_what_is_in_order_runs(what: str) -> None:
    assert len(run(RIGHT[what])) == 2


def test_swapped_microbatches_are_refused() -> None:
    """Each output belongs to the stream that it was left in."""

    def swapped(forward: Forward) -> None:
        first, second = forward.batch, forward.begin()
        hidden = forward.hidden
        forward.layers(0)
        forward.batch, mine, forward.hidden = second, forward.hidden, hidden
        forward.layers(0)
        forward.batch, forward.hidden = second, mine
        with pytest.raises(BoundaryError, match="does not belong to this residual stream"):
            forward.layers(1)
        assert first is not second

    run(swapped)


def test_a_rank_with_later_layers_starts_with_its_own() -> None:
    """What it enters with is a residual that came from elsewhere."""

    def later(forward: Forward) -> Any:
        forward.hidden = forward.stack.written(forward.hidden, forward.batch)
        forward.layers(3, 4)
        return forward.end()

    assert len(run(later, layers=range(3, 5))) == 2


def test_an_order_that_a_trace_did_not_follow_is_not_held_against_it() -> None:
    """Layers alike share one trace, so a compiled layer does not count stages; eager ones go on."""

    def compiled(forward: Forward) -> Any:
        traced = torch.compile(lambda: forward.layers(0, 1), backend="eager")
        traced()
        forward.layers(3, 4)
        return forward.end()

    subject = prover(TEXT.replace("tp2: {tp: 2}", "tp2: {tp: 1}")).subject
    world: World[Any] = World(1)
    final = subject.fixture.final
    (out,) = world.run(lambda groups: compiled(Forward(groups, subject.package, final)))
    assert out.shape == (3, final.shape[0])
