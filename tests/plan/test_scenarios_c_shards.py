"""Context-parallel shards: who holds which tokens, and what is summed over them: CP."""

from __future__ import annotations

import pytest
import torch

from boundaryc.plan.ops import AllReduce, HandOff, Read, Update
from boundaryc.plan.provenance import DeclaredGoal, DeclaredStart, rejections
from boundaryc.runtime import ContextParallel
from boundaryc.verify.cells import Cell
from tests.plan.simulated import groups_of_rank_0, kinds, nothing, numbers, subject, verified
from tests.plan.stacks import stack, topology

SPARSE = (("attention", "experts"),)
DENSE = (("attention", "mlp"),)


def cp(split: str, *lengths: int) -> ContextParallel:
    """One DP group with these requests."""
    return ContextParallel(split, (lengths,))  # type: ignore[arg-type]


def test_cp1_unrelated_tokens_are_never_added() -> None:
    """sgl-project/sglang#38078: gather, sum over all ranks, take back five and four rows."""
    spec = topology(4, cp=2)
    sample = stack(spec, layers=DENSE * 3, variants=("ordinary", "context_parallel"))
    with subject(sample) as prover:
        cell = Cell(spec.name, "context_parallel", "ar", "unpadded", (9,), "zigzag")
        found = verified(prover, cell)
        done, traces = numbers(
            prover, spec.name, nothing, padding="unpadded", rows_per_dp=[9], cp=cp("zigzag", 9)
        )

    batches = [one.batch for one in found.programs]
    assert [batch.local_rows for batch in batches] == [5, 5, 4, 4]
    assert batches[0].local_tokens().tolist() == [0, 1, 2, 7, 8]
    assert batches[2].local_tokens().tolist() == [3, 4, 5, 6]
    assert [one.rows["mlp"] for one in done] == [[9] * 3] * 4
    assert [one.rows["attention"][0] for one in done] == [5, 5, 4, 4]
    for call in (call for trace in traces for call in trace if call.kind == "all_reduce"):
        assert call.label != "tp" or call.shape[0] == 9

    # Without the gather the FFN's sum would run over ranks with other tokens: refused.
    start = DeclaredStart("contribution", 0b01, 0b11, 0b01)
    goal = DeclaredGoal(0b01, 0b01, hands_off=True, may_defer=True)
    ops = (HandOff(), AllReduce(0b11), Update(), Read())
    assert any(rejections(ops, atoms=2, start=start, goal=goal, even=0b11))


@pytest.mark.parametrize(
    ("lengths", "variant"),
    [
        ((3,), "ordinary"),
        ((4,), "context_parallel"),
        ((7,), "context_parallel"),
        ((3, 9), "ordinary"),
    ],
)
def test_cp3_the_variant_implies_rows_on_every_rank(lengths: tuple[int, ...], variant: str) -> None:
    """sgl-project/sglang#22003: decided by the split rule, for the whole batch at once."""
    spec = topology(2, cp=2)
    sample = stack(spec, layers=DENSE * 2, variants=("ordinary", "context_parallel"))
    with subject(sample) as prover:
        loaded = prover.subject.package.load(spec.name, groups_of_rank_0(2))
        batch = loaded.batch(
            rows_per_dp=[sum(lengths)],
            padding="unpadded",
            mode="prefill",
            cp=cp("zigzag", *lengths),
        )
        rows = (sum(lengths),)
        verified(prover, Cell(spec.name, "context_parallel", "auto", "sum_len", rows, "zigzag"))
    assert batch.variant == variant
    assert batch.local_rows > 0
    if lengths == (7,):
        assert cp("zigzag", 7).sizes(0, 2) == (3, 4)


def test_cp4_shards_are_a_permutation() -> None:
    """jzhang38/EasyContext#47: unequal shards, padded inside the collective only."""
    assert cp("zigzag", 2999).sizes(0, 4) == (749, 750, 750, 750)
    assert cp("zigzag", 19).sizes(0, 4) == (5, 5, 5, 4)
    for length in (2999, 19):
        for split in ("zigzag", "interleaved"):
            dealt = torch.cat(cp(split, length).tokens(0, 4))
            x = torch.randn(length, 3)
            assert dealt.sort().values.equal(torch.arange(length))
            assert x[dealt][dealt.argsort()].equal(x)
    spec = topology(4, cp=4)
    sample = stack(spec, layers=SPARSE * 2, variants=("context_parallel",))
    with subject(sample) as prover:
        cell = Cell(spec.name, "context_parallel", "rsv", "unpadded", (19,), "zigzag")
        found = verified(prover, cell)
    assert [one.batch.local_rows for one in found.programs] == [5, 5, 5, 4]
    gathers = [call for call in found.traces[0] if call.kind == "all_gather"]
    assert all(call.sizes == (5, 5, 5, 4) for call in gathers)


def test_cp5_decode_holds_all_rows_already() -> None:
    """ai-dynamo/aiconfigurator#1247: the experts' sum spans the ranks, and nothing is gathered."""
    spec = topology(4, cp=2, ep=4)
    sample = stack(spec, layers=SPARSE * 2, variants=("ordinary", "context_parallel"))
    with subject(sample) as prover:
        requests = cp("zigzag", 3)
        _, decode = numbers(prover, spec.name, nothing, rows_per_dp=[3], mode="decode", cp=requests)
        verified(prover, Cell(spec.name, "ordinary", "auto", "sum_len", (3,)))
        cell = Cell(spec.name, "context_parallel", "auto", "sum_len", (10,), "zigzag")
        prefill = verified(prover, cell)
    assert "all_gather" not in {call.kind for call in decode[0]}
    assert kinds(decode[0]).count("all_reduce(tp)") == 2
    gathers = [call for call in prefill.traces[0] if "gather" in call.kind]
    placed = [
        call for call in prefill.traces[0] if call.kind == "all_reduce" and call.label == "tp"
    ]
    assert gathers or placed
