"""Rows where the plan says, on every rank and of every batch: PD, HG, RW, IS."""

from __future__ import annotations

import ast
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from boundaryc import runtime
from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.plan.compose import plan_stack
from boundaryc.verify.cells import Cell
from boundaryc.verify.world import World
from tests.plan.simulated import (
    Numbers,
    Stage,
    groups_of_rank_0,
    kinds,
    nothing,
    numbers,
    subject,
    summed,
    verified,
)
from tests.plan.stacks import stack, topology

SPARSE = (("attention", "experts"),)
DENSE = (("attention", "mlp"),)


def test_pd1_buckets_follow_the_batch_s_own_rounding() -> None:
    """sgl-project/sglang#36262: 4, 12, 20, 28 become rows that 16 ranks can cut."""
    spec = topology(32, dp=2)
    with subject(stack(spec, layers=DENSE * 2, variants=("sequence_parallel",))) as prover:
        loaded = prover.subject.package.load(spec.name, groups_of_rank_0(32))
        facts = {"padding": "sum_len", "mode": "decode", "sequence_parallel": True}
        buckets = range(4, 33, 4)
        rounded = [loaded.batch(rows_per_dp=[n, n], **facts).group_rows for n in buckets]
    assert sorted(set(rounded)) == [16, 32]
    assert {column.row_multiple for column in loaded.columns} == {16}


def test_pd4_pad_rows_reach_no_state() -> None:
    """sgl-project/sglang#24955: each rank knows its real rows; its pads are never computed on."""
    spec = topology(4, dp=2, ep=4)
    stepped: dict[int, list[int]] = {}

    def compute(stage: Stage, x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        if stage.exit is not None:
            return summed(stage, out)
        real = x[: stage.batch.real_rows]
        assert not real.isnan().any()
        stepped.setdefault(stage.rank, []).append(len(real))
        out[: len(real)] = real.cumsum(0)
        return out

    with subject(stack(spec, layers=SPARSE * 2, variants=("ordinary",))) as prover:
        found = verified(prover, Cell(spec.name, "ordinary", "rsv", "max_len", (3, 5)))
        done, _ = numbers(
            prover, spec.name, compute, hidden=_poisoned, rows_per_dp=[3, 5], padding="max_len"
        )

    assert [one.batch.real_rows for one in found.programs] == [3, 3, 5, 5]
    assert stepped == {0: [3] * 2, 1: [3] * 2, 2: [5] * 2, 3: [5] * 2}
    assert all(one.residual[:3].isfinite().all() for one in done)


def _poisoned(rank: int, batch: runtime.AnyBatch) -> Tensor:
    x = torch.full((batch.group_rows, 64), float("nan"), dtype=torch.float64)
    x[: batch.group_real_rows] = 1
    return x


def test_hg1_empty_ranks_run_the_same_collectives() -> None:
    """sgl-project/sglang#25404: with some tokens or with none at all, no rank goes alone."""
    spec = topology(4, dp=4, ep=4)
    with subject(stack(spec, layers=SPARSE * 2, variants=("ordinary",))) as prover:
        for rows in ((0, 4, 2, 1), (0, 0, 0, 0)):
            for policy in ("ar", "rs", "rsv"):
                cell = Cell(spec.name, "ordinary", policy, "sum_len", rows)
                found = verified(prover, cell)
                agreed = {tuple(call.agreed() for call in trace) for trace in found.traces}
                assert len(agreed) == 1, cell
                assert found.programs[0].batch.local_rows == 0


def test_hg3_an_empty_rank_joins_the_sum_and_skips_the_norm() -> None:
    """sgl-project/sglang#39899: 0 rows of the right width come out, and no norm ran for them."""
    spec = topology(2, dp=2)
    with subject(stack(spec, layers=DENSE, variants=("ordinary",))) as prover:
        module = __import__(
            f"{prover.subject.package.__name__}.{spec.name}.ordinary", fromlist=["ordinary"]
        )
        normed: list[int] = []
        real = module.add_rms_norm

        def counting(x: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
            normed.append(x.shape[0])
            return real(x, *rest)

        def compute(stage: Stage, x: Tensor) -> Tensor:
            if stage.name == "mlp":
                normed.clear()
            return nothing(stage, x)

        module.add_rms_norm = counting
        done, traces = numbers(prover, spec.name, compute, policy="ar", rows_per_dp=[5, 0])

    assert kinds(traces[0]) == kinds(traces[1])
    assert "all_reduce(tp)" in kinds(traces[1])
    assert done[1].output.shape == (0, 64)
    assert 0 not in normed


def test_hg5_decisions_read_what_all_ranks_know() -> None:
    """sgl-project/sglang#20853: the column follows facts of the whole batch, never a local mode.

    The mode is one that all ranks state, also those whose own part of the batch has another.
    """
    assert {field.name for field in fields(runtime.Column)} == {
        "variant",
        "even",
        "row_multiple",
        "entry",
        "max_rows",
        "mode",
    }
    spec = topology(8, dp=4, ep=8)
    with subject(stack(spec, layers=SPARSE * 2)) as prover:

        def plans(groups: object) -> list[int]:
            loaded = prover.subject.package.load(spec.name, groups)
            return [
                loaded.batch(rows_per_dp=list(rows), padding=padding, mode=mode).plan
                for rows in ((3, 0, 5, 1), (2, 2, 2, 2), (0, 0, 0, 0), (9000, 1, 1, 1))
                for padding in ("sum_len", "max_len", "unpadded")
                for mode in ("prefill", "decode")
            ]

        chosen = World[list[int]](8).run(plans)
    assert all(one == chosen[0] for one in chosen)
    assert chosen[0][::2] == chosen[0][1::2]


def test_hg7_the_plain_path_needs_no_peer_memory() -> None:
    """vllm-project/vllm#43616: sum, add and norm, which is what runs where nothing is fused."""
    spec = topology(2)
    with subject(stack(spec, layers=DENSE * 4, variants=("ordinary",))) as prover:
        found = verified(prover, Cell(spec.name, "ordinary", "auto", "sum_len", (7,)))
    assert set(kinds(found.traces[0])) == {"all_reduce(tp)"}


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5])
def test_rw1_fewer_rows_than_ranks(tp: int, tokens: int) -> None:
    """vllm-project/vllm#50154: rows come from the plan, so one row is never taken for another."""
    spec = topology(tp)
    with subject(stack(spec, layers=SPARSE * 3)) as prover:
        for policy in ("ar", "rs+rsv"):
            for padding in ("sum_len", "unpadded"):
                cell = Cell(spec.name, "sequence_parallel", policy, padding, (tokens,))
                verified(prover, cell)


