"""Rows of experts that a MoE hands on: finished by the stack's own kernels, with the same bits."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import ExpertRows, SingleGroups, finalize
from boundaryc.verify.cells import Cell
from boundaryc.verify.fusing import expert_rows
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.run import Prover
from tests.verify.fused import HEAD, WIDTH, Forward, Rank, census, forwards
from tests.verify.subjects import compiled, prover

STACK = """\
stages:
  attention: {kind: attention, quantize: {format: fp8, scale: token, keep: true}}
  mixer: {kind: mixer}
  experts: {kind: ffn, sparse: true, finalize: deferred}
layers: {pattern: "EME", stages: {E: [attention, experts], M: [mixer, experts]}}
captures: {eagle: {after: [0], rows: producer}}
topologies:
  tp1: {tp: 1}
  tp2: {tp: 2}
  tp4: {tp: 4, moe: {ep: 4, all_to_all: true}}
  tp4_dp4: {tp: 4, attn_dp: 4, moe: {ep: 4, all_to_all: true}}
variants: [ordinary, sequence_parallel]
terminal: {finalize: deferred}
overlap: {two_batch: true}
"""
GATHERED = """\
stages:
  experts: {kind: ffn, sparse: true, finalize: deferred}
  mlp: {kind: ffn}
layers: {count: 2, default: [experts, mlp]}
topologies: {tp2_dp2: {tp: 2, attn_dp: 2, moe: {ep: 2, all_to_all: true}}}
"""
"""A dense FFN, for which rows are gathered, behind every MoE."""
OWN = "fusion: {providers: [builtin]}\n"
BETWEEN = "fusion: {providers: [first, builtin, last]}\n"


@pytest.fixture(scope="module")
def own() -> Prover:
    """A stack whose own kernels finish its MoEs."""
    return prover(HEAD + STACK + OWN)


class Handing(Forward):
    """A forward whose MoEs hand on rows of experts in bfloat16."""

    def stage(self, boundary: Any, name: str, x: Any) -> Any:
        """Computes and leaves a stage; attention takes what is quantised as it was before."""
        x = x[-1] if isinstance(x, tuple) else x
        if name != "experts":
            return super().stage(boundary, name, x)
        part = torch.tanh(x) * (self.number + 1) / 8
        with boundary.exit(self.rank.batch) as out:
            self.rank.log.append("hand on" if out.defer_moe_finalize else "finalise")
            rows = expert_rows(part)
            narrow = ExpertRows(rows.rows, rows.weights.float(), rows.index, rows.shared)
            left = narrow if out.defer_moe_finalize else out.reduce_output(narrow.complete())
        return out.finish(left)


def _plain(forward: Forward) -> Tensor:
    handing = Handing(forward.rank, forward.layers, forward.number, dtype=torch.bfloat16)
    handing.bound = Bound()
    return handing.end(handing.run(handing.start()))


class Bound:
    """A norm in bfloat16."""

    weight = torch.linspace(0.5, 1.5, 64, dtype=torch.bfloat16)


TOPOLOGIES = {"tp1": (3,), "tp2": (3,), "tp4_dp4": (3, 0, 1, 2)}


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_bits_are_those_of_a_finalised_output(own: Prover, topology: str) -> None:
    """In bfloat16, whoever finishes it and whether a sum is owed; with the same collectives."""
    rows = TOPOLOGIES[topology]
    ranks, traces = forwards(own, topology, _plain, rows=rows)
    finished, expected = forwards(own, topology, _plain, rows=rows, fusion=False)

    assert {*ranks[0].log} == {"hand on", "norm"}
    assert {*finished[0].log} == {"finalise", "norm"}
    for one, other in zip(ranks, finished, strict=True):
        assert torch.equal(one.output, other.output)
    assert census(traces) == census(expected)


def test_every_rank_holds_what_the_oracle_says(own: Prover) -> None:
    """All sorts of batches, uneven and empty ones, and outputs that are used in between."""
    cells = covering(list(matrix(own.subject.plan, Selection())))[::6]
    for number, cell in enumerate(cells):
        outcome = own.run(cell, schedule=number, deeds=number if number % 2 else None)
        assert outcome.failure is None, f"{cell}: {outcome.failure}"


def test_groups_of_odd_and_even_rows() -> None:
    """All ranks hand on the same, whatever their own rows are: the gather behind it is one."""
    runs = prover(HEAD + GATHERED + OWN)
    for rows in ((12, 7), (12, 8)):
        outcome = runs.run(Cell("tp2_dp2", "ordinary", "ar", "unpadded", rows))
        assert outcome.failure is None, outcome.failure


def test_beside_providers() -> None:
    """Some hand-offs are theirs, before or behind the stack's own kernels."""
    runs = prover(HEAD + STACK + BETWEEN)
    cells = covering(list(matrix(runs.subject.plan, Selection())))[::12]
    for number, cell in enumerate(cells):
        outcome = runs.run(cell, schedule=number)
        assert outcome.failure is None, f"{cell}: {outcome.failure}"


