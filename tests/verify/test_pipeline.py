"""Pipeline cuts on simulated ranks: before every layer, in every variant, with both payloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.graph.policy import POLICIES
from boundaryc.runtime import pipeline
from boundaryc.verify.fixture import Fixture, Place
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.ranks import RankProgram
from boundaryc.verify.run import Prover
from boundaryc.verify.scene import Cell
from boundaryc.verify.world import World
from tests.verify.extras_stacks import EXTRAS
from tests.verify.pair_stacks import PAIRS
from tests.verify.subjects import prover, share
from tests.verify.test_operations import CAPTURES, HEAD, STACKS, text

TOPOLOGIES = """\
topologies:
  tp4: {tp: 4}
  tp4_dp2: {tp: 4, attn_dp: 2, dense_tp: attn_tp, moe: {dp: 2, ep: 2}}
  tp2_dp2: {tp: 2, attn_dp: 2, moe: {ep: 2, all_to_all: true}}
  tp4_cp2: {tp: 4, attn_cp: 2}
"""
PAIR_TOPOLOGIES = """\
topologies:
  tp4_dp2: {tp: 4, attn_dp: 2, dense_tp: attn_tp, moe: {dp: 2, ep: 2}}
  tp2_dp2: {tp: 2, attn_dp: 2, moe: {ep: 2}}
"""
PAYLOADS = ("partial", "complete")
JOINS = """\
stages:
  attention: {kind: attention, joins_sum: allow}
  mlp: {kind: ffn, joins_sum: allow}
  experts: {kind: ffn, sparse: true, update: early}
operations:
  early: {role: update, call: "tests.verify.operations:plain_add", facts: [row_wise, at_producer]}
layers: {pattern: "DEDS.SA", stages: {D: [attention, mlp], E: [attention, experts], S: [mlp],
         A: [attention], ".": []}}
