"""Stacks end to end, by public reports: TM, AX, MX, GR. Every rank is compared with the oracle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.language.model import Capture, Stage, Transform
from boundaryc.plan.judge import declarations
from boundaryc.plan.ops import AllReduce, GatherSum, ReduceScatter
from boundaryc.plan.provenance import rejections
from boundaryc.verify.cells import Cell
from boundaryc.verify.world import Call
from tests.plan.simulated import Stage as At
from tests.plan.simulated import kinds, numbers, subject, summed, verified
from tests.plan.stacks import ATTENTION, EXPERTS, MLP, stack, topology

MAMBA = Stage("mamba", "mixer", False, "scoped", "norm", "add")
SCAN = replace(MAMBA, name="scan")
STAGES = (ATTENTION, MLP, EXPERTS, MAMBA, SCAN)
POLICIES = ("ar", "rs", "rsv", "rs+rsv")
ORDINARY = ("ordinary",)


def sums(trace: list[Call]) -> int:
    """How many sums a rank took part in."""
    return sum(call.kind in ("all_reduce", "reduce_scatter") for call in trace)


def test_tm1_a_terminal_sum_is_somebodys() -> None:
    """NVIDIA/TensorRT-LLM#6850: 6 sums for 3 layers, the last one included, in generated code."""
    spec = topology(2)
    with subject(stack(spec, layers=(("attention", "mlp"),) * 3, variants=ORDINARY)) as runs:
        for policy in POLICIES:
            for rows in ((5,), (1,)):
                found = verified(runs, Cell(spec.name, "ordinary", policy, "sum_len", rows))
                assert [sums(trace) for trace in found.traces] == [6, 6]
                assert not found.decided[0][-1].fuse


def test_tm3_a_draft_takes_the_rows_that_its_target_leaves() -> None:
    """vllm-project/vllm#48036: whole rows, gathered once at the end; three draft steps after it."""
    spec, alone = topology(8), topology(1)
    layers = (("attention", "experts"),)
    embedded = torch.randn(11, 64, generator=torch.Generator().manual_seed(5)).double()
    parts = {spec.name: 8, alone.name: 1}
    runs: dict[str, Any] = {}

    def compute_on(name: str) -> Any:
        def compute(at: At, x: Tensor) -> Tensor:
            share = (at.rank + 1) / (parts[name] * (parts[name] + 1) / 2)
            y = torch.tanh(x) * share
            return y if at.exit is None else summed(at, y)

        return compute

    with (
        subject(replace(stack(spec, alone, layers=layers * 2), name="target")) as target,
        subject(replace(stack(spec, alone, layers=layers), name="draft")) as draft,
    ):
        for name in parts:
            outputs: list[Tensor] = [embedded] * parts[name]
            census = []
            for prover in (target, draft, draft, draft):
                given = outputs

                def hidden(rank: int, batch: Any, given: list[Tensor] = given) -> Tensor:
                    padded = torch.zeros(batch.group_rows, 64, dtype=torch.float64)
                    padded[:11] = given[rank][:11]
                    return padded

                parallel = name == spec.name
                done, traces = numbers(
                    prover,
                    name,
                    compute_on(name),
                    hidden=hidden,
                    rows_per_dp=[11],
                    sequence_parallel=parallel,
                )
                outputs = [one.output for one in done]
                census.append(kinds(traces[0]))
                assert all(kinds(trace) == census[-1] for trace in traces)
            runs[name] = outputs, census
    outputs, census = runs[spec.name]
    for output in outputs:
        torch.testing.assert_close(output[:11], runs[alone.name][0][0][:11], rtol=0, atol=1e-12)
    for trace, depth in zip(census, (2, 1, 1, 1), strict=True):
        # one for every read, which runs on a rank's own rows; the last is the final norm's
        assert trace.count("all_gather(tp)") == 2 * depth + 1
        assert [call.startswith("all_gather") for call in trace[-2:]] == [False, True]


@pytest.mark.parametrize("policy", POLICIES)
def test_ax1_a_capture_is_no_partial_and_costs_no_sum(policy: str) -> None:
    """sgl-project/sglang#28343: at the input of layer 2 all ranks keep the summed residual."""
    spec = topology(2)
    plain = stack(spec, layers=(("attention", "mlp"),) * 3, variants=ORDINARY)
    kept = replace(plain, captures=(Capture("aux", (2,), "before", "producer"),))
    cell = Cell(spec.name, "ordinary", policy, "sum_len", (5,))
    with subject(plain) as runs:
        before = verified(runs, cell)
    with subject(kept) as runs:
        found = verified(runs, cell)
    captured = [one.batch.captured("aux") for one in found.programs]
    assert [len(one) for one in captured] == [1, 1]
    assert torch.equal(captured[0][0], captured[1][0])
    assert [sums(trace) for trace in found.traces] == [sums(trace) for trace in before.traces]
    assert sums(found.traces[0]) == 6


def test_ax2_a_capture_is_the_updated_residual() -> None:
    """sgl-project/sglang#39286: behind a norm of the output, not the contribution before it."""
    spec = topology(1)
    normed = Transform("norm", None, False)
    stages = (replace(ATTENTION, transform=normed), replace(MLP, transform=normed))
    sample = stack(spec, layers=(("attention", "mlp"),) * 3, stages=stages, variants=ORDINARY)
    sample = replace(sample, captures=(Capture("aux", (1, 2), "after", "producer"),))
    with subject(sample) as runs:
        found = verified(runs, Cell(spec.name, "ordinary", "ar", "sum_len", (4,)))
        scene = runs.scene(Cell(spec.name, "ordinary", "ar", "sum_len", (4,)))
    captured = found.programs[0].batch.captured("aux")
    assert len(captured) == 2
    inputs = list(scene.reference.residuals.values())
    assert not torch.equal(captured[0], captured[1])
    for value in captured:
        assert any(torch.allclose(value, right, rtol=0, atol=1e-12) for right in inputs)


