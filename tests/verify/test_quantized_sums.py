"""Sums that travel quantised, on every rank: as exact as their format, and the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import OwedOutput
from boundaryc.verify.fixture import Parameter, Place
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.quantized_sums import Sums
from boundaryc.verify.scene import Cell
from boundaryc.verify.world import SimulatedGroups, World
from tests.verify.subjects import compiled, prover, share

Damage = Callable[[dict[str, str]], None]

LINK = "link: {latency_us: 0.001, bandwidth_gb_s: 1}"
"""Bytes count for so much that large batches are sent quantised."""
HEAD = "boundaryc: 1\nstack: sample\nhidden_size: 4096\nnorm: {kind: rms, eps: 1.0e-6}\n"
STACK = f"""{HEAD}stages:
  attention: {{kind: attention, quantized_sum: int8, additive: {{bias: rank0, sink: divided}}}}
  table: {{kind: attention, order: token, quantized_sum: fp8}}
  mlp: {{kind: ffn, quantized_sum: fp8, update: early, additive: {{shared: after_sum}}}}
  experts: {{kind: ffn, sparse: true, read: raw, quantized_sum: int8, joins_sum: allow}}
  tail: {{kind: ffn, reduction: local_tail, quantized_sum: int8, update: plain}}
  scaled: {{kind: ffn, update: {{scaled_add: 0.3}}, transform: norm}}
operations:
  plain:
    {{role: update, call: "tests.verify.operations:plain_add", facts: [plain_add, quantized_sum]}}
  early:
    role: update
    call: tests.verify.operations:plain_add
    facts: [plain_add, quantized_sum, at_producer]
layers:
  count: 4
  default: [attention, experts]
  at: {{0: [attention, mlp, scaled], 2: [table, tail, mlp]}}
captures: {{eagle: {{after: [0, 2], rows: input}}}}
drafts: {{next: {{layers: {{count: 1, default: [attention, experts]}}, entry: partial}}}}
"""
STACKS = {
    "ordinary and sequence parallel": f"""{STACK}topologies:
  tp1: {{tp: 1}}
  tp2: {{tp: 2, {LINK}}}
  tp4: {{tp: 4, {LINK}}}
  dp2: {{tp: 4, attn_dp: 2, {LINK}}}
  narrow: {{tp: 6, attn_dp: 2, dense_tp: attn_tp, moe: {{dp: 2}}, {LINK}}}
  a2a: {{tp: 4, attn_dp: 2, moe: {{ep: 4, all_to_all: true}}, {LINK}}}
variants: [ordinary, sequence_parallel]
""",
    "context parallel": f"""{STACK}topologies:
  cp2: {{tp: 4, attn_dp: 2, attn_cp: 2, moe: {{dp: 2}}, {LINK}}}
  cp2_tp3: {{tp: 6, attn_cp: 2, {LINK}}}
variants: [ordinary, context_parallel]
""",
    "input scattered": (
        STACK.replace("order: token, ", "")
        + f"topologies: {{tp4: {{tp: 4, {LINK}}}}}\nvariants: [input_scattered]\n"
    ),
}


@pytest.mark.parametrize("name", STACKS)
def test_every_pair_of_choices_holds(name: str) -> None:
    """Uneven and empty ranks, both sizes and modes, half of them with accessors in between."""
    subject = prover(STACKS[name])
    every = covering(list(matrix(subject.subject.plan, Selection())))
    cells = share(every, list(STACKS).index(name), 2)
    failed = [
        f"{cell} {deeds}: {outcome.failure}"
        for index, cell in enumerate(cells)
        for deeds in ((None, index)[index % 2],)
        if (outcome := subject.run(cell, schedule=index, deeds=deeds)).failure
    ]

    assert failed == []
    assert len(every) >= 25
    assert {cell.mode for cell in every} == {"prefill", "decode"}


ONE = f"""{HEAD}stages:
  attention: {{kind: attention, quantized_sum: int8}}
  mlp: {{kind: ffn, quantized_sum: fp8}}
