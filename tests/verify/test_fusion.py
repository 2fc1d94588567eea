"""Fusion providers: what they are offered, what they are asked, and what happens without them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import BoundaryError, FusedMlpInput
from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.overlap import overlapped
from boundaryc.verify.run import Prover
from boundaryc.verify.world import SimulatedGroups, World
from tests.verify.fused import (
    HEAD,
    WIDTH,
    Forward,
    Noting,
    Rank,
    census,
    forwards,
    outputs,
    plain,
)
from tests.verify.subjects import compiled, prover

DENSE = """\
stages:
  attention: {kind: attention, post_addition: true}
  mlp: {kind: ffn}
layers: {count: 3, default: [attention, mlp]}
topologies:
  tp2: {tp: 2}
  tp4_dp2: {tp: 4, attn_dp: 2}
  tp4_dp4: {tp: 4, attn_dp: 4}
"""
FUSION = "fusion: {providers: [kernels]}\n"


@pytest.fixture(scope="module")
def runs() -> Prover:
    """A dense stack, some of whose attentions take an addition."""
    return prover(HEAD + DENSE + FUSION)


@pytest.fixture(scope="module")
def unfused(runs: Prover) -> tuple[Tensor, Any]:
    """The outputs of all ranks without a provider, and the collectives."""
    ranks, traces = forwards(runs)
    return outputs(ranks), census(traces)


def _never(log: list[str]) -> Noting:
    return Noting(log, takes=lambda consumer, contribution: False)


EVERY = ["fuse mlp", "fuse attention"] * 2 + ["fuse mlp", "norm"]
NONE = [word.replace("fuse", "decline") for word in EVERY]


def test_every_sum_that_is_left_is_offered(runs: Prover, unfused: tuple[Tensor, Any]) -> None:
    """Inputs of attention and FFNs; the end of the stack is no input, and its sum is compute's."""
    ranks, traces = forwards(runs, provider=Noting)
    assert [rank.log for rank in ranks] == [EVERY] * 2
    torch.testing.assert_close(outputs(ranks), unfused[0], rtol=0, atol=1e-12)
    assert census(traces) == unfused[1]
    assert sum(call.site.function == "summed" for call in traces[0]) == 5


@pytest.mark.parametrize("policy", ["auto", "ar", "rs", "rsv", "rs+rsv"])
@pytest.mark.parametrize("fusion", [True, False])
def test_the_switch_is_apart_from_the_policy(
    runs: Prover, unfused: tuple[Tensor, Any], policy: str, fusion: bool
) -> None:
    """All ten: a policy does not switch fusion, and fusion does not change what a policy says."""
    ranks, traces = forwards(runs, provider=Noting, policy=policy, fusion=fusion)
    assert [rank.log for rank in ranks] == [EVERY if fusion else ["norm"]] * 2
    torch.testing.assert_close(outputs(ranks), unfused[0], rtol=0, atol=1e-12)
    assert census(traces) == census(forwards(runs, policy=policy)[1])


@pytest.mark.parametrize("addition", [True, False])
def test_fu3_a_fallback_does_the_sum(
    runs: Prover, unfused: tuple[Tensor, Any], addition: bool
) -> None:
    """sgl-project/sglang#20239: with and without an addition, exactly what a kernel would do."""

    def model(forward: Forward) -> Tensor:
        if not addition:
            return plain(forward)
        hidden = forward.run(forward.start(), [0, 1])
        attention, batch = forward.boundary(2, "attention"), forward.rank.batch
        extra = torch.full((3, WIDTH), 7.0, dtype=torch.float64)
        before = len(forward.rank.log)
        x = attention.prepare(hidden, batch, post_residual_addition=extra)
        assert forward.rank.log[before:] == []  # E10: no kernel has such an input
        hidden = forward.stage(attention, "attention", x)
        mlp = forward.boundary(2, "mlp")
        return forward.end(forward.stage(mlp, "mlp", mlp.prepare(hidden, batch)))

    declined, traces = forwards(runs, model=model, provider=_never)
    without, expected = forwards(runs, model=model)
    fused, _ = forwards(runs, model=model, provider=Noting)
    assert torch.equal(outputs(declined), outputs(without))
    torch.testing.assert_close(outputs(fused), outputs(without), rtol=0, atol=1e-12)
    assert census(traces) == census(expected)
    assert torch.equal(outputs(without), unfused[0]) is not addition


