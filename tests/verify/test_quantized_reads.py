"""Quantised inputs on every rank: each value the nearest number of its format, its scale right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc import runtime
from boundaryc.language.model import Quantize
from boundaryc.verify.fixture import Parameter
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.quantized import NUMBERS, judged, quantized, stands_for
from boundaryc.verify.scene import Cell
from boundaryc.verify.world import SimulatedGroups, World
from tests.verify.subjects import compiled, prover, share

Damage = Callable[[dict[str, str]], None]

LINK = "link: {latency_us: 0.001, bandwidth_gb_s: 1}"
"""Bytes count for so much that large batches move values and scales."""
HEAD = "boundaryc: 1\nstack: sample\nhidden_size: 4096\nnorm: {kind: rms, eps: 1.0e-6}\n"
STACK = f"""{HEAD}stages:
  attention: {{kind: attention, transform: norm, quantize: {{format: fp8, scale: static}}}}
  table: {{kind: attention, order: token, quantize: {{format: fp8, scale: token}}}}
  mlp: {{kind: ffn, transform: {{scale: 0.5}}, quantize: {{format: fp8, scale: group128}}}}
  experts:
    kind: ffn
    sparse: true
    read: raw
    update: {{scaled_add: 0.3}}
    quantize: {{format: int8, scale: token, keep: true}}
layers:
  count: 4
  default: [attention, experts]
  at: {{0: [attention, mlp], 2: [table, experts, mlp]}}
captures: {{eagle: {{after: [0, 2], rows: input}}}}
"""
MESHES = f"""topologies:
  tp1: {{tp: 1}}
  tp4: {{tp: 4, {LINK}}}
  dp2: {{tp: 4, attn_dp: 2, {LINK}}}
  dp4: {{tp: 4, attn_dp: 4, dense_tp: 1, {LINK}}}
  a2a: {{tp: 4, attn_dp: 2, moe: {{ep: 4, all_to_all: true}}, {LINK}}}
"""
SHARDED = f"""topologies:
  cp2: {{tp: 4, attn_dp: 2, attn_cp: 2, moe: {{dp: 2}}, {LINK}}}
  cp3: {{tp: 6, attn_cp: 3, {LINK}}}
"""
STACKS = {
    "ordinary and sequence parallel": f"{STACK}{MESHES}variants: [ordinary, sequence_parallel]\n",
    "context parallel": f"{STACK}{SHARDED}variants: [ordinary, context_parallel]\n",
    "input scattered": (
        STACK.replace("order: token, ", "")
        + f"topologies: {{tp4: {{tp: 4, {LINK}}}}}\nvariants: [input_scattered]\n"
    ),
    "raw reads that only codes leave": (
        STACK.replace(", keep: true", "").replace(
            "{kind: ffn, transform", "{kind: ffn, read: raw, transform"
        )
        + f"topologies: {{tp2: {{tp: 2, {LINK}}}}}\nvariants: [ordinary, sequence_parallel]\n"
    ),
    "reads on certain rows": (
        STACK.replace("transform: norm, ", "needs_every_row: [attn_tp], post_addition: true, ")
        .replace("transform: {scale: 0.5}, ", "before_gather: [attn_dp], ")
        .replace("order: token, ", "")
        + f"topologies: {{dp2: {{tp: 4, attn_dp: 2, {LINK}}}, dp3: {{tp: 3, attn_dp: 3}}}}\n"
        + "variants: [ordinary]\n"
    ),
}


@pytest.mark.parametrize("name", STACKS)
def test_every_pair_of_choices_holds(name: str) -> None:
    """Uneven and empty ranks, both sizes of batch, half of them with accessors in between."""
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


ONE = f"""{HEAD}stages:
  attention: {{kind: attention}}
  mlp: {{kind: ffn, quantize: {{format: fp8, scale: group128, keep: true}}}}
  gate: {{kind: ffn, quantize: {{format: fp8, scale: static}}}}
  dense: {{kind: ffn, read: raw, quantize: {{format: int8, scale: token}}}}
