"""Which sums are left to a fusion provider: the truth table, and what ranks decide alike."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.verify.fused import (
    HANDS_ON,
    HEAD,
    Forward,
    Noting,
    census,
    forwards,
    outputs,
    plain,
)
from tests.verify.subjects import prover

FUSION = "fusion: {providers: [kernels]}\n"


TABLE = """\
stages:
  attention: {kind: attention}
  experts: {kind: ffn, sparse: true SAYS}
layers: {count: 2, default: [attention, experts]}
topologies:
  tp2: {tp: 2}
  a2a: {tp: 2, moe: {ep: 2, all_to_all: true}}
  moe2: {tp: 4, moe: {dp: 2}}
"""
KEEPS = {
    "plain": ("", ""),
    "lora": ("", "lora: true\n"),
    "tail": (", reduction: local_tail", ""),
    "lora, quantised": (", quantized_sum: fp8", "lora: true\n"),
    "tail, quantised": (", reduction: local_tail, quantized_sum: fp8", ""),
    "lora, kept": (", defer: false", "lora: true\n"),
    "lora, early": (
        ", update: early",
        'lora: true\noperations: {early: {role: update, call: "tests.verify.operations:plain_add", '
        "facts: [plain_add, at_producer]}}\n",
    ),
}


class Tailed(Forward):
    """A model whose every rank adds what it holds whole, where the exit says so."""

    def stage(self, boundary: Any, name: str, x: Tensor) -> Any:
        """Computes and leaves a stage."""
        if name == "attention":
            return super().stage(boundary, name, x)
        with boundary.exit(self.rank.batch) as out:
            self.rank.flags.append((out.fuse_mlp_allreduce, out.skips_reduction))
            y = out.reduce_output(torch.tanh(x) * (self.number + 1) / 8)
            if self.tailed and out.adds_tail:
                y = y + torch.sin(x)
        return out.finish(y)

    tailed = False


@pytest.mark.parametrize("keeps", KEEPS)
def test_x15_when_a_kept_sum_is_left(keeps: str) -> None:
    """X15, a truth table: what keeps it, all-to-all, quantised, the group, and who accepts it.

    Line 132 as well. Numbers and collectives are the same wherever the sum ends.
    """
    says, switch = KEEPS[keeps]
    runs = prover(HEAD + TABLE.replace(" SAYS", says) + switch + FUSION)

    def model(forward: Forward) -> Tensor:
        own = Tailed(forward.rank, forward.layers, forward.number)
        own.tailed = "tail" in keeps
        return plain(own)

    for name in ("tp2", "a2a", "moe2"):
        expected, right = forwards(runs, name, model, policy="ar")
        for accepts in (True, False):
            for takes in (True, False):
                ranks, traces = forwards(
                    runs,
                    name,
                    model,
                    policy="ar",
                    provider=lambda log, accepts=accepts, takes=takes: Noting(
                        log, takes=lambda consumer, _: takes, all_reduce=accepts
                    ),
                )
                kept = keeps in ("lora", "tail")
                leaves = keeps == "plain" and name != "a2a"
                deferred = kept and name == "tp2" and accepts
                assert {rank.flags[0][0] for rank in ranks} == {leaves or deferred}, (name, accepts)
                assert {rank.flags[1][0] for rank in ranks} == {False}  # the end keeps its sum
                fused = sum(word == "fuse attention" for word in ranks[0].log)
                assert fused == (takes and (leaves or deferred))
                torch.testing.assert_close(outputs(ranks), outputs(expected), rtol=0, atol=1e-12)
                assert census(traces) == census(right)


def test_a_sum_that_is_left_may_be_shown() -> None:
    """A snapshot of one runs it on a copy; it is still left, and a cut or a fold completes it."""
    runs = prover(HEAD + TABLE.replace(" SAYS", "") + "lora: true\n" + FUSION)

    def model(forward: Forward) -> Tensor:
        stack, batch = forward.rank.stack, forward.rank.batch
        hidden = forward.run(forward.start(), [0])
        shown = stack.snapshot(hidden, batch)
        assert batch.stream.handle is hidden
        forward.rank.log.append("shown")
        again = stack.snapshot(hidden, batch)
        assert torch.equal(shown, again)
        hidden = forward.run(hidden, [1])
        out = forward.end(hidden)
        return torch.cat([shown, out])

    ranks, _ = forwards(runs, model=model, provider=Noting)
    without, _ = forwards(runs, model=model)
    torch.testing.assert_close(outputs(ranks), outputs(without), rtol=0, atol=1e-12)
    assert ranks[0].log == ["fuse experts", "shown", "fuse attention", "fuse experts", "norm"]


@pytest.mark.parametrize("rows", [(0, 8), (3, 0), (0, 0)])
def test_x16_ranks_decide_from_all_rows(rows: tuple[int, int]) -> None:
    """None here but eight in all leaves it on every rank, none at all keeps it."""
    shared = "topologies: {dp2: {tp: 4, attn_dp: 2, moe: {dp: 2, ep: 2}}}\n"
    runs = prover(HEAD + re.sub("topologies: .*\n", shared, HANDS_ON))
    ranks, traces = forwards(runs, "dp2", provider=Noting, rows=rows)
    assert {rank.flags[0][1] for rank in ranks} == {any(rows)}
    # Ranks of a group without rows complete what they handed on by themselves.
    for number, rank in enumerate(ranks):
        assert ("fuse handed attention" in rank.log) == bool(rows[number // 2])
        assert rank.log.count("complete") == (0 if not any(rows) else 1 + (not rows[number // 2]))
    assert len({len(trace) for trace in traces}) == 1
