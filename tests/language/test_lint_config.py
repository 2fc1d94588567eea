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
    assert run(["lint", str(stack), "--config", str(config)]) == 2
    config.write_text("{")
    assert run(["lint", str(stack), "--config", str(config)]) == 2
