"""Norms that differ: an offset on the weight, and a stage's own, by values on simulated ranks."""

from __future__ import annotations

import pytest
import torch

from boundaryc.language import loads
from boundaryc.language.model import NormSpec
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.meaning import normalised
from boundaryc.verify.run import Prover
from boundaryc.verify.world import World
from tests.verify.subjects import compiled, prover

HEAD = """\
boundaryc: 1
stack: sample
hidden_size: 64
"""
TOPOLOGIES = """\
topologies: {tp2: {tp: 2}, tp4_dp2: {tp: 4, attn_dp: 2}, tp4_cp2: {tp: 4, attn_cp: 2}}
variants: [ordinary, context_parallel, sequence_parallel]
"""
OWN = """\
norm: {kind: rms, eps: 1.0e-6, weight_offset: 1}
stages:
  attention: {kind: attention, norm: {kind: rms, eps: 0.25, weight_offset: 1}, transform: norm}
  mlp: {kind: ffn, norm: {kind: rms, eps: 0.5, weight_offset: -0.5, accumulate: rounded}}
  experts: {kind: ffn, sparse: true, update: {scaled_add: 0.5}, norm: {kind: rms, eps: 0.125},
            quantize: {format: fp8, scale: token}}
layers: {pattern: "DEED", stages: {D: [attention, mlp], E: [attention, experts]}}
captures: {shown: {after: [1, 3], rows: producer}}
drafts: {next: {layers: {count: 1, default: [attention, experts]}}}
"""
KINDS = """\
norm: {kind: layer, eps: 0.125, bias: true}
stages:
  attention: {kind: attention, norm: {kind: layer, eps: 0.25, weight_offset: 1}, transform: norm}
  mlp: {kind: ffn, norm: {kind: rms, eps: 0.5, accumulate: rounded}}
  experts: {kind: ffn, sparse: true, transform: norm}
  plain: {kind: ffn, norm: {kind: none}}
layers: {pattern: "DEP", stages: {D: [attention, mlp], E: [attention, experts], P: [plain]}}
"""
NONE = """\
norm: {kind: none}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn, transform: norm, norm: {kind: layer, eps: 0.5}}
  experts: {kind: ffn, sparse: true, reduction: local_tail}
layers: {pattern: "DE", stages: {D: [attention, mlp], E: [attention, experts]}}
"""
MINE = """\
norm: {kind: rms, eps: 1.0e-6}
stages: {attention: {kind: attention, read: mine}, mlp: {kind: ffn}}
operations:
  mine: {role: read, call: "tests.verify.operations:plain_read", params: [scale],
         facts: [plain_norm, row_wise]}
layers: {count: 2, default: [attention, mlp]}
"""
UNIT = """\
norm: {kind: rms, eps: 1.0e-30, weight_offset: 1}
stages: {attention: {kind: attention}, mlp: {kind: ffn}}
layers: {count: 2, default: [attention, mlp]}
topologies: {tp2: {tp: 2}}
"""


@pytest.fixture(scope="module")
def own() -> Prover:
    """A stack in which every stage has a norm of its own."""
    return prover(HEAD + OWN + TOPOLOGIES)


def test_nm3_each_stage_normalises_with_its_own_norm(own: Prover) -> None:
    """NVIDIA/TensorRT-LLM#7509: every rank agrees with float64, in which each eps shows."""
    known = list(matrix(own.subject.plan, Selection(paddings=("sum_len",), policies=("auto",))))
    cells = covering(known)
    done = [own.run(cell, deeds=seed) for seed, cell in enumerate(cells)]
    assert len(cells) > 20
    assert [f"{one.cell}: {one.failure}" for one in done if one.failure] == []


@pytest.mark.parametrize("norms", [KINDS, NONE], ids=["layer", "none"])
def test_every_kind_of_norm_holds_on_simulated_ranks(norms: str) -> None:
    """Means are subtracted, biases added, and what has no norm is the residual."""
    subject = prover(HEAD + norms + TOPOLOGIES)
    selected = Selection(paddings=("sum_len",), policies=("auto",))
    cells = covering(list(matrix(subject.subject.plan, selected)))
    done = [subject.run(cell, deeds=seed) for seed, cell in enumerate(cells)]
    assert len(cells) > 20
    assert [f"{one.cell}: {one.failure}" for one in done if one.failure] == []


def test_a_read_that_equals_the_norm_is_fused_with_its_own_param() -> None:
    """It is called where it stands alone, and is the stack's norm behind an addition."""
    text = HEAD + MINE + TOPOLOGIES
    module = compiled(text)[1]["tp2/ordinary.py"]
    assert "return plain_read(stream.residual, scale)" in module
    assert "add_rms_norm(hidden, stream.residual, scale.weight)" in module
    subject = prover(text)
    selected = Selection(paddings=("sum_len",), policies=("auto",), variants=("ordinary",))
    done = [subject.run(cell) for cell in covering(list(matrix(subject.subject.plan, selected)))]
    assert [f"{one.cell}: {one.failure}" for one in done if one.failure] == []


