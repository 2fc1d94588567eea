"""Sums done once, over the right ranks, by whoever the decision names: DR, MR, WG, SE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.language.model import Additive, Transform
from boundaryc.language.model import Stage as StageSpec
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.judge import declarations
from boundaryc.plan.ops import AllReduce
from boundaryc.plan.provenance import rejections
from boundaryc.plan.state import EdgeFacts, Phase, State, Widths
from boundaryc.runtime import BoundaryError
from boundaryc.runtime.handshake import CHECK_VARIABLE
from boundaryc.topology.contracts import VARIANTS, contracts, regime
from boundaryc.verify.cells import Cell
from boundaryc.verify.world import World, WorldError
from tests.plan.simulated import Stage, kinds, numbers, subject, summed, verified
from tests.plan.stacks import ATTENTION, EXPERTS, MLP, TOPOLOGIES, stack, topology

SPARSE = (("attention", "experts"),)
WITH_TAIL = StageSpec("experts", "ffn", True, "local_tail", "norm", "add")
VARIABLE = ("rsv", "rs+rsv")


def experts_sum(partials: Callable[[int], float]) -> Callable[[Stage, Tensor], Tensor]:
    """Attention adds nothing; experts leave one number per rank, summed by whoever must."""

    def compute(stage: Stage, x: Tensor) -> Tensor:
        if stage.name == "attention":
            return torch.zeros_like(x)
        return summed(stage, torch.full_like(x, partials(stage.rank)))

    return compute


def test_dr1_one_scatter_and_nothing_else() -> None:
    """sgl-project/sglang#23731: the flag is true and the boundary's reduce-scatter is the sum."""
    spec = topology(2, dp=2, ep=2)
    with subject(stack(spec, layers=SPARSE * 3, variants=("ordinary",))) as prover:
        found = verified(prover, Cell(spec.name, "ordinary", "rsv", "sum_len", (3, 2)))

    for trace, decided in zip(found.traces, found.decided, strict=True):
        assert not any(call.kind == "all_reduce" for call in trace)
        scatters = [call for call in trace if call.kind == "reduce_scatter"]
        assert [(call.label, call.sizes) for call in scatters] == [("tp", (3, 2))] * 3
        assert [(one.fuse, one.scatter) for one in decided] == [(False, True)] * 3


@pytest.mark.parametrize("policy", VARIABLE)
def test_dr3_flags_are_what_happens(policy: str) -> None:
    """sgl-project/sglang#24785: padding and topology cannot disagree, one decision has both."""
    spec = topology(8, dp=8, ep=8)
    layers = (("attention", "mlp"), *SPARSE * 2)
    steps = (((7, 0, 2, 9, 1, 1, 3, 4), "sum_len"), ((1,) * 8, "max_len"))
    with subject(stack(spec, layers=layers, variants=("ordinary",))) as prover:
        for rows, padding in steps:
            found = verified(prover, Cell(spec.name, "ordinary", policy, padding, rows))
            for trace, decided in zip(found.traces, found.decided, strict=True):
                assert [one.stage for one in decided] == ["mlp", "experts", "experts"]
                for one in decided:
                    after = trace[one.calls]
                    assert (after.kind == "reduce_scatter") is one.scatter
                    assert (one.fuse, one.scatter) == (False, True)


def test_dr5_a_replicated_ffn_owes_nothing() -> None:
    """lightseekorg/tokenspeed#80: declared complete it sends nothing; declared owing it is x2."""
    whole, split = topology(2, dense=1), topology(2)
    layers = (("attention", "mlp"),) * 2

    def compute(stage: Stage, x: Tensor) -> Tensor:
        if stage.name == "attention":
            return torch.zeros_like(x)
        return summed(stage, torch.full_like(x, 5.0))

    with subject(stack(whole, split, layers=layers, variants=("ordinary",))) as prover:
        cell = Cell(whole.name, "ordinary", "auto", "sum_len", (4,))
        assert kinds(verified(prover, cell).traces[0]) == ["all_reduce(tp)"] * 2
        right, _ = numbers(prover, whole.name, compute, rows_per_dp=[4])
        wrong, _ = numbers(prover, split.name, compute, rows_per_dp=[4])

    plan = prover.subject.topology(whole.name)
    for boundary in plan.tables["ar"][0].values():
        assert boundary.edge.producer != "mlp" or boundary.start.owes == 0
    assert all((one.residual == 10).all() for one in right)
    assert all((one.residual == 20).all() for one in wrong)


