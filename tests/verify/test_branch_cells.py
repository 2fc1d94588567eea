"""Branches on simulated ranks, against the oracle: shortcut experts and parallel blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.plan.compose import plan_stack
from boundaryc.plan.ops import Operation
from boundaryc.plan.result import StackPlan
from boundaryc.runtime import CopiedCollective
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.modules import forget
from boundaryc.verify.ranks import RankProgram
from boundaryc.verify.run import Prover
from boundaryc.verify.scene import Cell
from boundaryc.verify.world import World
from tests.verify.subjects import compiled, prover, share

POLICIES = ("ar", "rs", "rsv", "rs+rsv")
LONGCAT = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  experts: {kind: ffn, sparse: true, reduction: local_tail}
  dense: {kind: ffn}
  attention_2: {kind: attention}
  dense_2: {kind: ffn}
layers: {count: 3, default: [attention, experts]}
branch: {beside: experts, stages: [dense, attention_2, dense_2]}
"""
WIDE = """\
topologies:
  tp1: {tp: 1}
  tp4: {tp: 4, moe: {ep: 4, all_to_all: true}}
  tp4_dp2: {tp: 4, attn_dp: 2, moe: {ep: 4, all_to_all: true}}
  tp8_dp2: {tp: 8, attn_dp: 2, dense_tp: attn_tp, moe: {dp: 2, ep: 4}}
  tp4_dp4: {tp: 4, attn_dp: 4, dense_tp: 1, moe: {ep: 4}}
"""
PARALLEL = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages: {attention: {kind: attention}, mlp: {kind: ffn}}
layers: {count: 4, default: [attention]}
branch: {beside: attention, stages: [mlp], merges_sum: SAYS}
topologies:
  tp2: {tp: 2}
  tp4: {tp: 4}
  tp4_dp2: {tp: 4, attn_dp: 2}
  tp8_dp2: {tp: 8, attn_dp: 2, dense_tp: attn_tp}
"""
MIXED = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6, accumulate: rounded}
stages:
  attention: {kind: attention, additive: {bias: divided}}
  scan: {kind: mixer, update: gated, additive: {skip: after_sum}}
  look: {kind: attention, additive: {sink: rank0}}
  gather: {kind: attention, reduction: scoped, update: gated}
  tail: {kind: ffn, transform: norm, additive: {shared: after_sum}}
  mlp: {kind: ffn}
  late: {kind: attention, post_addition: true}
layers:
  pattern: "SALMS"
  stages: {S: [scan], A: [attention, scan, mlp], L: [late], M: [mlp, scan]}
branch: {beside: scan, stages: [look, gather, tail], merges_sum: allow}
operations:
  gated: {role: update, call: "tests.emit.operations:gated_add", facts: [outlives_producer],
          params: [gate]}
captures: {kept: {after: ["0-4"]}, other: {before: [2, 4], rows: input}}
topologies:
  tp4: {tp: 4}
  tp4_dp2: {tp: 4, attn_dp: 2}
"""
BASES = {
    "longcat": LONGCAT + WIDE,
    "summed": LONGCAT.replace("dense_2]}", "dense_2], merges_sum: allow}").replace(
        ", reduction: local_tail", ""
    )
    + WIDE,
    "parallel": PARALLEL.replace("SAYS", "never"),
    "parallel summed": PARALLEL.replace("SAYS", "allow"),
    "mixed": MIXED,
}


def _failures(subject: Prover, cells: list[Cell]) -> list[str]:
    found = [subject.run(cell, deeds=at if at % 2 else None) for at, cell in enumerate(cells)]
    forget(subject.subject.package)
    return [f"{one.cell}: {one.failure}" for one in found if one.failure]


@pytest.mark.parametrize("name", BASES)
def test_every_rank_has_what_the_oracle_has(name: str) -> None:
    """Over every pair of choices, empty ranks among them; every other forward uses outputs."""
    subject = prover(BASES[name])
    cells = share(
        covering(list(matrix(subject.subject.plan, Selection()))), list(BASES).index(name), 2
    )

    assert any(0 in cell.rows and any(cell.rows) for cell in cells)
    assert any(len(set(cell.rows)) > 1 for cell in cells)
    assert _failures(subject, cells) == []


def _paths(
    plan: StackPlan, topology: str, policy: str, column: int = 0
) -> dict[tuple[str, str], tuple[Operation, ...]]:
    """The operations of every boundary by its producer and consumer."""
    (found,) = [one for one in plan.topologies if one.spec.name == topology]
    table = found.tables[policy][column]
    return {(edge.producer, edge.consumer): one.path.ops for edge, one in table.items()}


def test_br1_the_attention_of_a_branch_has_all_rows_of_its_group() -> None:
    """Also where the experts beside it have rows of their own; both outputs meet on equal rows."""
    subject = prover(LONGCAT + WIDE)
    plan = subject.subject.plan
    (topology,) = [one for one in plan.topologies if one.spec.name == "tp4"]
    for tables in topology.tables.values():
        for table in tables:
            named = {(edge.producer, edge.consumer): one for edge, one in table.items()}
            assert named["attention", "experts"].goal.rows == topology.mesh.every
            assert named["experts", "dense"].start.rows == topology.mesh.every
            assert named["experts", "dense"].goal.rows == 0
            assert named["dense", "attention_2"].goal.rows == 0
            placed, ended = named["experts", "merge"].goal, named["dense_2", "merge"].goal
            assert (placed.rows, placed.owes) == (ended.rows, ended.owes) == (placed.rows, 0)
            assert named["experts", "attention"].start.rows == placed.rows
    cells = [
        Cell("tp4", "ordinary", policy, padding, (count,))
        for policy in POLICIES
        for padding in ("sum_len", "unpadded")
        for count in (8, 5, 0)
    ]
    assert _failures(subject, cells) == []


