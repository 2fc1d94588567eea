"""Residual sets on simulated ranks: streams and their state, cuts, halves; MR-1, PP-5."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

from boundaryc.runtime import BoundaryError, SingleGroups
from boundaryc.topology.contracts import CONTEXT_PARALLEL
from boundaryc.verify.cells import Cell
from boundaryc.verify.fixture import Place
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.overlap import overlapped
from boundaryc.verify.run import Prover
from tests.plan.simulated import groups_of_rank_0, kinds, verified
from tests.verify.streams import HEAD, LAYERS, SETS, text
from tests.verify.subjects import prover
from tests.verify.test_pipeline import _Exact, _kept

PAYLOADS = ("partial", "complete")


@cache
def cut(name: str, payload: str) -> Prover:
    """A stack of a set that may be cut before every layer, and split into two batches."""
    return prover(file_of(name, payload))


def compiled_cut(name: str, payload: str) -> Prover:
    """The same, of which a test may change what it likes; its inputs are not quantised."""
    return prover(file_of(name, payload).replace(", quantize: {format: fp8, scale: token}", ""))


def file_of(name: str, payload: str) -> str:
    """The stack file."""
    return text(name, f"pipeline: {{payload: {payload}}}\noverlap: {{two_batch: true}}\n")


def sample(runs: Prover, every: int) -> list[Cell]:
    """Some of the cells that cover every pair of choices."""
    return covering(list(matrix(runs.subject.plan, Selection())))[::every]


@pytest.mark.parametrize("name", SETS)
def test_it_holds_on_every_variant(name: str) -> None:
    """Plain, and with outputs used between stages; uncut and cut; captures of all streams."""
    runs = cut(name, "partial")
    cells = sample(runs, 6)
    found = [runs.run(cell, deeds=at if at % 2 else None) for at, cell in enumerate(cells)]

    assert {cell.variant for cell in cells} == set(runs.subject.plan.stack.variants)
    assert any(cell.cuts for cell in cells)
    assert any(0 in cell.rows for cell in cells)
    assert [f"{one.cell}: {one.failure}" for one in found if one.failure] == []


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("name", ["hyper", "head", "own"])
def test_pp5_a_cut_equals_no_cut_bit_for_bit(name: str, payload: str) -> None:
    """The state travels with the streams, or the update ran before: nothing is approximated."""
    runs = with_exact_sums(compiled_cut(name, payload))
    chosen = Selection(
        topologies=("tp4_dp2", "tp4_dp2_a2a"),
        variants=("ordinary",),
        policies=("rs+rsv",),
        paddings=("unpadded",),
        batches=("uneven", "one_empty"),
    )
    cells = [cell for cell in covering(list(matrix(runs.subject.plan, chosen))) if cell.cuts]
    assert cells
    for cell in cells:
        whole = _kept(runs, replace(cell, cuts=()))
        for ranks in zip(_kept(runs, cell), whole, strict=True):
            for after, before in zip(*ranks, strict=True):
                assert torch.equal(after, before), str(cell)


def with_exact_sums(runs: Prover) -> Prover:
    """The same with contributions whose sum is exact in every order."""
    own = runs.subject.fixture
    exact = _Exact(own.width, own.weights, own.final, own.last)
    object.__setattr__(runs.subject, "fixture", exact)
    return runs


def test_pp5_the_payload_says_what_travels() -> None:
    """Streams [rows, 3, width] with coefficients, or the streams alone where the update ran."""
    runs = cut("hyper", "complete")
    plan, package = runs.subject.plan, runs.subject.package
    assert plan.stack.streams == 3
    tables = package.load.__globals__["import_module"](f"{package.__name__}.tp2").Stack.tables
    resume = tables["auto"].resumes_at(1)[0].transfer
    names = [name for name, _ in resume.finished]

    assert names == ["hidden_states", "residual", "state.mix", "state.post"]
    assert (resume.streams, resume.state) == (3, (("mix", 9), ("post", 3)))
    early = cut("head", "complete").subject.package
    tables = early.load.__globals__["import_module"](f"{early.__name__}.tp2").Stack.tables
    assert [name for name, _ in tables["auto"].resumes_at(1)[0].transfer.finished] == ["residual"]


@pytest.mark.parametrize("name", SETS)
def test_two_batches_overlap(name: str) -> None:
    """Split before the first stage; each half keeps streams and state of its own."""
    runs, draw = cut(name, "partial"), random.Random(name)
    cells = [cell for cell in sample(runs, 14) if cell.variant != CONTEXT_PARALLEL]
    for number, cell in enumerate(cells):
        first = tuple(draw.choice((0, rows, draw.randint(0, rows))) for rows in cell.rows)
        overlapped(runs, cell, first, without_exits=number % 3 > 0 and not cell.cuts)


BROKEN = {
    "state left behind by a slice": (
        "hyper",
        "stream.kept = tuple(rows",
        "_ = tuple(rows",
    ),
    "state left behind by a gather": (
        "own",
        "stream.kept = tuple(groups",
        "_ = tuple(groups",
    ),
    "coefficients of an earlier stage": (
        "hyper",
        "    hidden, stream.kept = hyper_read_rms_norm(",
        "    hidden, _ = hyper_read_rms_norm(",
    ),
    "an input of another row": ("writing", ".take(batch.input_of", ".take(0 * batch.input_of"),
    "a residual that is not rewritten": (
        "writing",
        "hidden, stream.residual = normed_into(",
        "hidden, _ = normed_into(",
    ),
    "an enter left out": ("writing", "tripled(stream.enter(hidden))", "stream.enter(hidden)"),
    "an update of another order": (
        "hyper",
        "hyper_update(hidden, stream.residual, *stream.kept)",
        "hyper_update(hidden, stream.residual.flip(1), *stream.kept)",
    ),
    "an update of another order before a read": (
        "hyper",
        "streams = runtime.hyper_update(x, residual, mix, post)",
        "streams = runtime.hyper_update(x, residual.flip(1), mix, post)",
    ),
    "another final read": ("own", "second_stream(stream.residual)", "stream.residual[:, 1]"),
}


def damaging(before: str, after: str) -> Callable[[dict[str, str]], None]:
    """What puts ``after`` for ``before`` in generated files."""

    def damage(files: dict[str, str]) -> None:
        changed = 0
        for path, content in files.items():
            if path.endswith(".py") and before in content:
                files[path] = content.replace(before, after)
                changed += 1
        assert changed

    return damage


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_found(what: str) -> None:
    name, before, after = BROKEN[what]
    pipeline = "pipeline: {payload: complete}\n" if "gather" in what else ""
    wrong = prover(text(name, pipeline), damaging(before, after))
    chosen = Selection(paddings=("sum_len",), batches=("uneven", "one_empty"))
    cells = covering(list(matrix(wrong.subject.plan, chosen)))

    assert any(wrong.run(cell).failure for cell in cells)


MR1 = """\
residual: {kind: hyper_connections, streams: 4, iterations: 4}
stages: {attention: {kind: attention}, mlp: {kind: ffn}, experts: {kind: ffn, sparse: true}}
layers: {count: 3, default: [attention, experts], at: {0: [attention, mlp]}}
topologies: {tp4_dp4: {tp: 4, attn_dp: 4, moe: {ep: 4}}}
"""


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_mr1_hyper_connections_scatter_once_and_mix_after_the_sum(layers: int) -> None:
    """Each layer by itself: as many scatters as FFNs, and every stage sees what the oracle says."""
    at = "{0: [attention, mlp]}" if layers > 1 else "{}"
    stages = MR1.replace("count: 3", f"count: {layers}").replace("{0: [attention, mlp]}", at)
    if layers == 1:
        stages = stages.replace(", mlp: {kind: ffn}", "")
    runs = prover(HEAD + stages)
    cell = Cell("tp4_dp4", "ordinary", "rsv", "sum_len", (2, 4, 1, 3), many=True)

    found = verified(runs, cell)

    for trace in found.traces:
        sums = [one for one in kinds(trace) if not one.startswith("all_gather")]
        assert [one.partition("(")[0] for one in sums] == ["reduce_scatter"] * layers
        assert all(call.sizes == (2, 4, 1, 3) for call in trace if call.kind == "reduce_scatter")


def test_mr1_a_mix_before_the_sum_is_found() -> None:
    """The second bug of the report: the output of a layer counts four times."""
    before = "streams = runtime.hyper_update(x, residual, mix, post)"
    wrong = prover(HEAD + MR1, damaging(before, before.replace("(x,", "(4 * x,")))
    cell = Cell("tp4_dp4", "ordinary", "rsv", "sum_len", (2, 4, 1, 3), many=True)

    assert "error" in (wrong.run(cell).failure or "")


def test_an_input_that_is_missing_or_of_other_rows_is_refused() -> None:
    runs = cut("writing", "partial")
    stack = runs.subject.package.load("tp2", groups_of_rank_0(2))
    batch = stack.batch(rows_per_dp=[3], padding="unpadded", mode="decode")

    with pytest.raises(ValueError, match="`placed` has 2 rows, and this batch has 3"):
        batch.give(placed=torch.zeros(2, 64))
    with pytest.raises(BoundaryError, match="the operation `placed` takes inputs of every batch"):
        batch.input_of("placed")
    batch.give(placed=torch.zeros(3, 64), other=7)
    assert batch.input_of("other") == 7
    assert batch.input_of("placed").shape == (3, 64)


def test_a_residual_of_streams_is_not_folded() -> None:
    """The update is no addition: nothing shows or folds the residual before it ran."""
    runs = cut("hyper", "partial")
    access = [
        value
        for name, value in vars(
            __import__(f"{runs.subject.package.__name__}.tp2.ordinary_access", fromlist=["x"])
        ).items()
        if name.startswith("OWES")
    ]

    assert access
    assert all(not one.plain and one.fold is None for one in access)


BANK = """\
residual: {kind: custom, streams: 3, enter: bank, read: attended, update: running, leave: attended}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn}
  last: {kind: ffn, update: closed}