def test_one_that_declines_some_batches(runs: Prover) -> None:
    """Values and collectives stay equal on all ranks, batch after batch on one stack."""

    def some(log: list[str]) -> Noting:
        return Noting(log, takes=lambda consumer, x: x.shape[0] % 2 == 0)

    def model(forward: Forward) -> Tensor:
        found = [plain(forward)]
        for rows in (4, 1, 6):
            forward.rank.batch = forward.rank.stack.batch(
                rows_per_dp=[rows], padding="sum_len", mode="decode"
            )
            found.append(plain(forward))
        return torch.cat(found)

    ranks, traces = forwards(runs, model=model, provider=some)
    without, expected = forwards(runs, model=model)
    assert [rank.log for rank in ranks] == [NONE + EVERY + NONE + EVERY] * 2
    torch.testing.assert_close(outputs(ranks), outputs(without), rtol=0, atol=1e-12)
    assert census(traces) == census(expected)
    assert census(traces)[0] == census(traces)[1]


def test_one_that_raises_after_its_launch(runs: Prover, unfused: tuple[Tensor, Any]) -> None:
    """The error goes through, nothing is summed again, and the next forward is right."""
    failed: list[list[str]] = []

    def model(forward: Forward) -> Tensor:
        provider = forward.rank.provider
        provider.raises = True
        hidden = forward.start()
        attention, mlp = forward.boundary(0, "attention"), forward.boundary(0, "mlp")
        hidden = forward.stage(
            attention, "attention", attention.prepare(hidden, forward.rank.batch)
        )
        for error, says in ((RuntimeError, "after it was launched"), (BoundaryError, "belong")):
            with pytest.raises(error, match=says):
                mlp.prepare(hidden, forward.rank.batch)
        failed.append(list(forward.rank.log))
        provider.raises = False
        return plain(forward)

    ranks, traces = forwards(runs, model=model, provider=Noting)
    assert failed == [["fuse mlp"]] * 2
    assert [len(trace) for trace in traces] == [1 + len(one) for one in unfused[1]]
    torch.testing.assert_close(outputs(ranks), unfused[0], rtol=0, atol=1e-12)


def test_fu1_a_weight_of_another_dtype(runs: Prover) -> None:
    """vllm-project/vllm#48324: FP32 weights and bfloat16 rows go to a kernel that says so only."""

    class Wide:
        weight = torch.ones(WIDTH, dtype=torch.float32)

    def model(forward: Forward) -> Tensor:
        forward.dtype, forward.bound = torch.bfloat16, Wide()
        hidden = forward.run(forward.start())
        return forward.rank.stack.complete_output(hidden, forward.rank.batch)  # type: ignore[no-any-return]

    without, _ = forwards(runs, model=model)
    narrow, _ = forwards(runs, model=model, provider=Noting)
    assert [rank.log for rank in narrow] == [[], []]
    assert torch.equal(outputs(narrow), outputs(without))
    wide, _ = forwards(
        runs, model=model, provider=lambda log: Noting(log, options={"any_weight": True})
    )
    assert [rank.log for rank in wide] == [EVERY[:-1]] * 2


def test_fu5_a_limit_is_in_bytes(runs: Prover) -> None:
    """vllm-project/vllm#21325: rows times width; the report says which batch is offered what."""

    def limited(log: list[str]) -> Noting:
        return Noting(log, options={"max_bytes": 4 << 20})

    text = (HEAD + DENSE + FUSION).replace("hidden_size: 64", "hidden_size: 7168")
    wide, residual = prover(text), torch.empty(0, 7168, dtype=torch.bfloat16)
    weight = torch.empty(7168, dtype=torch.bfloat16)

    def model(forward: Forward) -> dict[int, set[str]]:
        stack, found = forward.rank.stack, {}
        for rows in (1, 64, 292, 293, 1024, 0):
            batch = stack.batch(rows_per_dp=[rows], padding="sum_len", mode="decode")
            told = stack.explain_fusion(batch, residual, weight)
            assert set(told) == {"attention to mlp over tp", "mlp to attention over tp"}
            found[rows] = {line for lines in told.values() for line in lines}
        return found

    ranks, _ = forwards(wide, model=model, provider=limited)  # type: ignore[arg-type]
    large = "own: not tried, {} bytes are more than 4194304"
    assert ranks[0].output == {
        **{few: {"own: tried"} for few in (1, 64, 292)},
        293: {large.format(293 * 7168 * 2)},
        1024: {large.format(1024 * 7168 * 2)},
        0: {"own: not tried, there are no rows"},
    }
    few = lambda log: Noting(log, options={"max_bytes": 5 * WIDTH * 8})  # noqa: E731
    assert forwards(runs, provider=few, rows=(5,))[0][0].log == EVERY
    assert forwards(runs, provider=few, rows=(6,))[0][0].log == ["norm"]


