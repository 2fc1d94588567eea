"""Generated code passes the linters that hand-written code passes, as it is emitted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.emit.compiled import DRAFTS, MOE, ROOT, WIDE, family
from tests.verify.subjects import compiled as in_memory
from tests.verify.test_branch_cells import BASES
from tests.verify.test_operations import STACKS, text

FUSED = """boundaryc: 1
stack: fused
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention, norm: {kind: rms, eps: 1.0e-5, weight_offset: 1.0}}
  mlp: {kind: ffn, norm: {kind: layer, eps: 1.0e-6, bias: true}, update: sandwich}
  experts: {kind: ffn, sparse: true, reduction: scoped, finalize: deferred}
layers: {count: 4, default: [attention, experts], at: {"0": [attention, mlp]}}
topologies:
  tp4: {tp: 4}
  tp4_dp2: {tp: 4, attn_dp: 2}
fusion: {providers: [first, second]}
extras: {deepstack: {after: ["0-1"]}}
terminal: {norm: false}
"""
"""Calls that are long and stand in a branch of their own."""
LONG = """boundaryc: 1
stack: long_names
hidden_size: 64
norm: {kind: layer, eps: 1.0e-6}
stages: {aa: {kind: ffn, read: a}, bb: {kind: ffn, read: b}, cc: {kind: ffn, read: c}}
operations:
  a: {role: read, call: "tests.verify.operations:plain_read", facts: [plain_norm],
      params: [norm_with_a_long_one]}
  b: {role: read, call: "tests.verify.operations:plain_read", facts: [plain_norm],
      params: [a_norm_with_a_very_long_name_i]}
  c: {role: read, call: "tests.verify.operations:plain_read", facts: [plain_norm],
      params: [a_norm_with_a_very_long_name_indeed_ye]}
layers: {count: 1, default: [aa, bb, cc]}
topologies: {tp1: {tp: 1}}
"""
"""Checks of norms on one line, on three, and with one argument a line."""
STREAMS = """boundaryc: 1
stack: streams
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
residual: {kind: hyper_connections, streams: 4, iterations: 12, eps: 1.0e-5}
stages:
  attention: {kind: attention, norm: {kind: rms, eps: 1.0e-5, weight_offset: 1.0}}
  mlp: {kind: ffn, norm: {kind: layer, eps: 1.0e-6, bias: true}}
layers: {count: 2, default: [attention, mlp]}
captures: {eagle: {after: [0, 1], travels: true}, own: {before: [1], rows: input}}
topologies: {tp8_dp2_cp2: {tp: 8, attn_dp: 2, attn_cp: 2}}
variants: [ordinary, sequence_parallel]
pipeline: {payload: complete}
overlap: {two_batch: true}
"""
"""Reads and updates that take coefficients, with everything that a residual may meet."""
STAGES = """boundaryc: 1
stack: stages
hidden_size: 64
norm: {kind: layer, eps: 1.0e-6, bias: true}
stages:
  FIRST: {kind: attention, transform: norm}
  SECOND: {kind: ffn, additive: {down_projection_bias: rank0}}
  THIRD: {kind: ffn, sparse: true, update: mixes}
operations:
  mixes: {role: update, call: "tests.emit.operations:gated_add", params: [gate_of_the_residual],
          facts: [row_wise, outlives_producer]}
layers: {count: 4, default: [FIRST, THIRD], at: {0: [FIRST, SECOND], 1: [SECOND]}}
topologies: {tp4_dp2: {tp: 4, attn_dp: 2}, tp2: {tp: 2}}
variants: [ordinary, sequence_parallel]
captures: {eagle_hidden_states: {after: [1, 2]}}
pipeline: {payload: partial}
"""
LETTERS = STAGES.replace("FIRST", "a").replace("SECOND", "m").replace("THIRD", "e")
SPELLED = STAGES.replace("FIRST", "sliding_window_attention_gqa")
SPELLED = SPELLED.replace("SECOND", "gated_feed_forward_of_layer_0")
SPELLED = SPELLED.replace("THIRD", "mixture_of_many_small_experts")
"""Names that make capitals of a class, and names that fill lines."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both stacks as files, and those that have every construct of the language."""
    folder = tmp_path_factory.mktemp("style") / "generated"
    outputs = [built.output for source in (MOE, WIDE, DRAFTS) for built in family(source)]
    trees = {output.stack: dict(output.files) for output in outputs}
    trees |= {name: in_memory(text(name))[1] for name in STACKS}
    own = {"fused": FUSED, "long_names": LONG, "streams": STREAMS}
    own |= {"letters": LETTERS, "spelled": SPELLED}
    trees |= {name: in_memory(one)[1] for name, one in own.items()}
    trees |= {f"branch_{at}": in_memory(one)[1] for at, one in enumerate(BASES.values())}
    for stack, files in trees.items():
        for name, content in files.items():
            path = folder / stack / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    return folder


def run(*words: str) -> None:
    """Runs a module of this interpreter; its output is the failure's text."""
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing(tree: Path) -> None:
    """Under the rules of this repository."""
    run("ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml"), str(tree))


def test_the_layout_is_what_a_formatter_would_make(tree: Path) -> None:
    """No formatter runs when code is generated, so that its version cannot change the output."""
    config = ["--config", str(ROOT / "pyproject.toml")]
    run("ruff", "format", "--no-cache", "--check", *config, str(tree))


def test_mypy_finds_nothing(tree: Path) -> None:
    """Under strict rules."""
    run("mypy", "--config-file", str(ROOT / "pyproject.toml"), "--strict", str(tree))
