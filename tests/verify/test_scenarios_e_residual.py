"""What an update, a read and a transform do to the residual, by public reports: RM, NM, SC, R."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from boundaryc.language import loads
from boundaryc.language.model import Stack, Transform
from boundaryc.plan import ops
from boundaryc.plan.provenance import DeclaredGoal, DeclaredStart, verify_plan
from boundaryc.plan.result import StackPlan
from boundaryc.runtime import BoundaryError, StreamState
from boundaryc.verify.cells import Cell
from boundaryc.verify.world import World
from tests.plan.simulated import Stage, kinds, numbers, subject, summed, verified
from tests.plan.stacks import ATTENTION, EXPERTS, MLP, stack, topology
from tests.verify.subjects import compiled, prover

POLICIES = ("ar", "rs", "rsv", "rs+rsv")
OPERATIONS = """\
operations:
  gated: {role: update, call: "tests.emit.operations:gated_add", params: [gate],
          facts: [row_wise, outlives_producer]}
"""
HEAD = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
layers: {count: 3, default: [attention, mlp]}
"""


def declared(stages: str, more: str = "", topologies: str = "tp2: {tp: 2}") -> str:
    """A stack of attention and mlp."""
    return f"{HEAD}stages:\n{stages}topologies: {{{topologies}}}\n{more}"


def function(text: str, name: str) -> str:
    """The body of a generated function."""
    return text.split(f"def {name}(")[1].split("\n\n\n")[0].rpartition('"""')[2]