layers: {{count: 2, default: [attention, mlp, gate, dense]}}
topologies: {{dp2: {{tp: 2, attn_dp: 2, {LINK}}}}}
"""
GROUPS, OTHER = "to_fp8_group128(hidden)", '__import__("boundaryc.runtime").runtime'
SUMS = "add_int8(hidden, stream.residual)\n    return values, scales\n"
BROKEN = {
    "tokens in another order": (GROUPS, GROUPS.replace("(hidden)", "(hidden.flip(0))")),
    "one scale for all of a token": (
        GROUPS,
        f'{OTHER}.quantize_fp8(hidden, "token")',
    ),
    "another format": (
        SUMS,
        SUMS.replace("values, scales\n", f'{OTHER}.quantize_fp8(stream.residual, "token")\n'),
    ),
    "a scale of its own": (
        "        input_scale.input_scale,\n",
        "        1.0001 * input_scale.input_scale,\n",
    ),
    "no second output": ("return values, scales, hidden", "return values, scales"),
    "a second output that was rounded": (
        "return values, scales, hidden",
        "return values, scales, hidden.bfloat16().double()",
    ),
    "values that are shifted by a row": (
        "return values, scales, hidden",
        "return values.roll(1, 0), scales, hidden",
    ),
    "scales that are shifted by a row": (
        "return values, scales, hidden",
        "return values, scales.roll(1, 0), hidden",
    ),
    "values that were cut off": (
        SUMS,
        SUMS.replace("return values,", "return (stream.residual / scales).to(values.dtype),"),
    ),
    "a scale that is not shared": (SUMS, SUMS.replace("scales\n", "scales * 1.000001\n")),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_found(what: str) -> None:
    before, after = BROKEN[what]

    def damage(files: dict[str, str]) -> None:
        there = [name for name in files if "dp2/ordinary" in name and before in files[name]]
        assert there
        for name in there:
            files[name] = files[name].replace(before, after)

    cell = Cell("dp2", "ordinary", "ar", "sum_len", (5, 2), many=True)

    assert prover(ONE).run(cell).failure is None
    failure = prover(ONE, damage).run(cell).failure
    assert failure is not None
    assert "MismatchError" in failure


TRAVELLING = f"""{HEAD}stages:
  attention: {{kind: attention}}
  mlp: {{kind: ffn, quantize: {{format: fp8, scale: token}}}}