@pytest.mark.parametrize("name", ["tp4_dp2", "tp4_dp4"])
def test_fu7_there_is_nothing_to_fuse_where_rows_are_gathered(runs: Prover, name: str) -> None:
    """sgl-project/sglang#11632: under attention DP an add and a norm are followed by a gather."""
    rows = (3, 0, 2, 1)[: runs.subject.topology(name).spec.attn_dp]
    ranks, _ = forwards(runs, name, provider=Noting, rows=rows)
    assert {rank.stack.fused for rank in ranks} == {()}
    assert all(rank.log == ["norm"] for rank in ranks)
    outcome = runs.run(Cell(name, "ordinary", "ar", "sum_len", rows))
    assert outcome.failure is None


def test_a_candidate_for_another_sum_is_passed_over(
    runs: Prover, unfused: tuple[Tensor, Any]
) -> None:
    """E10: one that sums over another group is never run."""

    class Elsewhere(Noting):
        def ffn_input(self, plan: Any) -> Sequence[FusedMlpInput]:
            (own,) = super().ffn_input(plan)
            return [FusedMlpInput("other", "attn_dp", lambda *given: given[99]), own]

        def attention_input(self, plan: Any) -> Any:
            return []

    ranks, _ = forwards(runs, provider=Elsewhere)
    assert [rank.log for rank in ranks] == [["fuse mlp"] * 3 + ["norm"]] * 2
    torch.testing.assert_close(outputs(ranks), unfused[0], rtol=0, atol=1e-12)


def test_a_candidate_that_returns_something_else(runs: Prover) -> None:
    """Rows that are not the residual's are an error, not the next stage's input."""

    class Wrong(Noting):
        def _run(self, *given: Any) -> Any:
            return tuple(one[:1] for one in super()._run(*given) or ())

    with pytest.raises(BoundaryError, match=r"'own' returned shapes \[1, 64\] and \[1, 64\]"):
        forwards(runs, provider=Wrong)


ORDERED = (HEAD + DENSE).replace("post_addition: true", "post_addition: false") + (
    "fusion: {providers: [kernels, spare]}\n"
)


def test_providers_are_tried_in_the_order_of_the_file() -> None:
    """However they are attached, before the first batch, by names of the file."""
    runs, log = prover(ORDERED), list[str]()

    def named(name: str) -> Callable[[str, Any], bool]:
        return lambda consumer, _: not log.append(name) and name == "spare"

    def program(groups: SimulatedGroups) -> Tensor:
        stack = runs.subject.package.load("tp2", groups)
        with pytest.raises(ValueError, match="called 'other'; the file names: kernels, spare"):
            stack.attach("other", Noting())
        for name in ("spare", "kernels"):
            stack.attach(name, Noting(takes=named(name)))
        batch = stack.batch(rows_per_dp=[3], padding="sum_len", mode="decode")
        with pytest.raises(BoundaryError, match="before the first batch"):
            stack.attach("spare", Noting())
        rank = Rank([], stack=stack, batch=batch)
        return plain(Forward(rank, runs.subject.plan.stack.layers, groups.rank))

    World[Tensor](2).run(program)
    assert log[:4] in (["kernels", "spare"] * 2, ["kernels", "kernels", "spare", "spare"])
    assert log.count("kernels") == log.count("spare") == 10