@pytest.mark.parametrize(("topology", "rows"), [("tp4", (7,)), ("tp8_dp2", (5, 0))])
def test_pb2_a_merged_sum_runs_once(topology: str, rows: tuple[int, ...]) -> None:
    """One sum a layer where both outputs are added before it, two where each is completed."""
    counts = {}
    for says in ("allow", "never"):
        subject = prover(PARALLEL.replace("SAYS", says))
        found = subject.run(Cell(topology, "ordinary", "ar", "unpadded", rows))
        forget(subject.subject.package)
        assert found.failure is None
        counts[says] = found.collectives
    assert counts == {"allow": 4, "never": 8}


def test_pb2_under_attention_dp_only_equal_sums_are_merged() -> None:
    """The FFN owes all ranks, attention its own: they meet on equal rows with equal sums."""
    plan, _ = compiled(PARALLEL.replace("SAYS", "allow"))
    (topology,) = [one for one in plan.topologies if one.spec.name == "tp4_dp2"]
    heads = topology.mesh.mask("attn_tp")
    for tables in topology.tables.values():
        for table in tables:
            ends = [one for edge, one in table.items() if edge.merges]
            assert len({(one.goal.rows, one.goal.owes) for one in ends}) == 1
            assert {one.start.owes for one in ends} == {heads, topology.mesh.every}
            assert ends[0].goal.owes in (0, heads)
    paths = _paths(plan, "tp4_dp2", "rs+rsv")
    assert [type(op).__name__ for op in paths["mlp", "merge"]] == ["ReduceScatter", "HandOff"]
    assert [type(op).__name__ for op in paths["attention", "merge"]] == ["HandOff"]


def test_a_local_tail_is_complete_before_it_is_merged() -> None:
    """Compute adds its tail after its own sum, so what is merged owes nothing."""
    text = LONGCAT.replace("dense_2]}", "dense_2], merges_sum: allow}")
    plan, _ = compiled(text + "topologies: {tp4: {tp: 4}}\n")
    for tables in plan.topologies[0].tables.values():
        for table in tables:
            assert {one.goal.owes for edge, one in table.items() if edge.merges} == {0}


class _Reusing:
    """A group whose sums all lie in one buffer, as long as they have one shape."""

    def __init__(self, group: Any) -> None:
        self._group, self._buffer = group, torch.empty(0, dtype=torch.float64)
        self.rank, self.size = group.rank, group.size

    def all_reduce(self, x: Tensor) -> Tensor:
        found: Tensor = self._group.all_reduce(x)
        if self._buffer.shape != found.shape:
            self._buffer = torch.empty_like(found)
        return self._buffer.copy_(found)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)


class _Provider:
    def __init__(self, groups: Any, wrap: Callable[[Any], Any]) -> None:
        self.rank, self._groups, self._wrap = groups.rank, groups, wrap

    def collective(self, mesh: Any, axes: tuple[str, ...]) -> Any:
        return self._wrap(self._groups.collective(mesh, axes))


def test_al2_two_outputs_that_wait_to_be_merged() -> None:
    """Merged into one sum a reused buffer does no harm; two sums are copied out of theirs."""

    def wrong(says: str, wrap: Callable[[Any], Any]) -> bool:
        subject = prover(PARALLEL.replace("SAYS", says))
        scene = subject.scene(Cell("tp2", "ordinary", "ar", "unpadded", (6,)))
        world: World[float] = World(2)
        try:
            world.run(lambda groups: RankProgram(scene, _Provider(groups, wrap)).forward())  # type: ignore[arg-type]
        except Exception as error:
            return "MismatchError" in f"{type(error).__name__}: {error}"
        finally:
            forget(subject.subject.package)
        return False

    assert wrong("never", _Reusing)  # the hazard is real
    assert not wrong("never", lambda group: CopiedCollective(_Reusing(group)))
    assert not wrong("allow", _Reusing)


DAMAGE = {
    "the branch is dropped": ("add(*outputs)", "outputs[1]"),
    "the experts are dropped": ("add(*outputs)", "outputs[0]"),
    "the experts count twice": ("add(*outputs)", "add(outputs[0], 2 * outputs[1])"),
    "a partial meets a complete output": (
        "hidden = groups.tp.reduce_scatter(hidden, rows.tp.sizes)",
        "hidden = rows.tp.take(hidden)",
    ),
    "the branch keeps the rows of the experts": (
        "return batch.groups.tp.all_gather(hidden)",
        "return hidden",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_goes_wrong_in_a_branch_is_found(name: str) -> None:
    """Every edge of a branch is looked at: damage to its code is seen by a rank."""
    old, new = DAMAGE[name]

    def damage(files: dict[str, str]) -> None:
        (name,) = (one for one in files if one.startswith("tp4/ordinary") and old in files[one])
        files[name] = files[name].replace(old, new)

    subject = prover(LONGCAT + WIDE, damage)
    found = subject.run(Cell("tp4", "ordinary", "rsv", "sum_len", (8,)))
    forget(subject.subject.package)
    assert found.failure is not None


def test_s10_the_next_layers_producer_is_the_stage_beside_the_branch() -> None:
    """Its update adds both outputs, and it ends the stack too."""
    plan = plan_stack(compiled(LONGCAT + WIDE)[0].stack)
    edges = plan.graph.edges()
    assert {edge.producer for edge in edges if edge.consumer in ("attention", "final")} == {
        "",
        "experts",
    }
    assert plan.graph.last.producer == "experts"
    assert [edge.producer for edge in plan.graph.left[0] if edge.merges] == ["experts", "dense_2"]