@pytest.mark.parametrize("variant", ["ordinary", "sequence_parallel"])
def test_ax5_after_a_layer_is_before_the_next(variant: str) -> None:
    """sgl-project/sglang#25454: both spellings keep the same tensors, bit for bit."""
    spec = topology(4, dp=2)
    five = stack(spec, layers=(("attention", "mlp"),) * 5)
    kept = {}
    for capture in (
        Capture("aux", (1, 3), "after", "producer"),
        Capture("aux", (2, 4), "before", "producer"),
    ):
        with subject(replace(five, captures=(capture,))) as runs:
            found = verified(runs, Cell(spec.name, variant, "rsv", "sum_len", (3, 2)))
        kept[capture.where] = [one.batch.captured("aux") for one in found.programs]
    for after, before in zip(kept["after"], kept["before"], strict=True):
        assert len(after) == len(before) == 2
        assert all(map(torch.equal, after, before))


@pytest.mark.parametrize(
    "order", [("mamba", "attention", "mlp", "experts"), ("experts", "mlp", "attention", "mamba")]
)
def test_mx1_four_single_stages_are_four_sums(order: tuple[str, ...]) -> None:
    """NVIDIA/TensorRT-LLM#12410: none at the first input, the last one at the end."""
    spec = topology(2)
    layers = tuple((name,) for name in order)
    with subject(stack(spec, layers=layers, stages=STAGES, variants=ORDINARY)) as runs:
        for policy in POLICIES:
            found = verified(runs, Cell(spec.name, "ordinary", policy, "sum_len", (5,)))
            assert [sums(trace) for trace in found.traces] == [4, 4]


def test_mx3_mixers_sum_over_their_own_ranks() -> None:
    """sgl-project/sglang#24955: attn_tp for mixers, all ranks for experts; mixers do not defer."""
    spec = topology(4, dp=2)
    layers = (("mamba", "scan", "experts"), ("attention", "mlp"))
    flags: dict[str, bool] = {}

    def compute(at: At, x: Tensor) -> Tensor:
        if at.exit is None:
            return torch.full_like(x, 0.5)
        flags[at.name] = at.exit.skips_reduction
        size = 2 if at.name in ("mamba", "scan") else 4
        return summed(at, torch.full_like(x, 1.0 / size))

    with subject(stack(spec, layers=layers, stages=STAGES, variants=ORDINARY)) as runs:
        for policy in POLICIES:
            found = verified(runs, Cell(spec.name, "ordinary", policy, "sum_len", (3, 2)))
            assert all(kinds(trace) == kinds(found.traces[0]) for trace in found.traces)
            done, traces = numbers(runs, spec.name, compute, policy=policy, rows_per_dp=[3, 2])
            assert all((one.residual == 5).all() for one in done)
            assert kinds(traces[0])[0] == "all_reduce(attn_tp)"
            assert (flags["mamba"], flags["scan"]) == (False, True)


@pytest.mark.parametrize("following", ["scan", "mlp", ""])
@pytest.mark.parametrize("first", ["mamba", "attention"])
def test_mx4_every_partial_has_a_completer(first: str, following: str) -> None:
    """sgl-project/sglang#14811: before a mixer, an FFN, and at the end; without one: refused."""
    spec = topology(2)
    layers = ((first,), *(((following,),) if following else ()))
    with subject(stack(spec, layers=layers, stages=STAGES, variants=ORDINARY)) as runs:
        found = verified(runs, Cell(spec.name, "ordinary", "ar", "sum_len", (3,)))
        plan = runs.subject.topology(spec.name)
    assert [sums(trace) for trace in found.traces] == [len(layers)] * 2
    boundary = next(one for one in plan.tables["ar"][0].values() if one.edge.producer == first)
    start, goal = declarations(boundary)
    whole = boundary.path.ops
    without = tuple(op for op in whole if not isinstance(op, (AllReduce, ReduceScatter, GatherSum)))
    assert len(without) == len(whole) - 1
    every = plan.mesh.every
    assert not any(rejections(whole, atoms=1, start=start, goal=goal, even=every))
    assert any(rejections(without, atoms=1, start=start, goal=goal, even=every))


@pytest.mark.parametrize("policy", POLICIES)
def test_gr3_nothing_is_fused_where_nothing_is_owed(policy: str) -> None:
    """sgl-project/sglang#27835: attention DP with all-to-all experts, batches of 1 to 8 rows."""
    spec = topology(8, dp=8, ep=8, all_to_all=True)
    sample = stack(spec, layers=(("attention", "experts"),) * 2, variants=ORDINARY)
    with subject(sample) as runs:
        for rows in range(1, 9):
            cell = Cell(spec.name, "ordinary", policy, "max_len", (rows,) * 8)
            found = verified(runs, cell)
            assert [len(trace) for trace in found.traces] == [0] * 8
            for decided in found.decided:
                assert Counter((one.fuse, one.scatter) for one in decided) == {(False, False): 2}
