"""Configs as public models have them: each becomes a stack file that says what its model does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boundaryc.emit.diagnose import planned_family
from boundaryc.language import BoundarycError, Severity
from boundaryc.language.lint import lint
from boundaryc.scaffold.config import parse_config, read_config
from boundaryc.scaffold.families import FAMILIES
from boundaryc.scaffold.start import Started, started
from tests.cli.process import ROOT

CONFIGS = sorted((ROOT / "tests/fixtures/configs").glob("*.json"))
SHAPES = {
    "cohere2": (4096, 32),
    "deepseek_v3": (7168, 61),
    "falcon_h1": (1024, 36),
    "gemma3": (2560, 34),
    "glm4": (4096, 40),
    "glm5_next": (4096, 45),
    "granite": (4096, 40),
    "llama": (4096, 32),
    "longcat_flash": (6144, 28),
    "mixtral": (4096, 32),
    "nemotron_h": (2688, 52),
    "olmo2": (4096, 32),
    "qwen3": (4096, 36),
    "qwen3_moe": (2048, 48),
    "qwen3_vl_text": (2560, 36),
    "starcoder2": (4608, 32),
}
"""Widths and depths of the public models."""


def made(name: str, **changes: Any) -> Started:
    """What becomes of a public config with some keys changed; None removes one."""
    said = json.loads((ROOT / f"tests/fixtures/configs/{name}.json").read_text("utf-8"))
    inner = said.get("text_config", said)
    inner.update(changes)
    text = json.dumps({**said, **({"text_config": inner} if inner is not said else inner)})
    return started(parse_config(text, "config.json"), (), (), "stack.yaml")


def test_every_family_has_a_config() -> None:
    """Under the name of its stacks."""
    assert {path.stem for path in CONFIGS} == {one.name for one in FAMILIES.values()} == {*SHAPES}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_public_config(path: Path) -> None:
    """Nothing is left to its author, lint has nothing to warn of, and it compiles."""
    found = started(read_config(path), (), (), "stack.yaml")

    assert found.findings == ()
    assert found.text.startswith("# yaml-language-server: $schema=")
    assert max(map(len, found.text.splitlines())) <= 100
    assert (found.stack.hidden_size, len(found.stack.layers)) == SHAPES[path.stem]
    warned = [one for one in lint(found.stack, found.text) if one.severity is not Severity.NOTE]
    assert warned == []
    assert planned_family(found.stack, {})


@pytest.mark.parametrize(
    ("name", "changes", "line"),
    [
        ("granite", {"residual_multiplier": 1.0}, "  mlp: {kind: ffn}"),
        ("granite", {"residual_multiplier": 1e-05}, "scaled_add: 1.0e-5}"),
        ("falcon_h1", {"mlp_multipliers": None}, "  mlp: {kind: ffn}"),
        ("deepseek_v3", {"q_lora_rank": None}, "  attention: {kind: attention}"),
        ("deepseek_v3", {"first_k_dense_replace": 0}, "layers: {count: 61, default: [attention,"),
        ("longcat_flash", {"zero_expert_num": 0}, "  experts: {kind: ffn, sparse: true}"),
        ("longcat_flash", {"num_layers": None, "num_hidden_layers": 56}, "layers: {count: 28,"),
        ("qwen3_moe", {"mlp_only_layers": [0, 1]}, "at: {0-1: [attention, mlp]}}"),
        ("qwen3_moe", {"decoder_sparse_step": 2, "num_hidden_layers": 8}, 'pattern: "ABABABAB"'),
        ("qwen3_moe", {"num_experts": 0}, "layers: {count: 48, default: [attention, mlp]}"),
        ("glm4", {"rms_norm_eps": None}, "eps: 1.5625e-7} # Transformers' rms_norm_eps"),
        ("llama", {"mlp_bias": True}, "# Output projections have biases (mlp_bias)."),
        ("llama", {"num_nextn_predict_layers": 1}, "# num_nextn_predict_layers: layers of multi"),
        (
            "nemotron_h",
            {"hybrid_override_pattern": "M-M*", "num_hidden_layers": 4},
            "at: {1: [mlp], 3: [attention]}",
        ),
        ("glm5_next", {"hc_mult": 2}, "streams: 2, iterations: 20, eps: 1.0e-6}"),
    ],
)
def test_what_a_config_decides(name: str, changes: dict[str, Any], line: str) -> None:
    """Beside sizes; null is as if the key were absent."""
    found = made(name, **changes)

    assert line in found.text, found.text
    assert found.findings == ()


def test_a_draft_only_where_layers_are_counted() -> None:
    """DeepSeek-V3's layer of multi-token prediction."""
    assert [one.name for one in made("deepseek_v3").stack.drafts] == ["deepseek_v3_nextn"]
    assert made("deepseek_v3", num_nextn_predict_layers=0).stack.drafts == ()


