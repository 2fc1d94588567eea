"""What crosses a pipeline cut, what is refused there, and forwards that run in segments."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import BoundaryError, OwedOutput, StreamState
from boundaryc.verify.fixture import Parameter
from boundaryc.verify.run import Prover
from boundaryc.verify.world import SimulatedGroups, World
from tests.verify.subjects import HEAD, prover

HEADED = HEAD.replace("{count: 4, default: [attention, experts]}", '{pattern: "AA.AA", STAGES}')
HEADED = HEADED.replace("STAGES", 'stages: {A: [attention, experts], ".": []}')
TOPOLOGIES = "topologies: {tp2: {tp: 2}, tp4_dp2: {tp: 4, attn_dp: 2}}\n"
KEPT = "captures: {kept: {after: [0, 1], rows: producer}}\n"
ROWS = {"tp2": [3], "tp4_dp2": [3, 1]}
WIDTH = 64


@cache
def _subject(tail: str) -> Prover:
    return prover(tail if tail.startswith("boundaryc") else HEADED + TOPOLOGIES + KEPT + tail)


PARTIAL = "pipeline: {payload: partial}\n"
COMPLETE = "pipeline: {payload: complete}\n"


class Part:
    """The layers of one pipeline stage on one rank; every output is half of the input, summed."""

    def __init__(
        self, groups: SimulatedGroups, tail: str, layers: range, topology: str = "tp2", **more: Any
    ) -> None:
        package = _subject(tail).subject.package
        self.stack = package.load(topology, groups, layers=layers, **more)
        self.batch = self.facts()
        self.norm = Parameter(torch.ones(WIDTH, dtype=torch.float64))
        self.part = 0.25 * (groups.rank + 1)

    def facts(self, padding: str = "sum_len") -> Any:
        """A batch without a stream."""
        rows = ROWS["tp2" if self.stack.mesh.size == 2 else "tp4_dp2"]
        return self.stack.batch(rows_per_dp=rows, padding=padding, mode="prefill")

    def enter(self) -> Tensor:
        """The stack's input."""
        self.stack.start(self.batch)
        rows, columns = self.batch.stack_rows, torch.arange(WIDTH, dtype=torch.float64)
        return torch.arange(1.0, rows + 1, dtype=torch.float64)[:, None] + columns

    def layer(self, index: int) -> Any:
        """A layer's boundaries, bound."""
        layer = self.stack.layer(index)
        if index == 2:
            return layer
        return layer.bind(attention=self.norm, experts=self.norm)

    def run(self, hidden: Any, layers: range | None = None) -> Any:
        """All of its layers, or some."""
        for index in self.stack.layers if layers is None else layers:
            if index == 2:
                continue
            layer = self.layer(index)
            x = layer.attention.prepare(hidden, self.batch)
            hidden = layer.attention.finish(x * self.part, self.batch)
            x = layer.experts.prepare(hidden, self.batch)
            with layer.experts.exit(self.batch) as output:
                y = output.reduce_output(x * self.part)
            hidden = output.finish(y)
        return hidden

    def end(self, hidden: Any) -> Tensor:
        """The final norm."""
        normed: Tensor = self.stack.norm(hidden, self.batch, self.norm)
        return normed


def on_ranks(program: Callable[[SimulatedGroups], Any], ranks: int = 2) -> list[Any]:
    """What every rank returns of ``program``."""
    world: World[Any] = World(ranks)
    return world.run(program)


def _whole(groups: SimulatedGroups, topology: str = "tp2") -> Tensor:
    part = Part(groups, PARTIAL, range(5), topology)
    return part.end(part.run(part.enter()))


@cache
def _expected(topology: str) -> list[Tensor]:
    return on_ranks(lambda groups: _whole(groups, topology), 2 if topology == "tp2" else 4)


Before = Callable[[Part, Any], Any]
CHANGES: dict[str, Before] = {
    "nothing": lambda part, hidden: hidden,
    "completed": lambda part, hidden: part.stack.complete_output(hidden, part.batch),
    "folded": lambda part, hidden: part.stack.fold(hidden, part.batch),
    "written": lambda part, hidden: part.stack.written(
        part.stack.snapshot(hidden, part.batch), part.batch
    ),
}


