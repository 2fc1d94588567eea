"""Whole forwards in exact numbers: sums that double, norms that double, stages that multiply."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import (
    AttentionBoundary,
    AuxHiddenStateList,
    ExitDecision,
    FfnBoundary,
    MappedGroups,
    MixerBoundary,
)
from tests.runtime import doubling
from tests.runtime.doubling import COMPLETE, FFN, MIXER, Case, filled
from tests.runtime.model import LAYERS, WIDTH, Norm
from tests.runtime.ranks import Model
from tests.runtime.sample import tp4_dp2
from tests.runtime.test_sample import Group


def test_n01_two_dense_layers_at_tp1() -> None:
    """Attention 3x, FFN 5x, norm 2x: value 5390x and residual 539x of the embedding, exactly."""
    case = Case(policy="complete")
    decision = ExitDecision(
        fuse_mlp_allreduce=False,
        mlp_reduce_scatter=False,
        reduce=doubling.same,
        leave=doubling.pend,
    )
    entry = AttentionBoundary((doubling.planned(doubling.start),), (doubling.pend,)).bind(case.norm)
    attention = AttentionBoundary(
        (doubling.planned(doubling.after_complete),), (doubling.pend,)
    ).bind(case.norm)
    ffn = FfnBoundary((doubling.planned(doubling.after_complete),), (decision,)).bind(case.norm)
    embedding = torch.arange(8.0).view(2, 4)
    hidden: Any = embedding
    for boundary in (entry, attention):
        hidden = boundary.prepare(hidden, case.batch)
        hidden = boundary.finish(hidden * 3, case.batch)
        hidden = ffn.prepare(hidden, case.batch)
        with ffn.exit(case.batch) as out:
            hidden = out.reduce_output(hidden * 5)
        hidden = out.finish(hidden)

    assert hidden.equal(embedding * 5390)
    assert case.stream.residual.equal(embedding * 539)
    assert "sum" not in case.log


@pytest.mark.parametrize("captures", [False, True])
@pytest.mark.parametrize("defers", [False, True])
def test_r38_layers_that_each_add_one(defers: bool, captures: bool) -> None:
    """Output = input + 4, captures = input + 1, 2, 3; the boundaries sum 3 times when deferring."""
    case = Case(policy="complete")
    aux = AuxHiddenStateList()
    last = doubling.SUMMED
    inner = doubling.OWED if defers else last
    hidden: Any = filled(7)
    in_compute = 0
    for layer in range(4):
        read = (
            doubling.start
            if layer == 0
            else (doubling.after_sum if defers else doubling.after_complete)
        )
        boundary = MixerBoundary(
            (doubling.planned(read),), (last if layer == 3 else inner,), resume=doubling.RESUME
        ).bind(case.norm)
        capture = aux.capture if captures and layer else None
        boundary.prepare(hidden, case.batch, capture_output=capture)
        with boundary.exit(case.batch) as out:
            before = len(case.log)
            hidden = out.reduce_output(filled(0.5))
            in_compute += len(case.log) - before
        hidden = out.finish(hidden)
    output = case.stack.norm(hidden, case.batch, case.norm)

    assert output.eq(2 * (7 + 4)).all()
    assert case.log.count("sum") - in_compute == (3 if defers else 0)
    assert [int(value[0, 0]) for value in aux] == ([8, 9, 10] if captures else [])


def test_tm1_the_last_sum_is_done_by_the_final_norm() -> None:
    """Three layers of attention and FFN that all defer: 6 sums, 2 per layer."""
    case = Case()
    entry = doubling.ENTRY.bind(case.norm)
    attention, ffn = doubling.ATTENTION.bind(case.norm), FFN.bind(case.norm)
    hidden: Any = filled(1)
    for layer in range(3):
        boundary = attention if layer else entry
        boundary.prepare(hidden, case.batch)
        hidden = boundary.finish(filled(1), case.batch)
        ffn.prepare(hidden, case.batch)
        with ffn.exit(case.batch) as out:
            partial = out.reduce_output(filled(2))
        hidden = out.finish(partial)
    output = case.stack.norm(hidden, case.batch, case.norm)

    assert case.log.count("sum") == 6
    assert output.eq(2 * (1 + 3 * (2 + 4))).all()


@pytest.mark.parametrize("order", ["MAFE", "AMEF", "FEMA", "EFAM"])
def test_mx1_single_stages_in_any_order_sum_once_each(order: str) -> None:
    """4 sums for 4 stages: none at the first input, the last one in the final norm."""
    case = Case()
    hidden: Any = filled(1)
    for place, letter in enumerate(order):
        kind: Any = MixerBoundary if letter in "MA" else FfnBoundary
        read = doubling.after_sum if place else doubling.start
        boundary = kind((doubling.planned(read),), (doubling.OWED,)).bind(case.norm)
        boundary.prepare(hidden, case.batch)
        assert case.log.count("sum") == place
        with boundary.exit(case.batch) as out:
            partial = out.reduce_output(filled(place + 1.0))
        hidden = out.finish(partial)
    output = case.stack.norm(hidden, case.batch, case.norm)

    assert case.log.count("sum") == 4
    assert output.eq(2 * (1 + 2 * (1 + 2 + 3 + 4))).all()


def test_a_mixer_shares_its_implementation_with_attention_and_ffn() -> None:
    """One binding, one crossing: the same parameters reach prepare and leave."""
    case = Case()
    left = []

    def leave(hidden: Any, batch: Any, gate: float) -> Any:
        left.append(gate)
        return batch.stream.pend(hidden, (gate,), COMPLETE)

    decision = ExitDecision(
        fuse_mlp_allreduce=False, mlp_reduce_scatter=False, reduce=doubling.same, leave=leave
    )
    unbound = MixerBoundary(
        (doubling.planned(doubling.after_sum),), (decision,), resume=doubling.RESUME
    )
    boundary = unbound.bind(case.norm, update=(3.0,))
    boundary.prepare(case.stack.fold(case.owed(), case.batch), case.batch)
    with boundary.exit(case.batch) as out:
        pass
    out.finish(filled(1))
    assert left == [3.0]
    assert case.stream.params == (3.0,)
    assert MIXER.bind(case.norm) is not MIXER


def accessing(model: Model, batch: Any) -> tuple[Tensor, list[Tensor]]:
    """A forward that uses an output at every boundary."""
    stack: Any = model.stack
    aux = AuxHiddenStateList()
    stack.start(batch)
    hidden: Any = torch.ones((batch.local_rows, WIDTH), dtype=torch.float64)
    for index, (attention, ffn) in enumerate(model.layers):
        hidden = attention.prepare(hidden, batch, capture_output=aux.capture)
        hidden = attention.finish(hidden @ model.weights.attention[index, 0], batch)
        hidden = stack.fold(hidden, batch)
        hidden = ffn.prepare(hidden, batch)
        with ffn.exit(batch) as out:
            hidden = out.reduce_output(hidden @ model.weights.ffn[index, 0])
        hidden = out.finish(hidden)
        aux.append(stack.snapshot(hidden, batch))
        if index == 1:
            hidden = stack.complete_output(hidden, batch)
        if index == 2:
            hidden = stack.add_to_output(hidden, batch, torch.ones_like(aux[-1]))
    output = stack.norm(hidden, batch, Norm(model.weights.final), capture_output=aux.capture)
    return output, list(aux)


@pytest.mark.parametrize("policy", ["ar", "rsv"])
def test_a_forward_that_uses_outputs_is_one_graph(policy: str) -> None:
    """torch.compile traces accessors, captures and the end of the stack without a break."""
    groups = {"attn_dp": Group(0, 2), "attn_tp": Group(0, 2), "tp": Group(0, 4)}
    stack = tp4_dp2.Stack(MappedGroups(0, groups), policy=policy)
    model = Model(stack, 0)
    batch = stack.batch(rows_per_dp=[4, 4], padding="sum_len", mode="decode")
    expected, shown = accessing(model, batch)

    traced = torch.compile(lambda: accessing(model, batch), backend="eager", fullgraph=True)
    output, states = traced()

    torch.testing.assert_close(output, expected, rtol=0, atol=0)
    assert len(states) == len(shown) == 2 * LAYERS + 1
    for state, right in zip(states, shown, strict=True):
        torch.testing.assert_close(state, right, rtol=0, atol=0)


def test_gr1_an_extra_contribution_comes_and_goes_under_compile() -> None:
    """Present, absent, present again: a compiled forward equals the eager one each time."""
    groups = {"attn_dp": Group(0, 2), "attn_tp": Group(0, 2), "tp": Group(0, 4)}
    stack: Any = tp4_dp2.Stack(MappedGroups(0, groups), policy="rsv")
    model = Model(stack, 0)
    batch = stack.batch(rows_per_dp=[4, 4], padding="sum_len", mode="decode")

    def forward(extra: Tensor | None, added: Tensor | None) -> Tensor:
        stack.start(batch)
        hidden: Any = torch.ones((batch.local_rows, WIDTH), dtype=torch.float64)
        for index, (attention, ffn) in enumerate(model.layers):
            given = extra if index == 1 else None
            hidden = attention.prepare(hidden, batch, post_residual_addition=given)
            hidden = attention.finish(hidden, batch)
            if added is not None and index == 2:
                hidden = stack.add_to_output(hidden, batch, added)
            hidden = ffn.prepare(hidden, batch)
            with ffn.exit(batch) as out:
                hidden = out.reduce_output(hidden)
            hidden = out.finish(hidden)
        return stack.norm(hidden, batch, Norm(model.weights.final))  # type: ignore[no-any-return]

    traced = torch.compile(forward, backend="eager", fullgraph=True)
    results = []
    for value in (1.0, None, 3.0, None, 1.0):
        extra = None if value is None else torch.full((4, WIDTH), value).double()
        for given in ((extra, None), (None, extra)):
            results.append(traced(*given))
            torch.testing.assert_close(results[-1], forward(*given), rtol=0, atol=0)
    assert results[0].equal(results[8])
    assert not results[0].equal(results[2])
    assert not results[0].equal(results[4])