layers: {{count: 2, default: [attention, mlp]}}
topologies: {{dp2: {{tp: 2, attn_dp: 2, {LINK}}}}}
"""


def test_both_forms_are_generated() -> None:
    """Few rows are moved as they were read and quantised then, many as values beside scales."""
    _, files = compiled(TRAVELLING)
    text = files["dp2/ordinary.py"]
    moved = "\n".join(f"    {x} = groups.tp.all_gather({x})" for x in ("values", "scales"))

    read = "values, scales, stream.residual = add_rms_norm_fp8("
    assert f"    {read}hidden, stream.residual, norm.weight)\n{moved}\n" in text
    assert "    hidden = groups.tp.all_gather(hidden)\n    return to_fp8(hidden)" in text
    assert "all_gather(tp)  mlp computes on all rows: the values\n" in text
    assert "all_gather(tp)  mlp computes on all rows: their scales\n" in text


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("    scales = groups.tp.all_gather(scales", "    scales = groups.tp.all_gather(0 * scales",
         "MismatchError"),
        ("    scales = groups.tp.all_gather(scales, rows.tp.sizes)\n", "", "7 and 5 rows"),
        ("rows.tp.sizes)\n    scales", "rows.tp.sizes[::-1])\n    scales", "WorldError"),
    ],
)  # fmt: skip
def test_what_is_broken_on_the_way_is_found(before: str, after: str, why: str) -> None:
    def damage(files: dict[str, str]) -> None:
        there = [name for name in files if "dp2/ordinary" in name and before in files[name]]
        assert there
        for name in there:
            files[name] = files[name].replace(before, after)

    cell = Cell("dp2", "ordinary", "ar", "sum_len", (5, 2), many=True)

    assert prover(TRAVELLING).run(cell).failure is None
    failure = prover(TRAVELLING, damage).run(cell).failure
    assert failure is not None
    assert why in failure


def _entered(text: str, hidden: Tensor, **bound: Any) -> Any:
    """What the first stage of a stack on one rank is given for ``hidden``."""
    subject = prover(text)
    stack = subject.subject.package.load("one", SimulatedGroups(World[None](1), 0))
    batch = stack.batch(rows_per_dp=[hidden.shape[0]], padding="unpadded", mode="prefill")
    stack.start(batch)
    boundary = stack.layer(0).bind(**bound).attention
    return boundary.prepare(hidden, batch), batch


def _alone(quantize: str, read: str = "raw") -> str:
    return (
        HEAD.replace("4096", "256")
        + f"stages: {{attention: {{kind: attention, read: {read}, quantize: {quantize}}}}}\n"
        + "layers: {count: 1, default: [attention]}\ntopologies: {one: {tp: 1}}\n"
    )


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("scale", ["token", "group128"])
def test_zeros_and_no_rows(rows: int, scale: str) -> None:
    """A scale of 1 for zeros, and shapes that a kernel can rely on without rows."""
    hidden = torch.zeros(rows, 256)
    (values, scales), _ = _entered(_alone(f"{{format: fp8, scale: {scale}}}"), hidden)

    assert values.shape == (rows, 256)
    assert values.float().equal(hidden)
    assert scales.equal(torch.ones(rows, {"token": 1, "group128": 2}[scale]))


def test_a_static_scale_is_read_at_every_call_and_never_copied() -> None:
    class Module:
        input_scale = torch.tensor(0.5)

    text, hidden = _alone("{format: fp8, scale: static}"), torch.full((2, 256), 3.0)
    module = Module()
    (values, scales), _ = _entered(text, hidden, attention_input_scale=module)
    assert values.float().unique().tolist() == [6.0]
    assert scales is module.input_scale

    module.input_scale = torch.tensor(0.001)  # out of reach: 448 stands for 0.448
    (values, scales), _ = _entered(text, hidden, attention_input_scale=module)
    assert values.float().unique().tolist() == [448.0]
    assert scales is module.input_scale


def test_without_a_norm_the_input_itself_is_the_residual() -> None:
    """E100: what is quantised is a copy; the stream and the third tensor are the input."""
    hidden = torch.randn(3, 256)
    before = hidden.clone()
    (values, scales, kept), batch = _entered(
        _alone("{format: int8, scale: token, keep: true}"), hidden
    )

    assert kept is hidden
    assert batch.stream.residual is hidden
    assert hidden.equal(before)
    assert runtime.dequantize(values, scales).sub(hidden).abs().max() <= scales.max() / 2


def test_the_input_is_quantised_as_it_would_have_been_given() -> None:
    """In bfloat16 the norm is rounded first, so that the third tensor is what values stand for."""
    hidden = torch.randn(4, 256).bfloat16()
    norm = Parameter(torch.rand(256).bfloat16())
    plain, _ = _entered(
        _alone("{format: fp8, scale: token}", "norm").replace(
            ", quantize: {format: fp8, scale: token}", ""
        ),
        hidden,
        attention=norm,
    )
    for how in ("{format: fp8, scale: token, keep: true}", "{format: int8, scale: token}"):
        (values, scales, *kept), _ = _entered(_alone(how, "norm"), hidden, attention=norm)
        make = runtime.quantize_fp8 if "fp8" in how else runtime.quantize_int8
        right, right_scales = make(plain)
        assert values.view(torch.uint8).equal(right.view(torch.uint8))
        assert scales.equal(right_scales)
        assert [one.equal(plain) for one in kept] == [True] * len(kept)


def test_fu9_each_consumer_has_the_read_that_it_declares() -> None:
    """NVIDIA/TensorRT-LLM#15659: a dense layer before sparse ones, whose inputs alone are fp8."""
    text = f"""{HEAD}stages:
  attention: {{kind: attention}}
  mlp: {{kind: ffn}}
  experts: {{kind: ffn, sparse: true, quantize: {{format: fp8, scale: token}}}}
layers: {{count: 2, default: [attention, experts], at: {{0: [attention, mlp]}}}}
topologies: {{tp2: {{tp: 2}}}}
"""
    subject = prover(text)
    world: World[list[torch.dtype]] = World(2)

    def program(groups: SimulatedGroups) -> list[torch.dtype]:
        stack = subject.subject.package.load("tp2", groups)
        batch = stack.batch(rows_per_dp=[3], padding="unpadded", mode="decode")
        stack.start(batch)
        hidden, seen = torch.randn(3, 256).bfloat16(), []
        for index, ffn in enumerate(("mlp", "experts")):
            norms = {name: Parameter(torch.ones(256).bfloat16()) for name in ("attention", ffn)}
            layer = stack.layer(index).bind(**norms)
            x = layer.attention.prepare(hidden, batch)
            hidden = layer.attention.finish(torch.zeros_like(x), batch)
            given = getattr(layer, ffn).prepare(hidden, batch)
            seen += [one.dtype for one in (given if isinstance(given, tuple) else (given,))]
            with getattr(layer, ffn).exit(batch) as out:
                y = out.reduce_output(torch.zeros(3, 256).bfloat16())
            hidden = out.finish(y)
        return seen

    assert world.run(program) == [[torch.bfloat16, torch.float8_e4m3fn, torch.float32]] * 2
    assert subject.run(Cell("tp2", "ordinary", "auto", "sum_len", (3,))).failure is None