@pytest.mark.parametrize("topology", ["tp2", "tp4_dp2"])
@pytest.mark.parametrize("tail", [PARTIAL, COMPLETE], ids=["partial", "complete"])
@pytest.mark.parametrize("change", CHANGES)
def test_pp1_pp7_no_sum_is_done_twice(change: str, tail: str, topology: str) -> None:
    """Two stages of two layers: whatever the sender did to its output, the receiver does the rest.

    Nothing but names and numbers crosses: the receiver sees copies.
    """

    def program(groups: SimulatedGroups) -> Tensor:
        first = Part(groups, tail, range(2), topology)
        hidden = CHANGES[change](first, first.run(first.enter()))
        tensors = first.stack.to_pp(hidden, first.batch)
        sent = {name: tensor.clone() for name, tensor in tensors.items()}
        assert change in ("nothing", "completed") or set(sent) == {"residual"}
        second = Part(groups, tail, range(2, 5), topology)
        hidden = second.stack.from_pp(sent, second.batch)
        return second.end(second.run(hidden))

    found = on_ranks(program, 2 if topology == "tp2" else 4)
    for out, right in zip(found, _expected(topology), strict=True):
        torch.testing.assert_close(out, right, rtol=0, atol=1e-12)


def test_r04_r22_a_declared_sum_travels() -> None:
    """The sender sums nothing, the receiver owes; both payloads name what they are."""

    def program(groups: SimulatedGroups) -> None:
        part = Part(groups, PARTIAL, range(1))
        hidden = part.run(part.enter())
        assert isinstance(hidden, OwedOutput)
        left = part.batch.stream.value
        sent = part.stack.to_pp(hidden, part.batch)
        assert sorted(sent) == ["hidden_states.owes_tp_on_all", "residual.on_all"]
        assert sent["hidden_states.owes_tp_on_all"] is left
        assert part.batch.stream.state is StreamState.UNSTARTED
        after = Part(groups, PARTIAL, range(1, 5))
        got = after.layer(1).attention.from_pp(sent, after.batch)
        assert isinstance(got, OwedOutput)
        assert after.batch.stream.value is left

        part = Part(groups, COMPLETE, range(1))
        hidden = part.run(part.enter())
        expected = 2 * part.stack.snapshot(hidden, part.batch)
        sent = part.stack.to_pp(hidden, part.batch)
        assert sorted(sent) == ["hidden_states", "residual"]
        after = Part(groups, COMPLETE, range(1, 5))
        got = after.layer(1).attention.from_pp(sent, after.batch)
        assert got is sent["hidden_states"]
        assert after.batch.stream.state is StreamState.PENDING
        both = after.stack.add_to_output(got, after.batch, sent["residual"])
        assert torch.equal(after.stack.fold(both, after.batch), sent["residual"] + both)
        assert torch.equal(2 * (sent["residual"] + got), expected)

    on_ranks(program)


def test_a_cut_behind_an_empty_layer() -> None:
    """Ranks without a stage pass on what they are given, in the form in which it came."""

    def program(groups: SimulatedGroups, tail: str = PARTIAL) -> Tensor:
        first = Part(groups, tail, range(2))
        sent = first.stack.to_pp(first.run(first.enter()), first.batch)
        empty = Part(groups, tail, range(2, 3))
        hidden = empty.stack.from_pp(sent, empty.batch)
        again = empty.stack.to_pp(hidden, empty.batch)
        assert {name: id(tensor) for name, tensor in again.items()} == {
            name: id(tensor) for name, tensor in sent.items()
        }
        last = Part(groups, tail, range(3, 5))
        return last.end(last.run(last.layer(3).attention.from_pp(again, last.batch)))

    for found in (on_ranks(program), on_ranks(lambda groups: program(groups, COMPLETE))):
        for out, right in zip(found, _expected("tp2"), strict=True):
            torch.testing.assert_close(out, right, rtol=0, atol=1e-12)