layers: {{count: 2, default: [attention, mlp]}}
topologies: {{tp2: {{tp: 2, {LINK}}}, tp4: {{tp: 4, {LINK}}}}}
"""
INT8 = 'quantized_all_reduce(hidden, groups.tp, "int8")'
FP8 = 'quantized_all_reduce(hidden, groups.tp, "fp8")'
BROKEN = {
    "less exact than declared": (INT8, INT8.replace("int8", "fp8"), "is off by"),
    "no sum at all": (INT8, "hidden.clone()", "is off by"),
    "a sum that is lost in part": (FP8, f"0.8 * {FP8}", "is off by"),
    "other tokens": (INT8, f"{INT8}.flip(0)", "is off by"),
    "one block after the other": (INT8, f"{INT8}.roll(128, 1)", "is off by"),
    "a number that is none": (INT8, f"{INT8} * float('nan')", "is off by"),
    "not the same everywhere": (INT8, f"{INT8} + groups.tp.rank * 1e-9", "different sums"),
    "its own part unquantised": (
        FP8,
        f"{FP8} + 1e-4 * hidden / hidden.abs().max()",
        "different sums",
    ),
    "a sum that is done twice": (
        "return batch.groups.tp.all_reduce(hidden)",
        "return batch.groups.tp.all_reduce(batch.groups.tp.all_reduce(hidden))",
        "",
    ),
}


@pytest.mark.parametrize("ranks", ["tp2", "tp4"])
@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_found(what: str, ranks: str) -> None:
    before, after, why = BROKEN[what]

    def damage(files: dict[str, str]) -> None:
        path = f"{ranks}/ordinary.py"
        assert before in files[path]
        files[path] = files[path].replace(before, after)

    mode = "prefill" if why else "decode"
    cell = Cell(ranks, "ordinary", "ar", "sum_len", (5,), many=bool(why), mode=mode)

    assert prover(ONE).run(cell).failure is None
    failure = prover(ONE, damage).run(cell).failure
    assert failure is not None
    assert "MismatchError" in failure
    assert why in failure


def test_a_rank_that_reads_its_own_mode_is_found() -> None:
    """A decision from the local forward mode: ranks would wait for each other forever."""

    def damage(files: dict[str, str]) -> None:
        text = files["tp2/ordinary.py"]
        changed = text.replace(
            INT8, f"({INT8} if groups.tp.rank else groups.tp.all_reduce(hidden))"
        )
        assert changed != text
        files["tp2/ordinary.py"] = changed

    cell = Cell("tp2", "ordinary", "ar", "sum_len", (5,), many=True)
    failure = prover(ONE, damage).run(cell).failure
    assert failure is not None
    assert "WorldError" in failure


Seen = tuple[list[bool], list[bool], list[Any]]


def _forward(ranks: str, mode: str, rows: int = 64) -> tuple[list[Seen], list[list[Any]]]:
    """For each stage of a forward, on every rank: did it leave a complete output, skip the sum."""
    subject = prover(ONE)
    world: World[Any] = World(int(ranks[2:]))

    def program(groups: SimulatedGroups) -> Any:
        stack = subject.subject.package.load(ranks, groups)
        batch = stack.batch(rows_per_dp=[rows], padding="unpadded", mode=mode)
        stack.start(batch)
        hidden: Any = torch.ones(rows, 128)
        complete, skips = [], []
        for index in range(2):
            norm = Parameter(torch.ones(128))
            layer = stack.layer(index).bind(attention=norm, mlp=norm)
            x = layer.attention.prepare(hidden, batch)
            hidden = layer.attention.finish(x, batch)
            complete.append(not isinstance(hidden, OwedOutput))
            x = layer.mlp.prepare(hidden, batch)
            with layer.mlp.exit(batch) as out:
                x = out.reduce_output(x)
            skips.append((out.fuse_mlp_allreduce, out.skips_reduction))
            hidden = out.finish(x)
            complete.append(not isinstance(hidden, OwedOutput))
        stack.norm(hidden, batch, Parameter(torch.ones(128)))
        return complete, skips

    return world.run(program), world.traces()


@pytest.mark.parametrize("ranks", ["tp2", "tp4"])
def test_e18_decoding_keeps_full_precision(ranks: str) -> None:
    """A prefill sends values and scales, a decode one sum of what there is."""
    types = {
        mode: {call.dtype for trace in _forward(ranks, mode)[1] for call in trace}
        for mode in ("prefill", "decode")
    }
    exact = {torch.float32}  # scales, and of more than two ranks what is scattered

    assert types == {"prefill": exact | {torch.int8, torch.float8_e4m3fn}, "decode": exact}


def test_x15_a_quantised_sum_is_not_left_to_the_next_stage() -> None:
    """Compute skips its sum as for a deferred one, and the exit hands on what is complete."""
    for (complete, skips), _ in zip(*_forward("tp4", "prefill"), strict=True):
        assert complete == [True] * 4
        assert skips == [(True, True)] * 2
    for (complete, skips), _ in zip(*_forward("tp4", "decode"), strict=True):
        assert complete == [False, False, False, True]  # the end of the stack is always complete
        assert skips == [(True, True), (False, False)]


@pytest.mark.parametrize("rows", [1, 5, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("ranks", ["tp2", "tp4"])
def test_qc1_every_block_is_within_one_percent(ranks: str, dtype: torch.dtype, rows: int) -> None:
    """sgl-project/sglang#40084: blocks of 1e-3 and 1.0, and at the cliff of 128 / 65504."""
    peaks = torch.tensor([1e-3, 1.0, 0.00195, 0.00196], dtype=torch.float64)
    subject = prover(ONE)
    world: World[tuple[Tensor, Tensor]] = World(int(ranks[2:]))

    def program(groups: SimulatedGroups) -> tuple[Tensor, Tensor]:
        stack = subject.subject.package.load(ranks, groups)
        batch = stack.batch(rows_per_dp=[rows], padding="unpadded", mode="prefill")
        stack.start(batch)
        layer = stack.layer(0).bind(
            attention=Parameter(torch.ones(512, dtype=dtype)),
            mlp=Parameter(torch.ones(512, dtype=dtype)),
        )
        layer.attention.prepare(torch.zeros(rows, 512, dtype=dtype), batch)
        draw = torch.Generator().manual_seed(groups.rank)
        blocks = torch.rand(rows, 4, 128, generator=draw, dtype=torch.float64)
        blocks[..., 0] = 1.0
        partial = (blocks * peaks[:, None]).flatten(1).to(dtype)
        hidden = layer.attention.finish(partial.clone(), batch)
        layer.mlp.prepare(hidden, batch)
        return batch.stream.residual, partial

    done = world.run(program)
    exact = sum(partial.double() for _, partial in done)
    largest = exact.unflatten(1, (4, 128)).abs().amax(-1, keepdim=True)
    for residual, _ in done:
        assert residual.dtype is dtype
        assert residual.equal(done[0][0])
        error = (residual.double() - exact).unflatten(1, (4, 128)).abs()
        assert (error <= 0.01 * largest).all()