EMPTY = {"hybrid_override_pattern": None, "layers_block_type": []}


@pytest.mark.parametrize(
    ("name", "changes", "code", "said"),
    [
        ("llama", {"hidden_size": None}, "BC102", "`hidden_size` is missing"),
        ("llama", {"hidden_size": "wide"}, "BC103", "is a whole number, and here it is 'wide'"),
        ("llama", {"hidden_size": True}, "BC103", "is a whole number, and here it is True"),
        ("llama", {"num_hidden_layers": 0}, "BC104", "`num_hidden_layers` is 0"),
        ("llama", {"rms_norm_eps": float("nan")}, "BC103", "`rms_norm_eps` is a number"),
        ("llama", {"rms_norm_eps": 5}, "BC104", "`rms_norm_eps` is 5"),
        ("llama", {"attention_bias": "no"}, "BC103", "`attention_bias` is true or false"),
        ("granite", {"residual_multiplier": -1}, "BC104", "`residual_multiplier` is -1"),
        ("falcon_h1", {"mlp_multipliers": [1]}, "BC104", "is a list of 2 numbers"),
        ("nemotron_h", {"hybrid_override_pattern": "MX"}, "BC105", "has 'X', and only"),
        ("nemotron_h", {"hybrid_override_pattern": None}, "BC102", "`layers_block_type` is"),
        ("nemotron_h", EMPTY, "BC104", "`layers_block_type` is an empty list"),
        ("nemotron_h", {"hybrid_override_pattern": "M" * 10_001}, "BC104", "is of 10001 layers"),
        ("glm5_next", {"hc_mult": 1}, "BC104", "`hc_mult` is 1, and may be 2 to 64"),
        ("glm5_next", {"layer_types": []}, "BC104", "`layer_types` is an empty list"),
        ("glm5_next", {"mlp_layer_types": ["dense"]}, "BC213", "is of 1 layers, and the model has"),
        ("glm5_next", {"layer_types": ["odd: {}"] * 45}, "BC105", "has 'odd: {}', and only"),
        ("longcat_flash", {"zero_expert_type": "drop"}, "BC105", "is 'drop', and only `identity`"),
        ("qwen3_moe", {"mlp_only_layers": ["0"]}, "BC104", "has '0', and its numbers are"),
    ],
)
def test_what_a_config_cannot_say(name: str, changes: dict[str, Any], code: str, said: str) -> None:
    """Each mistake has a code, the key's place in the config, and a remedy."""
    with pytest.raises(BoundarycError) as caught:
        made(name, **changes)

    (found,) = caught.value.diagnostics
    assert (found.code, found.span.file if found.span else "") == (code, "config.json")
    assert said in found.message
    assert found.help


def test_all_mistakes_at_once() -> None:
    """A config is read to its end."""
    with pytest.raises(BoundarycError) as caught:
        made("llama", hidden_size=None, num_hidden_layers=-1, rms_norm_eps="small")

    assert [one.code for one in caught.value.diagnostics] == ["BC102", "BC103", "BC104"]
