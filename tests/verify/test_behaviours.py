"""Behaviours that the reference system pins down, for stages as they are built, entered and left.

A test shows the number of its line. Collectives are those of simulated ranks whose every value is
compared with the oracle, or of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.graph.build import ENTRY, FINAL, build_graph
from boundaryc.graph.policy import POLICIES
from boundaryc.language.model import Stage
from boundaryc.plan.access import handed_off
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.judge import exit_length
from boundaryc.plan.ops import AllReduce, HandOff, ReduceScatter
from boundaryc.plan.result import Boundary
from boundaryc.runtime import MappedGroups, OwedOutput, SingleGroups
from boundaryc.topology.contracts import CONTEXT_PARALLEL, INPUT_SCATTERED, inapplicable
from boundaryc.topology.mesh import Sizes, build_mesh
from boundaryc.verify.cells import Cell
from boundaryc.verify.modules import forget, import_package
from boundaryc.verify.world import SimulatedGroups, World
from tests.plan.simulated import kinds, subject, verified
from tests.plan.stacks import ATTENTION, EXPERTS, MLP, stack, topology
from tests.runtime.doubling import Doubler
from tests.verify.subjects import compiled

MIXER = Stage("mixer", "mixer", False, "scoped", "norm", "add")
LAYER = (("attention", "mlp"),)
SPARSE = (("attention", "experts"),)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("layers", [LAYER * 3, LAYER, ((), *LAYER, (), *LAYER, ())])
def test_s01_s02_s09_one_stage_enters_and_one_ends(layers: Any) -> None:
    """The first and the last of all, layers without stages passed over."""
    graph = build_graph(stack(topology(1), layers=layers))
    walked = [edge for layer in graph.walk for edge in layer]
    assert [edge.producer == ENTRY for edge in walked] == [True] + [False] * (len(walked) - 1)
    assert (graph.last.producer, graph.last.consumer) == ("mlp", FINAL)
    assert not any(edge.consumer == FINAL for edge in walked)


@pytest.mark.parametrize("rows", [3, 4])
def test_s27_rows_that_the_ranks_do_not_divide(rows: int) -> None:
    """Unpadded, experts on each rank's slice: no padding, and sizes where slices differ."""
    with subject(stack(topology(2, all_to_all=True), layers=SPARSE * 2)) as runs:
        for policy in ("ar", "rs+rsv"):
            name = runs.subject.plan.topologies[0].spec.name
            cell = Cell(name, "ordinary", policy, "unpadded", (rows,))
            trace = verified(runs, cell).traces[0]
            gathers = [call.sizes for call in trace if call.kind == "all_gather"]
            assert gathers
            assert {sum(sizes) for sizes in gathers if sizes} <= {rows}
            assert any(sizes == (2, 1) for sizes in gathers) == (rows == 3)