def test_kinds_as_generated() -> None:
    """Each is called by its own function; a layer binds what the norm needs."""
    files = compiled(HEAD + KINDS + TOPOLOGIES)[1]
    text = files["tp2/ordinary.py"]
    assert "hidden, stream.residual = layer_add_rms_norm(\n" in text
    assert "        output_eps=0.25,\n        output_offset=1.0,\n        eps=0.5,\n" in text
    assert "biased_add(hidden, stream.residual, output_norm.weight, output_norm.bias)" in text
    assert "experts: BiasedNorm" in files["layers.py"]
    assert "plain: " not in files["layers.py"].partition("def bind")[2].partition("class ")[0]
    none = compiled(HEAD + NONE + TOPOLOGIES)[1]["tp2/ordinary.py"]
    assert "batch: Batch, norm: None) -> Tensor:" in none
    assert "rms_norm" not in none


def test_nm3_generated_calls_say_where_a_norm_is_another_one() -> None:
    """The stack's is the default of what is called; what no stage changes is no argument."""
    _, files = compiled(HEAD + OWN + TOPOLOGIES)
    text = files["tp2/ordinary.py"]
    assert "        output_eps=0.25,\n        eps=0.5,\n" in text
    assert "rms_norm(stream.residual, norm.weight, eps=0.25)" in text
    assert "        eps=0.5,\n        offset=-0.5,\n        rounded=True,\n" in text
    assert "(x: Tensor, weight: Tensor, eps: float = EPS, offset: float" in files["rowwise.py"]
    unit = compiled(HEAD + UNIT)[1]
    assert "offset=" not in unit["tp2/ordinary.py"]
    assert "kernels.rms_norm(x, weight)" in unit["rowwise.py"]


def test_nm1_the_offset_is_added_in_float32_on_every_path() -> None:
    """linkedin/Liger-Kernel#1462: a weight of 0.00390625 in bfloat16 scales by 1.00390625."""
    package = prover(HEAD + UNIT).subject.package
    small = type("Small", (), {"weight": torch.full((64,), 2.0**-8, dtype=torch.bfloat16)})

    def forward(groups: object) -> list[list[float]]:
        stack = package.load("tp2", groups)
        batch = stack.batch(rows_per_dp=[2], padding="sum_len", mode="prefill")
        stack.start(batch)
        layer = stack.layer(0).bind(attention=small, mlp=small)
        seen = [layer.attention.prepare(torch.ones(2, 64), batch)]
        hidden = layer.attention.finish(torch.full((2, 64), 0.5), batch)
        seen.append(layer.mlp.prepare(hidden, batch))
        with layer.mlp.exit(batch) as output:
            hidden = torch.full((2, 64), 0.5)
        hidden = output.finish(hidden)
        layer = stack.layer(1).bind(attention=small, mlp=small)
        seen.append(layer.attention.prepare(hidden, batch))
        return [x.unique().tolist() for x in seen]

    world: World[list[list[float]]] = World(2)
    assert world.run(forward) == [[[1.00390625]] * 3] * 2


def test_the_oracle_knows_both() -> None:
    """Against what is written out: mean square 12.5, eps 12.5, so a divisor of 5."""
    x = torch.tensor([[3.0, 4.0, 3.0, 4.0]], dtype=torch.float64)
    weight = torch.tensor([0.0, 0.0, 1.0, -1.0], dtype=torch.float64)
    found = normalised(x, weight, NormSpec("rms", 12.5, "fp32", 1.0))
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8, 1.2, 0.0]], dtype=torch.float64))
    layer = normalised(x, weight, NormSpec("layer", 0.75, "fp32", 1.0))
    expected = torch.nn.functional.layer_norm(x, (4,), 1 + weight, None, 0.75)
    torch.testing.assert_close(layer, expected)
    biased = normalised(x, weight, NormSpec("layer", 0.75, "fp32", 1.0, bias=True))
    torch.testing.assert_close(biased, expected + torch.sin(5 * weight))
    assert normalised(x, weight, NormSpec("none", 0.0, "fp32")) is x


def test_a_norm_that_is_the_stacks_is_none_of_its_own() -> None:
    """Written out or not, it is the same stack; a draft's stages keep theirs."""
    text = HEAD + UNIT
    same = text.replace("mlp: {", "mlp: {norm: {kind: rms, eps: 1.0e-30, weight_offset: 1.0}, ")
    assert loads(same) == loads(text)
    (draft,) = loads(HEAD + OWN + TOPOLOGIES).drafts
    assert draft.norm_of("experts") == NormSpec("rms", 0.125, "fp32")
    assert draft.norm_of("final") == NormSpec("rms", 1e-6, "fp32", 1.0)