def test_it_is_generated_in_the_exit() -> None:
    _, files = compiled(ONE)
    text = files["tp4/ordinary.py"]

    assert f"    hidden = {INT8}\n    return stream.pend(hidden" in text
    assert "  quantized_all_reduce(tp)  completes the sum that mlp left over tp, as fp8" in text
    assert "when: batches in prefill of many rows\n" in text
    assert "when: batches other than those in prefill of many rows\n" in text
    assert 'Column("ordinary", mode="prefill")' in files["tp4/__init__.py"]


# The judge itself.


def _judged(form: str, damage: float) -> str | None:
    """Two parts of opposite sign, off by ``damage`` of what their format allows in one place."""
    sums, place, tokens = Sums(3), Place(0, "mlp"), torch.arange(3)
    draw = torch.Generator().manual_seed(0)
    parts = [torch.randn(3, 160, generator=draw, dtype=torch.float64) for _ in range(2)]
    for index, part in enumerate(parts):
        sums.bring(place, f"part {index}", part, tokens)
    right = parts[0] + parts[1]
    allowed = sum(
        part[1, 130].abs() / 16 + part[1, 128:].abs().max() * 2**-10 / 448
        if form == "fp8"
        else part[1, 128:].abs().max() / 254
        for part in parts
    )
    value = right.clone()
    value[1, 130] += damage * allowed
    return sums.judge(place, form, (0,), value, right, tokens)


@pytest.mark.parametrize("form", ["int8", "fp8"])
def test_the_bound_is_that_of_the_format(form: str) -> None:
    """Blocks are 128 columns and what remains; every part counts with its own largest number."""
    assert _judged(form, 0.999) is None
    assert _judged(form, -0.999) is None
    assert _judged(form, 1.01) is not None
    assert _judged(form, float("nan")) is not None
