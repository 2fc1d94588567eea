"""Numbers of a model's config that the stack file contradicts or ignores (scenario SC-3)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boundaryc.cli.run import run
from boundaryc.language import loads
from boundaryc.language.lint_config import lint_config

TEXT = """\
boundaryc: 1
stack: granite
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention, update: {scaled_add: 0.22}}
  mlp: {kind: ffn}
layers: {count: 4, default: [attention, mlp]}
topologies: {tp2: {tp: 2}}
variants: [ordinary]
"""


@pytest.mark.parametrize(
    ("config", "lines"),
    [
        ({"residual_multiplier": 0.22}, [7]),
        ({"residual_multiplier": 0.5}, [6, 7]),
        ({"residual_multiplier": 1.0}, []),
        ({"hidden_size": 128}, [3]),
        ({"rms_norm_eps": 1e-5, "num_hidden_layers": 5}, [4, 8]),
        ({"hidden_size": 64, "rms_norm_eps": 1e-6, "num_hidden_layers": 4, "vocab_size": 9}, []),
        ({"hidden_size": "wide", "num_hidden_layers": True}, []),
        ({"layer_norm_eps": 1e-5, "norm_epsilon": 1e-6}, [4]),
        ({"num_layers": 4, "num_hidden_layers": 8}, []),
        ({"mlp_multipliers": [0.5, 0.6]}, [7]),
        ({"mlp_multipliers": [0.5, 1.0]}, []),
        ({"num_local_experts": 8}, [5]),
        ({"num_local_experts": 8, "hybrid_override_pattern": "M-"}, []),
        ({"use_parallel_residual": True}, [5]),
        ({"use_parallel_residual": False}, []),
        ({"hc_mult": 4}, [3]),
        ({"scale_depth": 1.4, "layernorm_full_attention_alpha": 3.5}, [5, 5]),
        ({"routed_scaling_factor": 2.5, "logit_scale": 0.2, "scale_emb": 12, "depth": 3}, []),
    ],
)
def test_what_disagrees_is_named(config: dict[str, object], lines: list[int]) -> None:
    found = lint_config(loads(TEXT), config)

    assert [item.code for item in found] == ["BC607"] * len(lines)
    assert [item.span.start.line for item in found if item.span] == lines
    assert all(item.help for item in found)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack, config = tmp_path / "stack.yaml", tmp_path / "config.json"
    stack.write_text(TEXT)
    config.write_text(json.dumps({"residual_multiplier": 0.22}))

    assert run(["lint", str(stack), "--config", str(config)]) == 1
    assert "residual_multiplier = 0.22, `mlp` ignores it" in "".join(capsys.readouterr())
    config.write_text("[]")
    assert run(["lint", str(stack), "--config", str(config)]) == 1
    assert "error[BC103]: a config is an object in braces" in capsys.readouterr().err
    config.write_text(json.dumps({"text_config": {"residual_multiplier": 0.22}}, indent=1))
    assert run(["lint", str(stack), "--config", str(config)]) == 1
    shown = capsys.readouterr().out
    assert f"::: {config}:3:3\n" in shown
    assert "--------------------- what the config says\n" in shown


def test_experts_that_return_what_they_are_given() -> None:
    """Every rank has their output, so it is no part of the sum."""
    sparse = TEXT.replace("mlp: {kind: ffn", "mlp: {kind: ffn, sparse: true")
    config = {"zero_expert_num": 256, "n_routed_experts": 512}
    (found,) = lint_config(loads(sparse), config)

    assert "zero_expert_num = 256" in found.message
    tail = sparse.replace("sparse: true", "sparse: true, reduction: local_tail")
    assert lint_config(loads(tail), config) == ()