def test_rw1_generated_code_compares_no_shapes() -> None:
    """Nothing in a variant's module looks at a shape or a length."""
    specs = (topology(4, dp=2), topology(4, cp=2), topology(4))
    variants = ("ordinary", "context_parallel", "input_scattered", "sequence_parallel")
    planned = plan_stack(stack(*specs, variants=variants))
    files = emit(planned, Origin("sample.yaml", "boundaryc compile", "0" * 64)).files
    modules = [name for name in files if name.rpartition("/")[2].removesuffix(".py") in variants]
    assert len(modules) > 6
    for name in modules:
        for node in ast.walk(ast.parse(files[name])):
            assert not isinstance(node, ast.Attribute) or node.attr not in ("shape", "size"), name
            assert not isinstance(node, ast.Name) or node.id != "len", name


@pytest.mark.parametrize("layers", [DENSE * 3, SPARSE * 3])
@pytest.mark.parametrize("tokens", [7, 8])
def test_rw3_a_threshold_read_once(layers: tuple[tuple[str, ...], ...], tokens: int) -> None:
    """vllm-project/vllm-ascend#12772: from eight tokens on, one gather per attention input."""
    spec = topology(2)
    parallel = tokens >= 8
    with subject(stack(spec, layers=layers)) as prover:
        variant = "sequence_parallel" if parallel else "ordinary"
        found = verified(prover, Cell(spec.name, variant, "rs", "sum_len", (tokens,)))
        _, traces = numbers(
            prover, spec.name, nothing, rows_per_dp=[tokens], sequence_parallel=parallel
        )
    assert found.programs[0].batch.variant == variant
    gathers = kinds(traces[0]).count("all_gather(tp)")
    # One for every attention input, one for every FFN input, one at the end of the stack.
    assert gathers == (2 * 3 + 1 if parallel else 0)


def test_rw5_experts_see_every_token_once() -> None:
    """vllm-project/vllm#24982: rows are cut over the heads' ranks before they are dispatched."""
    spec = topology(4, dp=2, all_to_all=True)
    dispatched: list[int] = []

    def compute(stage: Stage, x: Tensor) -> Tensor:
        if stage.exit is not None:
            dispatched.append(x.shape[0])
            return summed(stage, x.clone())
        return torch.zeros_like(x)

    with subject(stack(spec, layers=SPARSE, variants=("ordinary",))) as prover:
        verified(prover, Cell(spec.name, "ordinary", "auto", "sum_len", (4, 4)))
        numbers(prover, spec.name, compute, rows_per_dp=[4, 4])
    assert sum(dispatched) == 8