def test_ranks_with_other_providers(runs: Prover, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are told apart before the first stage, where the environment asks for it."""
    monkeypatch.setenv("BOUNDARYC_CHECK", "1")

    def program(groups: SimulatedGroups) -> str:
        stack = runs.subject.package.load("tp2", groups)
        if groups.rank:
            stack.attach("kernels", Noting())
        batch = stack.batch(rows_per_dp=[3], padding="sum_len", mode="decode")
        with pytest.raises(BoundaryError) as caught:
            stack.start(batch)
        return str(caught.value)

    differ = "ranks 0 and 1 differ before a forward:"
    line = "  providers: rank 0 has [], rank 1 has ['kernels']"
    assert World[str](2).run(program) == [f"{differ}\n{line}"] * 2


def test_there_is_no_code_for_providers_that_no_file_declares() -> None:
    """A stack without ``fusion`` says nothing of it in its code."""
    _, files = compiled(HEAD + DENSE)
    code = {name: text for name, text in files.items() if name.endswith(".py")}
    assert not [name for name, text in code.items() if re.search(r"(?<!fp_)fus(?!e_mlp)", text)]
    _, files = compiled(HEAD + DENSE + FUSION)
    assert [name for name in files if "fused" in files[name] and "tp2" in name]


STACKS = {
    "finalize": """\
stages:
  attention: {kind: attention, latent_input: true}
  mixer: {kind: mixer}
  mlp: {kind: ffn, quantize: {format: fp8, scale: token, keep: true}}
  experts: {kind: ffn, sparse: true, finalize: deferred}
layers:
  pattern: "DEEM.E"
  stages: {D: [attention, mlp], E: [attention, experts], M: [mixer, mlp], ".": []}
captures: {eagle: {after: [1, 2, 4], rows: producer}, probe: {before: [2, 3]}}
topologies:
  tp2: {tp: 2}
  tp4_dp2: {tp: 4, attn_dp: 2, dense_tp: attn_tp, moe: {ep: 2}}
  tp4_cp2: {tp: 4, attn_cp: 2}
variants: [ordinary, sequence_parallel, context_parallel]
terminal: {finalize: deferred}
pipeline: {payload: partial}
overlap: {two_batch: true}
""",
    "kept sums": """\
stages:
  attention: {kind: attention}
  mlp: {kind: ffn}
  experts:
    {kind: ffn, sparse: true, reduction: local_tail,
     norm: {kind: rms, eps: 1.0e-3, weight_offset: 1}}
layers: {pattern: "DEED", stages: {D: [attention, mlp], E: [attention, experts]}}
topologies: {tp2: {tp: 2}, tp4: {tp: 4, moe: {ep: 2}}, tp4_dp2: {tp: 4, attn_dp: 2}}
lora: true
pipeline: {payload: complete}
""",
}
MANY = "fusion: {providers: [kernels, others]}\n"


@pytest.fixture(scope="module", params=STACKS)
def simulated(request: pytest.FixtureRequest) -> Prover:
    """A stack with everything that may stand around a fused sum."""
    return prover(HEAD + STACKS[request.param] + MANY)


def test_every_rank_holds_what_the_oracle_says(simulated: Prover) -> None:
    """All sorts of batches, uneven and empty ones; some fused, some declined, used in between."""
    cells = covering(list(matrix(simulated.subject.plan, Selection())))[::5]
    for number, cell in enumerate(cells):
        deeds = number if number % 2 else None
        outcome = simulated.run(cell, schedule=number, deeds=deeds)
        assert outcome.failure is None, f"{cell}: {outcome.failure}"


@pytest.mark.parametrize("simulated", ["finalize"], indirect=True)
def test_halves_hold_what_the_oracle_says(simulated: Prover) -> None:
    """Two-batch overlap beside hand-offs: split, merged, with and without exits."""
    for number, topology in enumerate(("tp2", "tp4_dp2")):
        rows, first = ((5,), (2,)) if topology == "tp2" else ((5, 0), (3, 0))
        cell = Cell(topology, "ordinary", "ar", "sum_len", rows)
        for layers in (None, range(2, 4)):
            overlapped(simulated, cell, first, layers=layers, without_exits=False, schedule=number)
            overlapped(simulated, cell, first, layers=layers, without_exits=True, schedule=number)


def test_what_is_broken_is_found() -> None:
    """A fallback without its sum, and a kernel's input that is dropped, fail the same check."""
    breaks = [
        ("        hidden = groups.tp.all_reduce(hidden)\n", ""),
        ("hidden, stream.residual = fused", "_, stream.residual = fused"),
    ]
    for old, new in breaks:

        def damage(files: dict[str, str], old: str = old, new: str = new) -> None:
            found = files["tp2/ordinary.py"]
            assert old in found
            files["tp2/ordinary.py"] = found.replace(old, new)

        runs = prover(HEAD + DENSE + FUSION, damage)
        cells = [Cell("tp2", "ordinary", "ar", "sum_len", (rows,)) for rows in range(1, 6)]
        assert any(runs.run(cell).failure for cell in cells)
