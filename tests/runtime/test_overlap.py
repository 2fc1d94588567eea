"""Batches that are split: facts, rows, streams of their own, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import BoundaryError, ContextParallel, SingleGroups
from boundaryc.runtime.builder import BatchBuilder
from tests.plan.simulated import Unit, groups_of_rank_0
from tests.verify.subjects import prover

TEXT = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn}
layers: {count: 2, default: [attention, mlp]}
topologies: {tp1: {tp: 1}, tp4_dp4: {tp: 4, attn_dp: 4}, tp2: {tp: 2}, tp2_cp2: {tp: 2, attn_cp: 2}}
variants: [ordinary, sequence_parallel, context_parallel, input_scattered]
"""
FACTS: dict[str, Any] = {"padding": "sum_len", "mode": "prefill"}


@pytest.fixture(scope="module")
def package() -> Any:
    return prover(TEXT + "overlap: {two_batch: true}\n").subject.package


def loaded(package: Any, topology: str, size: int) -> Any:
    return package.load(topology, groups_of_rank_0(size) if size > 1 else SingleGroups())


@pytest.mark.parametrize(
    "facts",
    [
        {"padding": "sum_len", "mode": "prefill"},
        {"padding": "max_len", "mode": "decode"},
        {"padding": "unpadded", "mode": "prefill"},
    ],
)
def test_tb3_children_have_every_fact(package: Any, facts: dict[str, Any]) -> None:
    """sgl-project/sglang#13082: with attention DP and without it; no fact is lost or made up."""
    for topology, size, rows in (("tp4_dp4", 4, (6, 2, 0, 5)), ("tp2", 2, (7,))):
        stack = loaded(package, topology, size)
        for more in ({}, {"sequence_parallel": True}, {"input_scattered": True}):
            if more and topology == "tp4_dp4":
                continue
            batch = stack.batch(rows_per_dp=rows, **facts, **more)
            children = batch.split()
            for child in children:
                stated = {**batch.facts.stated(), "rows_per_dp": child.facts.rows_per_dp}
                assert child.facts.stated() == stated
                again = stack.batch(rows_per_dp=child.facts.rows_per_dp, **facts, **more)
                for name in ("variant", "plan", "local_rows", "group_rows", "global_rows"):
                    assert getattr(child, name) == getattr(again, name)
            first, second = (child.facts.rows_per_dp for child in children)
            assert first == tuple((count + 1) // 2 for count in rows)
            assert tuple(map(sum, zip(first, second, strict=True))) == rows


def test_tb3_a_missing_fact_is_a_type_error(package: Any) -> None:
    """Children come from the constructor of all batches, which has no defaults."""
    stack = loaded(package, "tp2", 2)
    facts = stack.batch(rows_per_dp=[3], **FACTS).facts.stated()
    build = BatchBuilder.build
    assert build(stack._batches, **facts).facts.stated() == facts
    for fact in facts:
        with pytest.raises(TypeError, match=fact):
            build(stack._batches, **{name: facts[name] for name in facts if name != fact})


def test_wrong_splits_are_refused(package: Any) -> None:
    """Rows that a group does not have, a context-parallel batch, a stack without overlap."""
    batch = loaded(package, "tp4_dp4", 4).batch(rows_per_dp=[6, 2, 0, 5], **FACTS)
    for first in ([6, 2, 1, 5], [6, 2, 0], [-1, 0, 0, 0]):
        with pytest.raises(ValueError, match=r"rows|negative"):
            batch.split(first)
    assert batch.split([6, 2, 0, 5])[1].facts.rows_per_dp == (0, 0, 0, 0)
    sharded = ContextParallel(split="zigzag", requests=((8,),))
    stack = loaded(package, "tp2_cp2", 2)
    with pytest.raises(BoundaryError, match="context-parallel"):
        stack.batch(rows_per_dp=[8], cp=sharded, **FACTS).split()
    decode = stack.batch(rows_per_dp=[8], cp=sharded, padding="sum_len", mode="decode")
    assert [child.facts.cp for child in decode.split()] == [None, None]
    plain = loaded(prover(TEXT).subject.package, "tp1", 1)
    with pytest.raises(BoundaryError, match=r"overlap: \{two_batch: true\}"):
        plain.batch(rows_per_dp=[8], **FACTS).split()
    with pytest.raises(BoundaryError, match=r"overlap: \{two_batch: true\}"):
        plain.layer(0).mlp.postprocess(torch.zeros(8, 64), plain.batch(rows_per_dp=[8], **FACTS))


def forward(stack: Any, batch: Any, hidden: Any, layers: range) -> Any:
    """Layers whose attention adds 1 and whose FFN, without an exit, adds 2."""
    for index in layers:
        layer = stack.layer(index).bind(attention=Unit(64), mlp=Unit(64))
        x = layer.attention.prepare(hidden, batch)
        hidden = layer.attention.finish(torch.ones_like(x), batch)
        x = layer.mlp.prepare(hidden, batch)
        hidden = layer.mlp.postprocess(torch.full_like(x, 2.0), batch)
    return hidden


def started(stack: Any, rows: int = 5) -> tuple[Any, Tensor]:
    batch = stack.batch(rows_per_dp=[rows], **FACTS)
    stack.start(batch)
    return batch, torch.arange(rows * 64, dtype=torch.float64).view(rows, 64)


def test_a_stream_of_their_own(package: Any) -> None:
    """Each child takes its own outputs only, and the whole takes nothing until they are merged."""
    stack = loaded(package, "tp1", 1)
    batch, hidden = started(stack)
    hidden = forward(stack, batch, hidden, range(1))
    children = batch.split([2])
    one, other = stack.split(hidden, batch, children)
    with pytest.raises(BoundaryError, match="start the layer stack"):
        forward(stack, batch, hidden, range(1, 2))
    with pytest.raises(BoundaryError, match="does not belong"):
        forward(stack, children[0], other, range(1, 2))
    assert children[0].stream is not children[1].stream
    one = forward(stack, children[0], one, range(1, 2))
    with pytest.raises(BoundaryError, match="not at the same stage"):
        stack.merge((one, other), children, batch)
    other = forward(stack, children[1], other, range(1, 2))
    whole = stack.merge((one, other), children, batch)
    expected = torch.arange(5 * 64, dtype=torch.float64).view(5, 64) + 6
    assert torch.equal(whole, expected)
    with pytest.raises(BoundaryError, match="start the layer stack"):
        stack.fold(one, children[0])
    assert torch.equal(stack.take_output(whole, batch), expected)


def test_the_wrong_batches_are_refused(package: Any) -> None:
    """Children of another batch, one child, and an input on other rows."""
    stack = loaded(package, "tp1", 1)
    batch, hidden = started(stack)
    others = stack.batch(rows_per_dp=[6], **FACTS).split()
    for children in (others, batch.split()[:1]):
        with pytest.raises(ValueError, match="two batches of together"):
            stack.split(hidden, batch, children)
    with pytest.raises(ValueError, match="4 rows where the stack has 5"):
        stack.split(hidden[:4], batch, batch.split())
    unstarted = stack.batch(rows_per_dp=[5], **FACTS)
    with pytest.raises(BoundaryError, match="start the layer stack"):
        stack.split(hidden, unstarted, unstarted.split())


def test_stages_stay_in_their_order_across_a_split(package: Any) -> None:
    """A child goes on where the whole was, and the whole where the children were."""
    stack = loaded(package, "tp1", 1)
    batch, hidden = started(stack)
    children = batch.split()
    one, other = stack.split(hidden, batch, children)
    with pytest.raises(BoundaryError, match=r"`attention` of layer 1 does not come first"):
        forward(stack, children[0], one, range(1, 2))
    one = forward(stack, children[0], one, range(1))
    other = forward(stack, children[1], other, range(1))
    whole = stack.merge((one, other), children, batch)
    with pytest.raises(BoundaryError, match=r"`attention` of layer 0 does not come after"):
        forward(stack, batch, whole, range(1))
    whole = forward(stack, batch, whole, range(1, 2))
    assert (stack.fold(whole, batch) - hidden == 6).all()


def test_postprocess_and_an_open_exit(package: Any) -> None:
    """An exit that is open decides on the sum; after it the stage has left its output."""
    stack = loaded(package, "tp1", 1)
    batch, hidden = started(stack)
    layer = stack.layer(0).bind(attention=Unit(64), mlp=Unit(64))
    hidden = layer.attention.finish(layer.attention.prepare(hidden, batch) * 0, batch)
    x = layer.mlp.prepare(hidden, batch)
    with layer.mlp.exit(batch), pytest.raises(BoundaryError, match="an exit is open"):
        layer.mlp.postprocess(x, batch)
    hidden = layer.mlp.postprocess(x, batch)
    with pytest.raises(BoundaryError):
        layer.mlp.postprocess(x, batch)
    assert stack.complete_output(hidden, batch) is hidden


def test_a_stage_without_an_exit_traces() -> None:
    """One graph of two layers, with the rows that are published and a latent input in it."""
    text = TEXT.replace("{kind: attention}", "{kind: attention, latent_input: true}")
    text = text.split("topologies:")[0] + "topologies: {tp1: {tp: 1}}\n"
    stack = loaded(
        prover(text + "overlap: {two_batch: true}\nlora: true\n").subject.package, "tp1", 1
    )
    batch, hidden = started(stack)

    def bound(index: int) -> Any:
        norms = {"attention": Unit(64), "mlp": Unit(64)}
        return stack.layer(index).bind(**norms, attention_qkv_latent=lambda x, batch: x[:, :3])

    layers, final = [bound(index) for index in stack.layers], Unit(64)

    def run(hidden: Tensor) -> Tensor:
        for layer in layers:
            x, latent = layer.attention.prepare(hidden, batch)
            y = x + latent.sum(1, keepdim=True) + batch.lora_rows.unsqueeze(1)
            hidden = layer.attention.finish(y, batch)
            x = layer.mlp.prepare(hidden, batch)
            hidden = layer.mlp.postprocess(2 * x, batch)
        output: Tensor = stack.norm(hidden, batch, final)
        return output

    expected = run(hidden)
    stack.start(batch)
    assert torch.equal(torch.compile(run, fullgraph=True, backend="eager")(hidden), expected)