def test_parameters_of_an_output_keep_clear_of_those_of_the_read() -> None:
    """An update's `norm` and `values` that wait for the next stage are not that stage's own."""
    text = f"""{HEAD}stages:
  attention: {{kind: attention, update: squash, transform: bend}}
  mlp: {{kind: ffn, quantize: {{format: fp8, scale: static}}}}
operations:
  squash:
    {{role: update, call: "tests.verify.operations:squashed_add", facts: [outlives_producer],
     params: [norm, values]}}
  bend: {{role: transform, call: "tests.verify.operations:scaled_read", params: [input_scale]}}
layers: {{count: 2, default: [attention, mlp]}}
topologies: {{dp2: {{tp: 4, attn_dp: 2}}}}
"""
    text = text.replace("params: [input_scale]", "params: [value]")
    subject = prover(text)
    for index, cell in enumerate(covering(list(matrix(subject.subject.plan, Selection())))):
        for deeds in (None, index):
            assert subject.run(cell, deeds=deeds).failure is None


# The judge itself.


def test_the_listed_numbers_are_those_of_the_format() -> None:
    """By torch's own decoding of all codes; the last one is NaN."""
    codes = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).double()

    assert NUMBERS["fp8"].equal(codes)
    assert float(NUMBERS["fp8"][-1]) == torch.finfo(torch.float8_e4m3fn).max


@pytest.mark.parametrize(
    "how",
    [
        Quantize("fp8", "token", keep=False),
        Quantize("fp8", "group128", keep=False),
        Quantize("fp8", "static", keep=False),
        Quantize("int8", "token", keep=False),
    ],
)
def test_the_runtime_rounds_as_the_definition_says(how: Quantize) -> None:
    """Ties among them: exact halves go to the even code on both sides."""
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    x[0], x[1, :128] = 0.0, 0.0
    x[2] = torch.arange(256) / 2 - 63.5 if how.format == "int8" else x[2]
    x[2, 0] = 127.0 if how.format == "int8" else x[2, 0]
    scale = torch.tensor(0.01, dtype=torch.float32)
    expected = quantized(how, x, {"input_scale": scale})
    if how.format == "int8":
        values, scales = runtime.quantize_int8(x)
    else:
        static = scale if how.scale == "static" else None
        values, scales = runtime.quantize_fp8(x, how.scale, static)  # type: ignore[arg-type]

    assert judged(how, values, scales, expected, torch.arange(64)) is None
    near = (stands_for(values, scales) - expected.numbers).abs() <= 1e-6 * x.abs().max()
    assert near.double().mean() > 0.9999
    assert judged(how, values, scales, expected, torch.arange(64).flip(0)) is not None
    assert judged(replace(how, format="fp8" if how.format == "int8" else "int8"),
                  values, scales, expected, torch.arange(64)) is not None  # fmt: skip