def test_pp3_a_payload_says_which_rows_it_has() -> None:
    """Sequence slices of different ranks are no replicas: a complete payload has none."""
    stack = (HEADED + TOPOLOGIES).replace("tp4_dp2: {tp: 4, attn_dp: 2}", "tp4: {tp: 4}")
    stack += "variants: [ordinary, sequence_parallel]\n"

    def program(groups: SimulatedGroups, tail: str) -> list[tuple[str, int, tuple[str, ...]]]:
        package = prover(stack + tail).subject.package
        sender = package.load("tp4", groups, layers=range(2))
        facts = {"rows_per_dp": [8], "padding": "sum_len", "mode": "prefill"}
        batch = sender.batch(**facts, sequence_parallel=True)
        receiver = package.load("tp4", groups, layers=range(2, 5))
        told = sender.payload(batch, incoming=False)
        assert told == receiver.payload(batch, incoming=True)
        return [(one.name, one.rows, one.axes) for one in told]

    partial = on_ranks(lambda groups: program(groups, PARTIAL), 4)[3]
    complete = on_ranks(lambda groups: program(groups, COMPLETE), 4)[3]
    assert partial == [
        ("hidden_states.owes_tp_on_all", 8, ()),
        ("residual.on_tp", 2, ("attn_tp",)),
    ]
    assert complete == [("hidden_states", 8, ()), ("residual", 8, ())]


def _sent(groups: SimulatedGroups, tail: str = PARTIAL, **more: Any) -> dict[str, Tensor]:
    first = Part(groups, tail, range(2), **more)
    tensors: dict[str, Tensor] = first.stack.to_pp(first.run(first.enter()), first.batch)
    return tensors


def refused(program: Callable[[SimulatedGroups], Any], match: str, ranks: int = 2) -> None:
    """Runs a program that every rank must be refused."""

    def refused(groups: SimulatedGroups) -> None:
        with pytest.raises(BoundaryError, match=match):
            program(groups)

    on_ranks(refused, ranks)


def test_what_is_no_payload_isrefused() -> None:
    """Names of another state, missing tensors, other rows, widths and dtypes."""
    value, residual = "hidden_states.owes_tp_on_all", "residual.on_all"

    def given(
        change: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    ) -> Callable[[SimulatedGroups], Any]:
        def program(groups: SimulatedGroups) -> Any:
            second = Part(groups, PARTIAL, range(2, 5))
            return second.stack.from_pp(change(_sent(groups)), second.batch)

        return program

    takes = "takes hidden_states.owes_tp_on_all and residual.on_all or hidden_states and residual"
    refused(given(lambda sent: {value: sent[value]}), takes + " or residual; it was given hidden")
    refused(given(lambda sent: {}), "it was given nothing")
    refused(given(lambda sent: {**sent, "more": sent[value]}), takes)
    refused(given(lambda sent: {**sent, residual: sent[residual][:2]}), "must have 3 rows on this")
    refused(given(lambda sent: {**sent, residual: sent[residual][:, :8]}), r"is \[3, 8\] torch")
    refused(given(lambda sent: {**sent, residual: sent[residual].float()}), "float32 where")


def test_ranks_with_another_policy_are_told() -> None:
    """Both sides of a cut take one decision, which the name of the output says."""
    stack = HEAD.replace("sparse: true", "sparse: true, reduction: local_tail")
    stack += "topologies: {tp4_dp4: {tp: 4, attn_dp: 4}}\n"
    package = prover(stack + PARTIAL).subject.package

    def program(groups: SimulatedGroups) -> Any:
        one = package.load("tp4_dp4", groups, policy="ar", layers=range(2))
        other = package.load("tp4_dp4", groups, policy="rsv", layers=range(2, 4))
        batch = one.batch(rows_per_dp=[2, 1, 0, 3], padding="unpadded", mode="prefill")
        own = one.payload(batch, incoming=False)
        assert [part.name for part in own] == ["hidden_states.complete_on_all", "residual.on_tp"]
        return other.from_pp({part.name: torch.zeros(part.rows, WIDTH) for part in own}, batch)

    refused(program, "both sides load the same stack, topology and policy", 4)


