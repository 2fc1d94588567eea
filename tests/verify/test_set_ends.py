"""Residual sets beside extras, fused sums, and an end without a norm."""

from __future__ import annotations

import pytest

from boundaryc.emit.diagnose import planned_family
from boundaryc.language import BoundarycError, loads
from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, covering, matrix
from tests.verify.streams import HEAD, text
from tests.verify.subjects import compiled, prover

SMALL = """\
topologies: {tp2: {tp: 2}, tp4_dp2: {tp: 4, attn_dp: 2}}
variants: [ordinary, sequence_parallel]
"""
ENDS = "terminal: {norm: false}\n"
FUSION = "fusion: {providers: [kernels]}\n"
PLAIN = """\
residual: {kind: custom, streams: 1, enter: tripled, leave: LEAVE}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn}
  gated: {kind: ffn, update: with_mean, read: meant}
layers: {pattern: "MG", stages: {M: [attention, mlp], G: [attention, gated, mlp]}}
operations:
  tripled: {role: enter, call: "tests.verify.stream_operations:tripled"}
  meant: {role: read, call: "tests.verify.stream_operations:kept_and_rewritten",
          facts: [rewrites_residual], state: {mean: 1}}
  with_mean: {role: update, call: "tests.verify.stream_operations:with_mean", state: {mean: 1}}
"""
LAST = """\
  last: {role: read, call: "tests.verify.stream_operations:doubled"}
"""


def added(*layers: int) -> str:
    """An extra after these layers."""
    return f"extras: {{deepstack: {{after: {[*layers]}}}}}\n"


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("hyper", added(0, 2)),
        ("hyper", ENDS + added(0)),
        ("writing", ENDS + added(0, 1, 2)),
    ],
    ids=["streams", "streams at the end", "one stream at the end"],
)
def test_extras_and_ends_of_a_set(name: str, more: str) -> None:
    """What is added is in the contribution before the update; what leaves are all streams."""
    runs = prover(text(name, f"{more}pipeline: {{payload: partial}}\n", SMALL))
    cells = covering(list(matrix(runs.subject.plan, Selection())))[::12]
    found = [runs.run(cell, deeds=at if at % 2 else None) for at, cell in enumerate(cells)]
    assert {bool(cell.cuts) for cell in cells} == {True, False}
    assert [f"{one.cell}: {one.failure}" for one in found if one.failure] == []


def test_an_update_of_streams_is_offered_to_nobody() -> None:
    """Hyper-connections are no plain add: beside a provider no boundary is fused."""
    topologies = "topologies: {tp2: {tp: 2}}\nvariants: [ordinary]\n"
    _, files = compiled(text("hyper", FUSION, topologies))
    assert "fused = groups." not in "".join(files.values())
    assert "FusedBoundary(" not in "".join(files.values())


@pytest.mark.parametrize("leave", ["norm", "last"])
def test_a_plain_add_of_a_set_is_fused(leave: str) -> None:
    """In front of a norm it is, in front of a read or a final read of the set's own it is not."""
    rest = PLAIN.replace("LEAVE", leave) + (LAST if leave == "last" else "")
    runs = prover(HEAD + rest + "topologies: {tp2: {tp: 2}}\n" + FUSION)
    _, files = compiled(HEAD + rest + "topologies: {tp2: {tp: 2}}\n" + FUSION)
    offered = "".join(files.values())
    assert "fused = groups.attention_to_mlp_over_" in offered
    assert "attention_to_gated_over_" not in offered
    assert "gated_to_mlp_over_" not in offered
    for rows in (1, 3, 5):
        outcome = runs.run(Cell("tp2", "ordinary", "ar", "sum_len", (rows,)))
        assert outcome.failure is None, outcome.failure


def test_a_draft_reads_what_its_stack_does_not() -> None:
    """A set needs a final read where a draft has one, though the stack itself has none."""
    draft = "drafts: {next: {layers: {count: 1, default: [mlp]}}}\n"
    whole = text("own", ENDS, "topologies: {tp2: {tp: 2}}\n")
    with pytest.raises(BoundarycError, match="remove `leave`"):
        loads(whole)
    stack = loads(whole + draft)
    assert stack.drafts[0].terminal.norm
    assert "second" in {operation.name for operation in stack.drafts[0].operations}
    assert "second" not in {operation.name for operation in stack.operations}
    assert len(planned_family(stack, {})) == 2
    with pytest.raises(BoundarycError, match="name an operation with `streams: 2`"):
        loads(whole.replace(", leave: second", "") + draft)