def test_rw6_the_router_reads_rows_that_have_moved() -> None:
    """huggingface/transformers#45473: hidden moves alone, as one bundle with all made from it.

    Scores and indices are computed from the gathered rows, so that no second row map exists;
    experts that live elsewhere are masked, and (row, k) pairs stay what they were.
    """
    spec = topology(4, dp=4, ep=4)
    gate = torch.randn(64, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def routed(x: Tensor, local: range) -> Tensor:
        scores, chosen = (x @ gate).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for expert in local:
            weight = torch.where(chosen == expert, scores, 0).sum(-1, keepdim=True)
            out += weight * (expert + 1) * x
        return out

    def compute(stage: Stage, x: Tensor) -> Tensor:
        if stage.exit is None:
            return torch.zeros_like(x)
        assert x.shape[0] == 3
        return summed(stage, routed(x, range(2 * stage.rank, 2 * stage.rank + 2)))

    tokens = torch.randn(3, 64, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    rows, owner = [1, 0, 2, 0], {0: tokens[:1], 2: tokens[1:]}
    with subject(stack(spec, layers=SPARSE, variants=("ordinary",))) as prover:
        for policy in ("ar", "rsv"):
            done, _ = numbers(
                prover,
                spec.name,
                compute,
                policy=policy,
                hidden=lambda rank, _: owner.get(rank, tokens[:0]).clone(),
                rows_per_dp=rows,
            )
            normed = tokens * torch.rsqrt(tokens.square().mean(-1, keepdim=True) + 1e-6)
            right = tokens + routed(normed, range(8))
            assert torch.cat([one.residual for one in done]).allclose(right, atol=1e-12)


def test_is1_supplied_embeddings_are_sliced_not_gathered() -> None:
    """sgl-project/sglang#21215: looked up they owe a sum, supplied they do not."""
    spec = topology(8)
    sample = stack(spec, layers=DENSE * 2, variants=("ordinary", "input_scattered"))
    with subject(sample) as prover:
        for entry in ("complete", "partial"):
            cell = Cell(spec.name, "input_scattered", "auto", "sum_len", (16,), "", entry)
            found = verified(prover, cell)
            assert [one.batch.local_rows for one in found.programs] == [2] * 8
            first = found.traces[0][0]
            assert not any(call.kind == "all_gather" for call in found.traces[0])
            assert first.kind in ("all_reduce", "reduce_scatter")
        sums = {
            entry: numbers(
                prover,
                spec.name,
                sliced_attention,
                hidden=lambda rank, batch, share=share: torch.full((16, 64), share).double(),
                rows_per_dp=[16],
                input_scattered=True,
                embeddings=entry,
            )[0]
            for entry, share in (("complete", 8.0), ("partial", 1.0))
        }
    assert all((one.residual == 8).all() for one in (*sums["complete"], *sums["partial"]))


def sliced_attention(stage: Stage, x: Tensor) -> Tensor:
    """Attention that takes slices and returns a partial on all rows."""
    if stage.exit is not None:
        return summed(stage, torch.zeros_like(x))
    return x.new_zeros(stage.batch.group_rows, x.shape[1])


@pytest.mark.parametrize(("tp", "tokens", "padded"), [(8, 1023, 1024), (4, 3, 4)])
def test_is3_residual_and_sum_are_cut_alike(tp: int, tokens: int, padded: int) -> None:
    """sgl-project/sglang#10568: one padded split for both, equal on every rank."""
    spec = topology(tp)
    sample = stack(spec, layers=DENSE * 2, variants=("input_scattered",))
    with subject(sample) as prover:
        done: list[Numbers]
        for policy in ("ar", "rs", "rsv"):
            for entry in ("complete", "partial"):
                done, _ = numbers(
                    prover,
                    spec.name,
                    sliced_attention,
                    policy=policy,
                    hidden=lambda rank, batch: torch.ones(batch.group_rows, 64).double(),
                    rows_per_dp=[tokens],
                    input_scattered=True,
                    embeddings=entry,
                )
                assert [one.rows["attention"] for one in done] == [[padded // tp] * 2] * tp
                assert {one.residual.shape[0] for one in done} == {padded}
        if tokens < 10:
            cell = Cell(spec.name, "input_scattered", "rs", "sum_len", (tokens,))
            verified(prover, cell)