def test_where_there_is_no_cut() -> None:
    """Before the first stage, behind the last one, in the middle of layers, without a pipeline."""

    def last(groups: SimulatedGroups) -> Any:
        part = Part(groups, PARTIAL, range(5))
        return part.stack.to_pp(part.run(part.enter()), part.batch)

    def early(groups: SimulatedGroups) -> Any:
        part = Part(groups, PARTIAL, range(2))
        return part.stack.to_pp(part.run(part.enter(), range(1)), part.batch)

    def first(groups: SimulatedGroups) -> Any:
        part = Part(groups, PARTIAL, range(2))
        return part.stack.from_pp({}, part.batch)

    def inside(groups: SimulatedGroups) -> Any:
        part = Part(groups, PARTIAL, range(1, 5))
        return part.layer(1).experts.from_pp(_sent(groups), part.batch)

    def undeclared(groups: SimulatedGroups) -> Any:
        part = Part(groups, "", range(2))
        return part.stack.to_pp(part.run(part.enter()), part.batch)

    def foreign(groups: SimulatedGroups) -> Any:
        part = Part(groups, PARTIAL, range(2))
        part.run(part.enter())
        return part.stack.to_pp(torch.ones(3, WIDTH), part.batch)

    refused(last, "the last layers: leave the stack through its final norm")
    refused(early, "to_pp follows the last stage of this rank's layers")
    refused(first, "start the stack instead")
    refused(inside, "from_pp is for the first stage of a rank's layers")
    refused(undeclared, "declare `pipeline` in its file")
    refused(foreign, "does not belong to this residual stream")


def test_the_stages_behind_a_cut_run_in_their_order() -> None:
    """A receiver goes on where the sender stopped."""

    def program(groups: SimulatedGroups) -> Any:
        part = Part(groups, PARTIAL, range(2, 5))
        hidden = part.stack.from_pp(_sent(groups), part.batch)
        return part.run(hidden, range(4, 5))

    refused(program, "`attention` of layer 4 does not come first")


SEGMENTS = PARTIAL + "segments: true\n"


def test_a_forward_in_segments_between_other_forwards() -> None:
    """Split before every layer, inside pipeline stages too, with whole forwards in between."""

    def program(groups: SimulatedGroups) -> Tensor:
        def other() -> None:
            part = Part(groups, SEGMENTS, range(5))
            part.end(part.run(part.enter()))

        def in_segments(part: Part, hidden: Any) -> Any:
            for index in part.stack.layers:
                hidden = part.run(hidden, range(index, index + 1))
                before, part.batch = part.batch, part.batch.segment()
                assert before.stream.state is StreamState.UNSTARTED
                other()
            return hidden

        first, second = Part(groups, SEGMENTS, range(2)), Part(groups, SEGMENTS, range(2, 5))
        hidden = in_segments(first, first.enter())
        assert len(first.batch.captured("kept")) == 1
        sent = first.stack.to_pp(hidden, first.batch)
        return second.end(in_segments(second, second.stack.from_pp(sent, second.batch)))

    for out, right in zip(on_ranks(program), _expected("tp2"), strict=True):
        assert torch.equal(out, right)


def test_segments_that_are_none() -> None:
    """A later segment starts no stream; a segment ends between stages; a file declares them."""

    def starts(groups: SimulatedGroups) -> Any:
        part = Part(groups, SEGMENTS, range(5))
        part.run(part.enter(), range(1))
        part.stack.start(part.batch.segment())

    def stale(groups: SimulatedGroups) -> Any:
        part = Part(groups, SEGMENTS, range(5))
        hidden = part.run(part.enter(), range(1))
        part.batch.segment()
        part.run(hidden, range(1, 2))

    def inside(groups: SimulatedGroups) -> Any:
        part = Part(groups, SEGMENTS, range(5))
        part.layer(0).attention.prepare(part.enter(), part.batch)
        part.batch.segment()

    def exits(groups: SimulatedGroups) -> Any:
        part = Part(groups, SEGMENTS, range(5))
        part.enter()
        with part.layer(0).experts.exit(part.batch):
            part.batch.segment()

    def skipping(groups: SimulatedGroups) -> Any:
        part = Part(groups, SEGMENTS, range(5))
        hidden = part.run(part.enter(), range(1))
        part.batch = part.batch.segment()
        part.end(hidden)

    def unstarted(groups: SimulatedGroups) -> Any:
        Part(groups, SEGMENTS, range(5)).batch.segment()

    def undeclared(groups: SimulatedGroups) -> Any:
        part = Part(groups, PARTIAL, range(5))
        part.enter()
        part.batch.segment()

    refused(starts, "only the segment with the first layer starts one")
    refused(stale, "start the layer stack before entering a stage")
    refused(inside, "a segment ends between two stages; finish this stage first")
    refused(exits, "a segment ends between two stages; close the exit first")
    refused(skipping, "the final norm follows the last stage of the stack")
    refused(unstarted, "start the layer stack before entering a stage")
    refused(undeclared, "declare `segments: true` in its file")