def test_one_kernel_has_all_of_it() -> None:
    """Finalize, update, read and quantisation, where no sum is owed; then rows may be gathered."""
    _, files = compiled(HEAD + STACK + OWN)

    def of(variant: str) -> str:
        return "".join(text for name, text in files.items() if name.startswith(variant))

    text = of("tp4_dp4/ordinary")
    assert re.search(r"= finalize_add_rms_norm_fp8_and_norm\(\s*\*experts\.parts,", text)
    assert "finalized=experts_finalized_to_final," in text
    gathered = of("tp4/sequence_parallel")
    assert re.search(r"finalize_add_rms_norm[^}]*groups\.tp\.all_gather", gathered)
    assert "finalized=" not in of("tp2/ordinary")
    assert "finalize=finalize," in of("tp2/ordinary")


def test_what_is_broken_is_found() -> None:
    """Weights in another order, a shared expert that is dropped, an output that is not rounded."""
    for old, new in (
        ("index, shared)", "index.flip(1), shared)"),
        ("index, shared)", "index, None)"),
    ):

        def damage(files: dict[str, str], old: str = old, new: str = new) -> None:
            text = files["rowwise.py"]
            assert f"runtime.finalize(x, gates, {old}" in text
            files["rowwise.py"] = text.replace(
                f"runtime.finalize(x, gates, {old}", f"runtime.finalize(x, gates, {new}"
            )

        runs = prover(HEAD + STACK + OWN, damage)
        assert runs.run(Cell("tp1", "ordinary", "ar", "sum_len", (3,))).failure


def test_rows_of_experts_are_checked() -> None:
    """When a model makes them: what does not fit would be read past its end."""
    rows, weights = torch.ones(6, 8), torch.ones(2, 3)
    index = torch.zeros(2, 3, dtype=torch.int64)
    for says, given in {
        "floating": (rows.int(), weights, None, None),
        "are float32": (rows, weights.bfloat16(), None, None),
        "meet 5 rows": (rows[1:], weights, None, None),
        "index of rows": (rows, weights, weights, None),
        "shared expert": (rows, weights, index, rows),
    }.items():
        with pytest.raises(ValueError, match=says):
            ExpertRows(*given)


def test_the_sum_is_in_order_and_wide() -> None:
    """1 + 2**-9 + 2**-9 is more than 1 in bfloat16 only if it is not rounded in between."""
    rows = torch.tensor([[1.0], [1.0], [1.0]], dtype=torch.bfloat16)
    weights = torch.tensor([[1.0, 2.0**-8, 2.0**-8]])
    assert finalize(rows, weights, None, None).item() == 1 + 2.0**-7
    none = torch.full((1, 3), -1)
    assert finalize(rows[:0], weights, none, None).item() == 0


def test_it_traces_without_a_break(own: Prover) -> None:
    """An exit that is given rows of experts, and the kernel behind it, in one graph."""
    stack = own.subject.package.load("tp1", SingleGroups())
    batch = stack.batch(rows_per_dp=[3], padding="sum_len", mode="decode")
    forward = Forward(Rank([], stack=stack, batch=batch), own.subject.plan.stack.layers, 0)
    first, following = forward.boundary(0, "attention"), forward.boundary(1, "mixer")
    experts = forward.boundary(0, "experts")

    def step(x: Tensor) -> Tensor:
        stack.start(batch)
        read = first.prepare(x, batch)[-1]
        x = experts.prepare(first.finish(read, batch), batch)
        with experts.exit(batch) as out:
            rows = ExpertRows(torch.cat([x, x * 2.0]), torch.ones(3, 2))
        found: Tensor = following.prepare(out.finish(rows), batch)
        return found

    x = torch.rand(3, WIDTH, dtype=torch.float64)
    traced = torch.compile(step, fullgraph=True, backend="eager")
    torch.testing.assert_close(traced(x.clone()), step(x.clone()), rtol=0, atol=1e-12)