layers: {pattern: "ABAB", stages: {A: [attention, mlp], B: [attention, last]}}
pipeline: {payload: complete}
topologies: {tp2: {tp: 2}, tp4_dp2: {tp: 4, attn_dp: 2}}
operations:
"""


def test_hc4_a_bank_of_sums_goes_on_to_the_next_ranks() -> None:
    """pytorch/torchtitan#4312: four layers, blocks of two, cut in two; three sources at the end."""
    call = "tests.verify.stream_operations"
    roles = {"bank": "enter", "attended": "read", "running": "update", "closed": "update"}
    lines = [
        f"  {name}: {{role: {role}, call: '{call}:{name}', streams: 3"
        f"{', params: [query]' if role == 'read' else ''}}}"
        for name, role in roles.items()
    ]
    runs = prover(HEAD + BANK + "\n".join(lines) + "\n")
    cells = [
        Cell(topology, "ordinary", "auto", "sum_len", rows, cuts=(2,))
        for topology, rows in (("tp2", (5,)), ("tp4_dp2", (3, 0)), ("tp4_dp2", (2, 4)))
    ]
    assert [runs.run(cell).failure for cell in cells] == [None, None, None]
    sources = runs.scene(cells[-1]).reference.residuals[Place(3, "last")]
    assert sources.abs().sum(dim=(0, 2)).gt(0).all()
    exact = with_exact_sums(runs)
    for cell in cells:
        for ranks in zip(_kept(exact, cell), _kept(exact, replace(cell, cuts=())), strict=True):
            assert all(map(torch.equal, *ranks))


def test_r01_a_custom_enter_runs_once() -> None:
    """Ones enter as threes and are read as sixes; the written residual is read without it."""
    stages = SETS["writing"].replace("update: placed_update", "update: add")
    lines = [line for line in stages.splitlines() if "placed_update" not in line]
    own = "\n".join(line for line in lines if line.strip() != "facts: [per_call]}")
    runs = prover(HEAD + own + "\n" + LAYERS + "topologies: {tp1: {tp: 1}}\n")
    stack = runs.subject.package.load("tp1", SingleGroups())
    batch = stack.batch(rows_per_dp=[2], padding="unpadded", mode="decode")
    attention = stack.layer(0).attention
    stack.start(batch)

    assert attention.prepare(torch.ones(2, 64), batch).eq(6).all()
    again = stack.written(batch.stream.residual, batch)
    assert again.eq(3).all()
    assert attention.prepare(again, batch).eq(6).all()