@pytest.mark.parametrize("policy", ["ar", "rsv"])
def test_dr5_the_check_sees_a_sum_that_nobody_owes(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """All ranks hold the same value before the sum: refused, where the shards of another pass."""
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    spec = topology(2)

    def shard(stage: Stage, x: Tensor) -> Tensor:
        own = torch.full_like(x, float(stage.rank))
        return own if stage.name == "attention" else summed(stage, own)

    def replicated(stage: Stage, x: Tensor) -> Tensor:
        return summed(stage, torch.full_like(x, 5.0)) if stage.name == "mlp" else shard(stage, x)

    with subject(stack(spec, layers=(("attention", "mlp"),), variants=("ordinary",))) as prover:
        right, _ = numbers(prover, spec.name, shard, policy=policy, rows_per_dp=[4])
        with pytest.raises(BoundaryError, match="all 2 ranks of `tp` hold the same value"):
            numbers(prover, spec.name, replicated, policy=policy, rows_per_dp=[4])
    assert all((one.residual == 2).all() for one in right)


@pytest.mark.parametrize("padding", ["max_len", "sum_len"])
@pytest.mark.parametrize("rows", [(5, 0), (0, 5), (4, 3)])
def test_the_check_leaves_pads_alone(
    monkeypatch: pytest.MonkeyPatch, rows: tuple[int, ...], padding: Any
) -> None:
    """A group without tokens sums nothing but pads: of a divided bias they are equal and not 0."""
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    spec = topology(4, dp=2)
    attention = replace(ATTENTION, additive=(Additive("bias", "divided"),))
    bias = {"attention": {"bias": torch.full((64,), 6.0, dtype=torch.float64)}}

    def compute(stage: Stage, x: Tensor) -> Tensor:
        own = torch.zeros_like(x)
        own[: stage.batch.group_real_rows] = stage.rank + 1.0
        return own if stage.name == "attention" else summed(stage, own)

    sample = stack(spec, layers=(("attention", "mlp"),), stages=(attention, MLP))
    with subject(sample) as prover:
        for policy in ("ar", "rsv"):
            numbers(
                prover,
                spec.name,
                compute,
                policy=policy,
                rows_per_dp=rows,
                padding=padding,
                terms=bias,
            )


@pytest.mark.parametrize("word", ["rank0", "divided", "after_sum"])
@pytest.mark.parametrize("stage", [ATTENTION, MLP], ids=["attention", "mlp"])
def test_dr5_the_check_sees_what_ranks_computed_below_a_term(
    monkeypatch: pytest.MonkeyPatch, stage: Any, word: Any
) -> None:
    """Partials of 0 with a term are as right as any, and equal ones are as wrong with it."""
    if stage is ATTENTION and word == "after_sum":
        return  # it is not for a partial stage
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    whole, cut = topology(2), topology(4, dp=2)
    with_term = replace(stage, additive=(Additive("bias", word),))
    halved = replace(with_term, transform=Transform("scale", 0.5, True))
    terms = {stage.name: {"bias": torch.full((64,), 6.0, dtype=torch.float64)}}

    for own in (with_term, halved):
        stages = tuple(own if one is stage else one for one in (ATTENTION, MLP))
        sample = stack(whole, cut, layers=(("attention", "mlp"),) * 2, stages=stages)
        with subject(sample) as prover:
            for spec in (whole, cut):
                run = partial(_with_equal_partials, prover, spec, terms)
                expected = (6.0 if own is with_term else 3.0) * 2
                for policy in ("ar", "rs", "rsv"):
                    done = run(0.0, policy)
                    assert all((one.residual == expected).all() for one in done)
                if spec is cut and stage is ATTENTION:
                    continue  # its sum places rows of several groups
                with pytest.raises(BoundaryError, match="hold the same value before its sum"):
                    run(5.0, "ar")


def _with_equal_partials(
    prover: Any, spec: Any, terms: Any, value: float, policy: str
) -> list[Any]:
    """A forward in which every rank computes ``value`` where there are ``terms``, else 0."""

    def compute(stage: Stage, x: Tensor) -> Tensor:
        own = torch.full_like(x, value if stage.name in terms else 0.0)
        if stage.name == "attention":
            return own
        return stage.exit.reduce_output(own, **terms.get(stage.name, {}))  # type: ignore[no-any-return]

    rows = [4] * spec.attn_dp
    return numbers(prover, spec.name, compute, policy=policy, rows_per_dp=rows, terms=terms)[0]


def test_the_check_leaves_equal_pads_beside_zeros_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partials of 0, and what happens to be in pads, the same on all ranks of a sum."""
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    spec = topology(4, dp=2, dense=2)

    def compute(stage: Stage, x: Tensor) -> Tensor:
        own = torch.zeros_like(x)
        own[stage.batch.group_real_rows :] = 7.0
        return own if stage.name == "attention" else summed(stage, own)

    sample = stack(spec, layers=(("attention", "mlp"),) * 2, variants=("ordinary",))
    with subject(sample) as prover:
        done, _ = numbers(prover, spec.name, compute, rows_per_dp=[4, 3], padding="max_len")
    assert [one.residual.shape[0] for one in done] == [4] * 4


def test_dr7_either_owner_sums_once() -> None:
    """vllm-project/vllm-gaudi#1451: compute or the boundary, one all-reduce; both is refused."""
    spec = topology(4)
    owners = {}
    for name, stage in (("boundary", EXPERTS), ("compute", WITH_TAIL)):
        with subject(
            stack(spec, layers=SPARSE * 2, variants=("ordinary",), stages=(ATTENTION, stage))
        ) as prover:
            found = verified(prover, Cell(spec.name, "ordinary", "ar", "sum_len", (5,)))
        assert kinds(found.traces[0]) == ["all_reduce(tp)"] * 4
        owners[name] = found.decided[0][0].fuse
    assert owners == {"boundary": True, "compute": False}

    mesh, table = prover.subject.topology(spec.name).mesh, None
    table = prover.subject.topology(spec.name).tables["ar"][0]
    boundary = next(one for one in table.values() if one.edge.producer == "experts")
    start, goal = declarations(boundary)
    ops = boundary.path.ops
    at = next(index for index, op in enumerate(ops) if isinstance(op, AllReduce))
    for damaged in ((*ops[:at], ops[at], *ops[at:]), (*ops[:at], *ops[at + 1 :])):
        assert any(
            rejections(damaged, atoms=len(mesh.atoms), start=start, goal=goal, even=mesh.every)
        )


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_mr1_every_exit_scatters_once(layers: int) -> None:
    """sgl-project/sglang#36879, with a plain add: dense or sparse, one variable reduce-scatter."""
    spec = topology(4, dp=4, ep=4)
    chosen = (("attention", "mlp"), *SPARSE * 2)[:layers]
    with subject(stack(spec, layers=chosen, variants=("ordinary",))) as prover:
        found = verified(prover, Cell(spec.name, "ordinary", "rsv", "sum_len", (2, 4, 1, 3)))

    for trace in found.traces:
        assert [c.sizes for c in trace if c.kind == "reduce_scatter"] == [(2, 4, 1, 3)] * layers
        assert not any(call.kind == "all_reduce" for call in trace)


def test_mr3_a_draft_owns_its_sum_by_topology() -> None:
    """NVIDIA/TensorRT-LLM#16617: one sum at the exit of a one-layer stack, whoever attends."""
    alone, parallel = topology(4, dp=1, ep=4), topology(4, dp=4, ep=4)
    with subject(stack(alone, parallel, layers=SPARSE, variants=("ordinary",))) as prover:
        found = verified(prover, Cell(alone.name, "ordinary", "auto", "sum_len", (5,)))
        other = verified(prover, Cell(parallel.name, "ordinary", "auto", "sum_len", (5, 0, 2, 1)))

    for trace, decided in zip(found.traces, found.decided, strict=True):
        assert kinds(trace, since=decided[0].calls) == ["all_reduce(tp)"]
    for trace, decided in zip(other.traces, other.decided, strict=True):
        assert len(kinds(trace, since=decided[0].calls)) == 1


def test_wg1_one_group_covers_both_splits_of_the_experts() -> None:
    """sgl-project/sglang#32963: 1 + 2 + 3 + 4 over ep x moe_tp, whether deferred or not."""
    spec = topology(4, ep=2)
    with subject(stack(spec, layers=SPARSE * 2, variants=("ordinary",))) as prover:
        done, traces = numbers(prover, spec.name, experts_sum(lambda r: r + 1.0), rows_per_dp=[3])

    assert all((one.residual == 20).all() for one in done)
    assert {call.label for trace in traces for call in trace} == {"tp"}


@pytest.mark.parametrize("layers", [SPARSE * 3, (("attention", "mlp"),) * 3])
def test_wg3_one_size_for_every_rank_of_the_group(layers: tuple[tuple[str, ...], ...]) -> None:
    """sgl-project/sglang#32663: eight sizes that add up to nine, never four."""
    spec = topology(8, dp=4, ep=4)
    with subject(stack(spec, layers=layers, variants=("ordinary",))) as prover:
        found = verified(prover, Cell(spec.name, "ordinary", "rsv", "unpadded", (3, 0, 5, 1)))

    for call in (call for trace in found.traces for call in trace):
        assert call.sizes is None or len(call.sizes) == len(call.group)
        if call.kind == "reduce_scatter" and call.label == "tp":
            assert sum(call.sizes or ()) == 9

    def four_sizes(groups: object) -> None:
        group = groups.collective(mesh, mesh.names)  # type: ignore[attr-defined]
        group.reduce_scatter(torch.zeros(9, 1), (3, 0, 5, 1))

    mesh = found.programs[0].stack.mesh
    with pytest.raises(WorldError, match="4 sizes for 8 members"):
        World[None](8).run(four_sizes)


def tailed(first: Callable[[Stage], bool]) -> Callable[[Stage, Tensor], Tensor]:
    """Routed partials 1, 2, 3, 4 and a replicated tail of 3, added once as the flags demand."""

    def compute(stage: Stage, x: Tensor) -> Tensor:
        if stage.name == "attention":
            return torch.zeros_like(x)
        routed = torch.full_like(x, stage.rank + 1.0)
        if stage.exit.skips_reduction:
            return routed + 3 if first(stage) else routed
        return summed(stage, routed) + 3

    return compute


@pytest.mark.parametrize("policy", ["ar", "rsv"])
def test_se1_a_replicated_tail_counts_once(policy: str) -> None:
    """sgl-project/sglang#31475: 10 + 3, not 10 + 4 x 3."""
    spec = topology(4, dp=4, ep=4)
    sample = stack(spec, layers=SPARSE, variants=("ordinary",), stages=(ATTENTION, WITH_TAIL))
    with subject(sample) as prover:
        compute = tailed(lambda stage: stage.rank == 0)
        for rows in ([2, 2, 2, 2], [3, 0, 1, 2]):
            done, _ = numbers(prover, spec.name, compute, policy=policy, rows_per_dp=rows)
            assert all((one.residual == 13).all() for one in done)
            assert [one.output.shape[0] for one in done] == rows


def test_se3_no_contract_sums_over_what_cuts_its_rows() -> None:
    """vllm-project/vllm#37856: typed away, refused by the checker, and right where it is legal."""
    for planned in plan_stack(stack(*TOPOLOGIES)).topologies:
        for variant in VARIANTS:
            demands = regime(variant, planned.mesh)
            for stage in (ATTENTION, MLP, EXPERTS):
                for one in contracts(stage, planned.spec, planned.mesh, demands):
                    assert one.rows_out & one.owes == 0

    sliced = State(Phase.CONTRIBUTION, rows=0b1, owes=0, residual=0b1)
    assert AllReduce(0b1).apply(sliced, _facts()) is None
    spec = topology(4)
    with subject(stack(spec, layers=(("attention", "mlp"), *SPARSE))) as prover:
        found = verified(prover, Cell(spec.name, "sequence_parallel", "auto", "sum_len", (6,)))
    assert [one.batch.local_rows for one in found.programs] == [8] * 4


def _facts() -> EdgeFacts:
    return EdgeFacts(
        sizes=(4,),
        even=1,
        shards=0,
        scatter=1,
        scatter_by_size=False,
        may_defer=True,
        complete_on=None,
        joins_sum=False,
        update_at_producer=False,
        carries=False,
        transform_linear=False,
        captures=(),
        read_on=None,
        read_local=0,
        read_whole=0,
        quantized_sum=0,
        quantized_tensors=0,
        widths=Widths(2, 2, 2, 0),
    )


def test_se5_a_variant_moves_the_tail_and_never_repeats_it() -> None:
    """RBLN-SW/vllm-rbln#960: the same numbers in ordinary and sequence-parallel batches."""
    spec = topology(4, dp=2, ep=4)
    sample = stack(spec, layers=SPARSE * 2, stages=(ATTENTION, WITH_TAIL))
    with subject(sample) as prover:
        for parallel in (False, True):
            for policy in ("ar", "rs", "rsv"):
                done, _ = numbers(
                    prover,
                    spec.name,
                    tailed(lambda stage: stage.rank == 0),
                    policy=policy,
                    rows_per_dp=[3, 2],
                    sequence_parallel=parallel,
                )
                assert all((one.residual == 26).all() for one in done), (parallel, policy)