"""
MORE = {"joins": JOINS, "extras": EXTRAS}
SAMPLE = Selection(
    policies=("ar", "rs+rsv"),
    paddings=("sum_len",),
    batches=("uneven", "one_empty"),
)


def _cut(name: str, payload: str, damage: Callable[[dict[str, str]], None] | None = None) -> Prover:
    return prover(f"{_text(name)}pipeline: {{payload: {payload}}}\n", damage)


def _text(name: str) -> str:
    if name in STACKS:
        return text(name, TOPOLOGIES)
    return text("mixers", TOPOLOGIES).replace(STACKS["mixers"], MORE[name])


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("name", [*STACKS, *MORE])
def test_a_cut_before_every_layer_changes_nothing(name: str, payload: str) -> None:
    """Plain forwards and, in turns with them, such as use outputs on either side of each cut."""
    subject = _cut(name, payload)
    every = covering([cell for cell in matrix(subject.subject.plan, SAMPLE) if cell.cuts])
    cells = share(every, PAYLOADS.index(payload), 2)
    found = [subject.run(cell, deeds=seed if seed % 2 else None) for seed, cell in enumerate(cells)]

    assert {cell.variant for cell in cells} == set(subject.subject.plan.stack.variants)
    assert any(0 in cell.rows for cell in cells)
    assert [f"{one.cell}: {one.failure}" for one in found if one.failure] == []


def _exact(x: Tensor) -> Tensor:
    return torch.round(x * 2**20) / 2**20


class _Exact(Fixture):
    """Contributions are multiples of 2**-20: their sum is the same in every order."""

    __slots__ = ()

    def partial(self, place: Place, seen: Tensor, part: int, parts: int) -> Tensor:
        return _exact(super().partial(place, seen, part, parts))


class _Keeping(RankProgram):
    """A forward that is not compared but kept: what each stage saw, and the output."""

    def __init__(self, scene: Any, groups: Any) -> None:
        super().__init__(scene, groups)
        self.kept: list[Tensor] = []

    def _compare(self, what: str, value: Tensor, held: Any, expected: Tensor) -> None:
        assert value.shape[0] == held.count, what
        self.kept.append(value[held.positions].clone())


def _kept(subject: Prover, cell: Cell) -> list[list[Tensor]]:
    scene = subject.scene(cell)
    scene = replace(scene, tokens=_exact(scene.tokens))

    def run(groups: Any) -> list[Tensor]:
        program = _Keeping(scene, groups)
        program.forward()
        return program.kept

    world: World[list[Tensor]] = World(scene.topology.spec.tp)
    return world.run(run)


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("name", ["tails", "joins"])
def test_cut_and_uncut_agree_bit_for_bit(name: str, payload: str) -> None:
    """Tails, joined residuals and updates at the producer, under every policy.

    What is summed is exact, so that a payload that is completed in another order of ranks
    still has the same bits.
    """
    subject = _exactly(_cut(name, payload))
    chosen = Selection(
        topologies=("tp4_dp2", "tp2_dp2"),
        policies=("ar", "rs", "rsv", "rs+rsv"),
        paddings=("unpadded",),
        batches=("uneven", "one_empty"),
    )
    cells = covering([cell for cell in matrix(subject.subject.plan, chosen) if cell.cuts])
    assert len({cell.policy for cell in cells}) == 4
    for cell in cells:
        whole = _kept(subject, replace(cell, cuts=()))
        for ranks in zip(_kept(subject, cell), whole, strict=True):
            for cut, uncut in zip(*ranks, strict=True):
                assert torch.equal(cut, uncut), str(cell)


def _exactly(subject: Prover) -> Prover:
    """The same with contributions whose sums do not depend on the order of ranks."""
    own = subject.subject.fixture
    object.__setattr__(subject.subject, "fixture", _Exact(own.width, own.weights, own.final))
    return subject


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_cut_between_any_two_kinds_of_stage_keeps_the_bits(payload: str) -> None:
    """Under every policy, on uneven and empty ranks, a cut before each of 37 layers of a stage."""
    stack = HEAD + PAIRS + PAIR_TOPOLOGIES + f"pipeline: {{payload: {payload}}}\n"
    subject = _exactly(prover(stack))
    layers = subject.subject.plan.stack.layers
    assert len({*pairwise(layers)}) == len({*layers}) ** 2 == 36
    cuts = tuple(range(1, len(layers)))
    for policy, (topology, rows) in product(POLICIES, (("tp4_dp2", (3, 1)), ("tp2_dp2", (0, 2)))):
        cell = Cell(topology, "ordinary", policy, "unpadded", rows, cuts=cuts)
        whole = _kept(subject, replace(cell, cuts=()))
        for ranks in zip(_kept(subject, cell), whole, strict=True):
            for cut, uncut in zip(*ranks, strict=True):
                assert torch.equal(cut, uncut), str(cell)


BROKEN = {
    "a sum that the sender leaves out": (
        "complete",
        "value = groups.attn_tp.all_reduce(value)",
        "",
    ),
    "an owed sum that nobody knows of": ("partial", "        owes=True,\n", ""),
    "rows that are not cut": ("complete", "take(value)", "take(value) * 2"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_found(what: str) -> None:
    payload, before, after = BROKEN[what]

    def damage(files: dict[str, str]) -> None:
        changed = 0
        for path, content in files.items():
            if "_access" in path:
                at = content.find("def finish_to_send") if payload == "complete" else 0
                here = content[at:] if at >= 0 else ""
                if before in here:
                    files[path] = content[:at] + here.replace(before, after)
                    changed += 1
        assert changed

    subject = _cut("mixers", payload, damage)
    cells = [cell for cell in matrix(subject.subject.plan, SAMPLE) if cell.cuts]

    assert any(subject.run(cell, deeds=1).failure for cell in covering(cells))


def test_captures_arrive_as_they_were_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the producer's rows and on those of inputs, over one cut or several; else it is found."""
    travelling = CAPTURES.replace("rows: producer}", "rows: producer, travels: true}")
    travelling = travelling.replace("rows: input}", "rows: input, travels: true}")
    small = "topologies: {tp4: {tp: 4}, tp4_cp2: {tp: 4, attn_cp: 2}}\n"
    stack = text("captures", small).replace(CAPTURES, travelling)
    subject = prover(stack + "pipeline: {payload: partial}\n")
    every = [cell for cell in matrix(subject.subject.plan, SAMPLE) if cell.cuts]
    cells = [*covering(every)[::2], replace(every[0], cuts=(4,))]
    assert max(cells[-1].rows) > 1
    assert [one.failure for one in map(subject.run, cells) if one.failure] == []

    def reversed_rows(*parts: Any) -> dict[str, Tensor]:
        rest, batch = received(*parts), parts[-1]
        for values in batch.captures.values():
            values[:] = [value.flip(0) for value in values]
        return rest

    received = pipeline.captures_received
    monkeypatch.setattr(pipeline, "captures_received", reversed_rows)
    assert "did not arrive as it was taken" in str(subject.run(cells[-1]).failure)


def test_only_cut_cells_of_a_pipeline() -> None:
    """A stack that declares a pipeline is verified uncut and with a cut before every layer."""
    plan = _cut("mixers", "partial").subject.plan
    found = {cell.cuts for cell in matrix(plan, Selection(topologies=("tp4",)))}

    assert found == {(), tuple(range(1, len(plan.stack.layers)))}
    with pytest.raises(ValueError, match="--cut: 0 are not layers before which"):
        list(matrix(plan, Selection(cuts=(0,))))