def joins(plan: StackPlan, producer: str) -> bool:
    """Whether some plan adds the residual of an edge to a partial."""
    return any(
        isinstance(op, ops.Join)
        for topology_ in plan.topologies
        for tables in topology_.tables.values()
        for table in tables
        for edge, boundary in table.items()
        if edge.producer == producer
        for op in boundary.path.ops
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("producer", ["attention", "experts"])
def test_rm1_a_residual_that_joins_a_sum_is_in_it_once(producer: str, policy: str) -> None:
    """mirage-project/mirage#722: 1 + 2 + r with a residual r of 100, not 1 + 2 + 2r."""
    spec = topology(4, dp=2) if producer == "attention" else topology(2)
    stages = tuple(replace(one, joins_sum=True) for one in (ATTENTION, EXPERTS))
    sample = stack(spec, layers=(("attention", "experts"),), stages=stages)
    widths = {"attention": spec.attn_tp, "experts": spec.tp}

    def compute(stage: Stage, x: Tensor) -> Tensor:
        share = 3.0 * (stage.rank % 2 + 1) / 3 if stage.name == producer else 0.0
        y = torch.full_like(x, share * 2 / widths[stage.name])
        return y if stage.exit is None else summed(stage, y)

    def hidden(rank: int, batch: object) -> Tensor:
        return torch.full((4, 64), 100.0, dtype=torch.float64)

    with subject(sample) as runs:
        assert joins(runs.subject.plan, producer)
        for parallel in (False, True):
            done, _ = numbers(
                runs,
                spec.name,
                compute,
                policy=policy,
                hidden=hidden,
                rows_per_dp=[4] * spec.attn_dp,
                sequence_parallel=parallel,
            )
            assert [one.residual.unique().tolist() for one in done] == [[103.0]] * spec.tp


def test_rm5_a_read_before_the_gather_sees_no_partial() -> None:
    """sgl-project/sglang#8631: sum, add, norm, gather; what is norm of a mix is refused."""
    spec = topology(4, dp=2)
    reads_locally = replace(MLP, before_gather=frozenset({"attn_dp"}))
    layers = (("attention", "mlp"),) * 2
    local = stack(spec, layers=layers, stages=(ATTENTION, reads_locally), variants=("ordinary",))
    for sample, census in (
        (local, ["all_reduce(attn_tp)", "all_gather(attn_dp)"]),
        (stack(spec, layers=layers, variants=("ordinary",)), None),
    ):
        with subject(sample) as runs:
            for policy in POLICIES:
                cell = Cell(spec.name, "ordinary", policy, "sum_len", (3, 2))
                trace = kinds(verified(runs, cell).traces[0])
                assert census is None or trace[:2] == census

    # rows cut over atom 0 (DP), the sum owed over atom 1 (TP)
    start = DeclaredStart("contribution", 0b01, 0b10, 0b01, joins_sum=True)
    goal = DeclaredGoal(0, 0b01, hands_off=True, may_defer=True, read_local=0b01)
    gather = ops.AllGather(0b01, variable=True)
    right = (ops.HandOff(), ops.AllReduce(0b10), ops.Update(), ops.Read(), gather)
    mixed = (ops.HandOff(), ops.Join(), ops.Read(), ops.AllReduce(0b10), gather)
    assert not verify_plan(right, atoms=2, start=start, goal=goal, even=0)
    assert verify_plan(mixed, atoms=2, start=start, goal=goal, even=0)


def test_rm5_alone_in_its_group_a_rank_norms_and_then_gathers() -> None:
    """With attn_tp 1 nothing is owed before the gather."""
    spec = topology(2, dp=2)
    local = replace(MLP, before_gather=frozenset({"attn_dp"}))
    sample = stack(
        spec, layers=(("attention", "mlp"),), stages=(ATTENTION, local), variants=("ordinary",)
    )
    with subject(sample) as runs:
        found = verified(runs, Cell(spec.name, "ordinary", "ar", "sum_len", (3, 2)))
    assert kinds(found.traces[0])[0] == "all_gather(tp)"


def test_r06_a_sum_over_fewer_ranks_than_it_is_owed_is_refused() -> None:
    """A contribution that owes the sum over all ranks is not complete after part of it."""
    start = DeclaredStart("contribution", 0, 0b11, 0)
    goal = DeclaredGoal(0, 0, hands_off=True, may_defer=True)
    for axes, right in ((0b11, True), (0b10, False), (0b01, False)):
        plan = (ops.HandOff(), ops.AllReduce(axes), ops.Update(), ops.Read())
        assert (not verify_plan(plan, atoms=2, start=start, goal=goal, even=0b11)) is right


def post_normed() -> Stack:
    """Norm of the output, plain add, norm of the input: the sandwich in the language's words."""
    spec = topology(2)
    normed = Transform("norm", None, False)
    stages = (replace(ATTENTION, transform=normed), replace(MLP, transform=normed))
    return stack(spec, layers=(("attention", "mlp"),) * 3, stages=stages, variants=("ordinary",))


def test_nm6_the_norm_of_an_output_stands_between_sum_and_add() -> None:
    """vllm-project/vllm#53273: the sum, then post-norm, add and pre-norm as one call."""
    text = declared(
        "  attention: {kind: attention, transform: norm}\n  mlp: {kind: ffn, transform: norm}\n"
    )
    _, files = compiled(text)
    lines = function(files["tp2/ordinary.py"], "attention_to_mlp")
    steps = ("all_reduce(", "rms_add_rms_norm(", "output_norm.weight", "norm.weight")
    places = [lines.index(step) for step in steps]
    assert places == sorted(places)
    with subject(post_normed()) as runs:
        for policy in POLICIES:
            verified(runs, Cell("tp2_dp1_cp1_dense2_moe1", "ordinary", policy, "sum_len", (5,)))


@pytest.mark.parametrize(("post", "eps"), [(True, "1.0e-5"), (False, "1.0e-6")])
def test_nm3_only_declared_norms_run_with_the_declared_eps(post: bool, eps: str) -> None:
    """NVIDIA/TensorRT-LLM#7509: with and without norms of outputs; eps is the file's."""
    word = ", transform: norm" if post else ""
    text = declared(f"  attention: {{kind: attention{word}}}\n  mlp: {{kind: ffn{word}}}\n")
    text = text.replace("eps: 1.0e-6", f"eps: {eps}")
    _, files = compiled(text)
    module, rowwise = files["tp2/ordinary.py"], files["rowwise.py"]
    assert ("output_norm" in module) is post
    assert ("= rms_add_rms_norm(" in function(module, "attention_to_mlp")) is post
    assert f"{float(eps)!r}" in rowwise + files["kernels.py"]
    runs = prover(text)
    for policy in POLICIES:
        assert runs.run(Cell("tp2", "ordinary", policy, "sum_len", (5,))).failure is None


def test_sc1_a_contribution_is_scaled_and_a_written_stage_adds_nothing() -> None:
    """ndif-team/nnterp#54: the residual is the sum of its parts, each times its factor."""
    text = declared(
        "  attention: {kind: attention, update: {scaled_add: 0.22}}\n  mlp: {kind: ffn}\n"
    ).replace("count: 3", "count: 1")
    runs = prover(text)
    package = runs.subject.package

    def forward(groups: object) -> list[float]:
        stack_ = package.load("tp2", groups)
        batch = stack_.batch(rows_per_dp=[2], padding="sum_len", mode="prefill")
        unit = type("Unit", (), {"weight": torch.ones(64, dtype=torch.float64)})
        layer = stack_.layer(0).bind(attention=unit, mlp=unit)
        stack_.start(batch)
        entered = torch.full((2, 64), 3.0, dtype=torch.float64)
        layer.attention.prepare(entered, batch)
        hidden = layer.attention.finish(torch.full_like(entered, 5.0), batch)
        parts = [stack_.snapshot(hidden, batch)]
        complete = stack_.complete_output(hidden, batch)
        parts.append(complete.clone())
        layer.mlp.prepare(complete, batch)
        # a stage that computes the whole stream by itself
        hidden = stack_.written(torch.full_like(entered, 40.0), batch)
        assert batch.stream.state is StreamState.WRITTEN
        parts.append(stack_.take_output(hidden, batch))
        return [float(part[0, 0]) for part in parts]

    world: World[list[float]] = World(2)
    for shown, output, left in world.run(forward):
        assert (shown, output, left) == (3 + 0.22 * 10, 10.0, 40.0)


def test_sc3_both_updates_are_scaled() -> None:
    """OpenNMT/CTranslate2#1882: with 0.22 on both; what the config says is linted elsewhere."""
    scaled = ", update: {scaled_add: 0.22}"
    runs = prover(
        declared(
            f"  attention: {{kind: attention{scaled}}}\n  mlp: {{kind: ffn{scaled}}}\n",
            topologies="tp2: {tp: 2}, tp4_dp2: {tp: 4, attn_dp: 2}",
        )
    )
    for policy in POLICIES:
        for name, rows in (("tp2", (5,)), ("tp4_dp2", (3, 0)), ("tp4_dp2", (2, 2))):
            assert runs.run(Cell(name, "ordinary", policy, "sum_len", rows)).failure is None


def test_r33_the_final_norm_applies_the_update_that_is_pending() -> None:
    """Not refused, as the compiler knows it: an update that is no addition is run, not replaced."""
    stages = "  attention: {kind: attention}\n  mlp: {kind: ffn, update: gated}\n"
    text = declared(stages, OPERATIONS, "tp2: {tp: 2}, tp4_dp2: {tp: 4, attn_dp: 2}")
    assert loads(text).stage("mlp").update == "gated"
    runs = prover(text)
    for policy in POLICIES:
        for name, rows in (("tp2", (5,)), ("tp4_dp2", (3, 0))):
            assert runs.run(Cell(name, "ordinary", policy, "sum_len", rows)).failure is None


def test_r28_what_would_add_it_plainly_is_refused_in_generated_code() -> None:
    """Fold and snapshot of that update, on every rank, before anything is sent."""
    stages = "  attention: {kind: attention, update: gated}\n  mlp: {kind: ffn}\n"
    runs = prover(declared(stages, OPERATIONS))

    def forward(groups: object) -> int:
        stack_ = runs.subject.package.load("tp2", groups)
        batch = stack_.batch(rows_per_dp=[2], padding="sum_len", mode="prefill")
        unit = type("Unit", (), {"weight": torch.ones(64, dtype=torch.float64)})
        layer = stack_.layer(0).bind(attention=unit, mlp=unit, attention_gate=unit)
        stack_.start(batch)
        layer.attention.prepare(torch.ones(2, 64, dtype=torch.float64), batch)
        hidden = layer.attention.finish(torch.ones(2, 64, dtype=torch.float64), batch)
        refused = 0
        for use in (stack_.fold, stack_.snapshot):
            with pytest.raises(BoundaryError, match="requires a plain residual update"):
                use(hidden, batch)
            refused += 1
        return refused

    world: World[int] = World(2)
    assert world.run(forward) == [2, 2]
    assert world.traces() == [[], []]