def test_s29_a_dense_ffn_over_attention_tp_stays_on_its_rows() -> None:
    """With dp 2 x tp 2 every sum is over two ranks of one group, and nothing moves over dp."""
    with subject(stack(topology(4, dp=2, dense=2), layers=LAYER * 2)) as runs:
        name = runs.subject.plan.topologies[0].spec.name
        for policy, rows in product(POLICIES, ((3, 1), (2, 2), (0, 2))):
            traces = verified(runs, Cell(name, "ordinary", policy, "sum_len", rows)).traces
            assert traces[0]
            for rank, trace in enumerate(traces):
                assert {call.group for call in trace} <= {((0, 1), (2, 3))[rank // 2]}


KINDS = {
    "mixer": (MIXER, "attn_tp"),
    "ffn": (replace(MLP, name="ffn"), "dense"),
    "moe": (replace(EXPERTS, name="moe"), "moe_output"),
}


@pytest.mark.parametrize(
    "spec", [topology(2), topology(4, dp=2), topology(1)], ids=lambda s: s.name
)
def test_s06_s30_what_a_stage_leaves_to_the_next(spec: Any) -> None:
    """The sum of its own ranks; a mixer's to a mixer not under dp, to an FFN always."""
    for (one, (first, owed)), (two, (second, _)) in product(KINDS.items(), repeat=2):
        stages = (replace(first, name="one"), replace(second, name="two"))
        layers = (("one",), ("two",), ("one",))
        sample = stack(spec, layers=layers, stages=stages, variants=("ordinary",))
        (planned,) = plan_stack(sample).topologies
        for table in planned.tables["ar"]:
            between = next(
                b for e, b in table.items() if (e.producer, e.consumer) == ("one", "two")
            )
            assert between.start.owes == planned.mesh.mask(owed)
            kept = one == two == "mixer" and spec.attn_dp > 1
            assert handed_off(between).owes == (0 if kept else between.start.owes)
            last = next(b for e, b in table.items() if e.consumer == FINAL)
            assert handed_off(last).owes == 0


def test_s73_the_examples_leave_their_sums_to_exits() -> None:
    """No example runs a collective of its own where it computes.

    But for the harness of Hugging Face models, whose FFNs run without an exit in two-batch overlap.
    """
    for path in (ROOT / "examples").glob("*/*.py"):
        if path.parent.name not in ("common", "hf"):
            assert "all_reduce" not in path.read_text(), path
    common = [path.read_text() for path in (ROOT / "examples" / "common").glob("*.py")]
    assert not any("all_reduce(" in text or "reduce_scatter(" in text for text in common)
    assert any("reduce_output(" in text for text in common)


def test_e12_scattered_inputs_exist_on_these_topologies_only() -> None:
    """More than one attention-TP rank, no dp, no all-to-all."""
    specs = {topology(2): True, topology(1): False, topology(4, dp=2): False}
    specs |= {topology(2, all_to_all=True): False, topology(4, cp=2): False}
    for spec, exists in specs.items():
        sizes = Sizes(spec.tp, spec.attn_dp, spec.attn_cp, spec.attn_tp, spec.dense_tp, 1)
        assert (inapplicable(INPUT_SCATTERED, spec, build_mesh(sizes)) is None) == exists


def test_e15_the_last_experts_behind_an_all_to_all() -> None:
    """Their output owes nothing: rows are gathered, and nothing is summed after attention."""
    with subject(stack(topology(2, all_to_all=True), layers=SPARSE)) as runs:
        name = runs.subject.plan.topologies[0].spec.name
        for rows in (4, 3):
            found = verified(runs, Cell(name, "ordinary", "ar", "sum_len", (rows,)))
            calls = found.decided[0][-1].calls
            behind = kinds(found.traces[0][calls:])
            assert behind
            assert set(behind) == {"all_gather(tp)"}


def test_e98_experts_on_their_own_rows_take_this_ranks_slice() -> None:
    """Values 0 to 3 over residual 1s, rank 1 of 2: rows of 3 and 4; at the entry the slice."""
    mlp, experts = (replace(one, read="raw") for one in (replace(MLP, defer=False), EXPERTS))
    sample = stack(
        topology(2, all_to_all=True),
        layers=(("experts", "mlp"), ("experts",)),
        stages=(mlp, experts),
        variants=("ordinary",),
    )
    files = emit(plan_stack(sample), Origin("sample.yaml", "boundaryc compile", "0" * 64)).files
    package = import_package(files, "sample")

    def program(groups: SimulatedGroups) -> tuple[list[float], list[float], list[float]]:
        stack_ = package.load("tp2_dp1_cp1_dense2_moe1_a2a", groups, policy="ar")
        batch = stack_.batch(rows_per_dp=[4], padding="unpadded", mode="prefill")
        stack_.start(batch)
        first, second = (stack_.layer(index).bind() for index in range(2))
        numbers = torch.arange(4.0, dtype=torch.float64)[:, None].expand(4, 64)
        entered = first.experts.prepare(numbers - 1, batch)
        with first.experts.exit(batch) as output:
            hidden = output.reduce_output(1 - entered)
        hidden = first.mlp.prepare(output.finish(hidden), batch)
        whole = hidden[:, 0].tolist()
        with first.mlp.exit(batch) as output:
            hidden = output.reduce_output(numbers / 2)  # of two ranks
        given = second.experts.prepare(output.finish(hidden), batch)
        return entered[:, 0].tolist(), whole, given[:, 0].tolist()

    assert World[Any](2).run(program) == [
        ([-1.0, 0.0], [1.0] * 4, [1.0, 2.0]),
        ([1.0, 2.0], [1.0] * 4, [3.0, 4.0]),
    ]
    forget(package)


SHARDED = [
    topology(tp, dp=dp, cp=2, moe_dp=moe, dense=dense, all_to_all=a2a)
    for tp, dp, moe, dense, a2a in (
        *((2, 1, 1, 2, False), (2, 1, 2, 2, False), (2, 1, 1, 1, True), (4, 1, 1, 4, False)),
        *((4, 1, 2, 2, False), (4, 1, 1, 2, True), (4, 2, 1, 4, False), (4, 2, 2, 1, False)),
        *((4, 2, 4, 4, False), (4, 2, 1, 4, True), (8, 2, 1, 8, False), (8, 2, 2, 2, False)),
        *((8, 2, 4, 8, False),),
    )
]


def test_e104_e105_dp_cp_and_experts_in_any_combination() -> None:
    """13 of them, four of which the reference refuses: every value is the oracle's."""
    layers = (("attention", "mlp"), ("attention", "experts"))
    with subject(stack(*SHARDED, layers=layers, variants=("ordinary", CONTEXT_PARALLEL))) as runs:
        for number, spec in enumerate(SHARDED):
            rows = (9, 5)[: spec.attn_dp]
            cell = Cell(spec.name, CONTEXT_PARALLEL, "rs+rsv", "sum_len", rows, split="zigzag")
            outcome = runs.run(cell, schedule=number)
            assert outcome.failure is None, f"{cell}: {outcome.failure}"


def test_e106_token_order_twice_in_a_row() -> None:
    """The whole sequence in token order enters both; sums end on shards in between."""
    scans = tuple(replace(ATTENTION, name=name, order="token") for name in ("scan", "again"))
    layers = (("scan", "again", "mlp"), ("attention", "experts"))
    stages = (*scans, ATTENTION, MLP, EXPERTS)
    spec = topology(4, cp=2)
    with subject(stack(spec, layers=layers, stages=stages, variants=(CONTEXT_PARALLEL,))) as runs:
        for split, rows in product(("zigzag", "interleaved"), (9, 4)):
            cell = Cell(spec.name, CONTEXT_PARALLEL, "ar", "sum_len", (rows,), split=split)
            outcome = runs.run(cell)
            assert outcome.failure is None, f"{cell}: {outcome.failure}"


class _Forward:
    """Rank 0 of a stack whose group doubles what it sums."""

    def __init__(self, package: Any, size: int) -> None:
        self.log: list[str] = []
        topologies = {1: "tp1_dp1_cp1_dense1_moe1", 2: "tp2_dp1_cp1_dense2_moe1"}
        groups: Any = SingleGroups()
        if size == 2:
            groups = MappedGroups(0, {"tp": Doubler(self.log)})
        self.stack = package.load(topologies[size], groups, policy="ar")
        self.batch = self.stack.batch(rows_per_dp=[2], padding="unpadded", mode="prefill")
        self.stack.start(self.batch)
        self.hidden: Any = _filled(3)

    def run(self, index: int, name: str, output: Tensor) -> Any:
        """What one stage leaves for this output of compute; the log has the sums of its exit."""
        layer = self.stack.layer(index)
        boundary = getattr(layer.bind(**dict.fromkeys(type(layer).__slots__, _NORM)), name)
        boundary.prepare(self.hidden, self.batch)
        self.log.clear()
        if name == "attention":
            self.hidden = boundary.finish(output, self.batch)
            return self.hidden
        with boundary.exit(self.batch) as exit_:
            output = exit_.reduce_output(output)
        self.hidden = exit_.finish(output)
        return self.hidden


def _filled(value: float) -> Tensor:
    return torch.full((2, 64), value, dtype=torch.float64)


class _Norm:
    weight = torch.ones(64, dtype=torch.float64)


_NORM = _Norm()


@pytest.fixture(scope="module")
def package() -> Iterator[Any]:
    layers = (("mixer",), ("second",), ("mlp",), ("attention", "experts"), ("mixer",))
    stages = (MIXER, replace(MIXER, name="second"), ATTENTION, MLP, EXPERTS)
    sample = stack(topology(1), topology(2), layers=layers, stages=stages, variants=("ordinary",))
    files = emit(plan_stack(sample), Origin("sample.yaml", "boundaryc compile", "0" * 64)).files
    found = import_package(files, "sample")
    yield found
    forget(found)


ORDER = ((0, "mixer"), (1, "second"), (2, "mlp"), (3, "attention"), (3, "experts"), (4, "mixer"))


def test_x01_on_one_rank_an_output_comes_back_as_it_is(package: Any) -> None:
    """The very tensor, its update pending, nothing owed."""
    forward = _Forward(package, 1)
    for index, name in ORDER:
        output = _filled(1)
        assert forward.run(index, name, output) is output


def test_x04_x05_what_is_carried_and_what_is_summed_now(package: Any) -> None:
    """Mixers and FFNs before any stage leave their sums; the last stage ends its own."""
    forward = _Forward(package, 2)
    for index, name in ORDER[:-1]:
        assert isinstance(forward.run(index, name, _filled(1)), OwedOutput)
        assert forward.log == []
    last = forward.run(*ORDER[-1], _filled(1))
    assert last.eq(2).all()
    assert forward.log == ["sum"]


def _sum_of(boundary: Boundary) -> tuple[str, bool]:
    """How the sum of an output is done, and whether at the producer's exit."""
    ops = [op for op in boundary.path.ops if isinstance(op, AllReduce | ReduceScatter)]
    (sums,) = ops
    at = boundary.path.ops.index(sums)
    assert any(isinstance(op, HandOff) for op in boundary.path.ops)
    return type(sums).__name__, at < exit_length(boundary)


@pytest.mark.parametrize("variable", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_x07_x08_which_scatter_ends_a_sum(policy: str, variable: bool) -> None:
    """With dp 2: unequal sizes where rsv may, equal ones where rs may, else an all-reduce.

    The last FFN does so in its exit; the sum of another one goes on undone to the next stage.
    """
    spec = replace(topology(2, dp=2), variable_scatter=variable)
    (planned,) = plan_stack(stack(spec, layers=LAYER * 2, variants=("ordinary",))).topologies
    for column, table in zip(planned.columns, planned.tables[policy], strict=True):
        scatters = "rsv" in policy and variable
        scatters |= policy in ("rs", "rs+rsv") and "attn_dp" in column.even
        wanted = "ReduceScatter" if scatters else "AllReduce"
        for edge, boundary in table.items():
            if edge.producer == "mlp":
                assert _sum_of(boundary) == (wanted, edge.consumer == FINAL), (column, edge)


@pytest.mark.parametrize("payload", ["partial", "complete"])
@pytest.mark.parametrize("layers", [LAYER, SPARSE], ids=["dense", "sparse"])
def test_pp1_two_pipeline_stages_of_two_layers_have_eight_sums(layers: Any, payload: Any) -> None:
    """sgl-project/sglang#28619: tp 2, pp 2; cut or not, no sum is lost and none done again."""
    sample = replace(stack(topology(2), layers=layers * 4), pipeline=payload)
    with subject(sample) as runs:
        name = runs.subject.plan.topologies[0].spec.name
        for policy, cuts in product(("ar", "rs+rsv"), ((), (2,), (1, 3))):
            cell = Cell(name, "ordinary", policy, "sum_len", (3,), cuts=cuts)
            for trace in verified(runs, cell).traces:
                sums = [call.kind for call in trace if call.kind != "all_gather"]
                assert len(sums) == 8, (cell, kinds(trace))


def test_x17_the_ranks_of_the_experts_sum() -> None:
    """One sum over ep x moe_tp, whatever the split; within one replica under moe_dp."""
    sums = {
        topology(4, ep=2): ((0, 1, 2, 3),),
        topology(4, ep=4): ((0, 1, 2, 3),),
        topology(4, ep=1): ((0, 1, 2, 3),),
        topology(4, dp=2, moe_dp=2, ep=1): ((0, 1), (2, 3)),
        topology(8, dp=2, moe_dp=2, ep=2): ((0, 1, 2, 3), (4, 5, 6, 7)),
    }
    for spec, groups in sums.items():
        (planned,) = plan_stack(stack(spec, layers=SPARSE, variants=("ordinary",))).topologies
        owed = planned.mesh.mask("moe_output")
        for table in planned.tables["ar"]:
            ending = next(b for e, b in table.items() if e.producer == "experts")
            assert ending.start.owes == owed
        assert planned.mesh.size(owed) == len(groups[0])


TWICE = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: none}
operations:
  twice: {role: read, call: "tests.emit.operations:scaled_read", params: [scale, shift],
          facts: [row_wise]}
stages: {attention: {kind: attention, read: twice}, mlp: {kind: ffn, read: twice}}
layers: {count: 2, default: [attention, mlp]}
topologies: {tp1: {tp: 1}}
"""


def test_n01_two_dense_layers_in_generated_code() -> None:
    """Attention 3x, FFN 5x, norm 2x: value 5390x, residual 539x, and both where the stack ends."""
    package = import_package(compiled(TWICE)[1], "sample")
    stack_ = package.load("tp1", SingleGroups())
    batch = stack_.batch(rows_per_dp=[2], padding="unpadded", mode="prefill")
    scale, shift = (
        type("Constant", (), {"weight": torch.full((64,), value).double()}) for value in (2.0, 0.0)
    )
    bound = {f"{name}_scale": scale for name in ("attention", "mlp")}
    bound |= {f"{name}_shift": shift for name in ("attention", "mlp")}
    embedding = torch.arange(2 * 64, dtype=torch.float64).view(2, 64)
    stack_.start(batch)
    hidden: Any = embedding
    for index in range(2):
        layer = stack_.layer(index).bind(**bound)
        hidden = layer.attention.finish(layer.attention.prepare(hidden, batch) * 3, batch)
        x = layer.mlp.prepare(hidden, batch)
        with layer.mlp.exit(batch) as output:
            x = output.reduce_output(x * 5)
        hidden = output.finish(x)
    assert hidden.equal(embedding * 5390)
    assert batch.stream.residual.equal(embedding * 539)
    assert stack_.norm(hidden, batch, None).equal(embedding * 5929)
    forget(package)
