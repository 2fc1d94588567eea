"""The real SGLang on two gloo ranks, in processes of the interpreter that has it.

BOUNDARYC_SGLANG_PYTHON names an interpreter with SGLang 0.5.23; its GPU parts are not needed, see
`examples/engines/sglang/standins.py`. Without it nothing here runs.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.engines.sglang import run
from examples.engines.sglang.worker import CASES
from tests.engines.ranks import FACTS

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "BOUNDARYC_SGLANG_PYTHON"
PYTHON = os.environ.get(VARIABLE, "")

pytestmark = pytest.mark.skipif(
    not PYTHON, reason=f"{VARIABLE} does not name an interpreter that has SGLang"
)


def test_the_facts_are_still_true() -> None:
    """`sglang_facts.json` is what the installed package says."""
    done = subprocess.run(
        [PYTHON, "-m", "tests.engines.sglang_facts"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == FACTS


def test_qwen3_between_compiled_boundaries(tmp_path: Path) -> None:
    """Every row of every rank is that of the one-rank float64 model; uneven and empty ranks too."""
    results = run.measure(PYTHON, tmp_path)
    assert len(results) == len(CASES) * run.RANKS
    for (topology, rank), found in results.items():
        for (lengths, facts), (difference, rows) in zip(CASES[topology], found, strict=True):
            own = lengths[rank if len(lengths) > 1 else 0]
            assert rows == sum(own)
            assert difference <= run.TOLERANCE, (topology, rank, lengths, facts)
            assert difference > 0 or not rows


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What `sglang_program` reports on each rank."""
    folder = tmp_path_factory.mktemp("program")
    run.ranks(PYTHON, folder, {"program": ["tests.engines.sglang_program", folder]})
    return [json.loads((folder / f"program-{rank}.json").read_text("utf-8")) for rank in (0, 1)]


def test_coordinators(program: list[dict[str, Any]]) -> None:
    assert [report["moves"] for report in program] == [[], []]


def test_skip_flags(program: list[dict[str, Any]]) -> None:
    assert [report["linears"] for report in program] == [[], []]


def test_the_fused_kernel_is_not_asked_on_a_cpu(program: list[dict[str, Any]]) -> None:
    assert [report["kernel"] for report in program] == ["declined", "declined"]


def test_declared_stages(program: list[dict[str, Any]]) -> None:
    """Of five models; that of EXAONE 4 is the migrated file's."""
    found = program[0]["stages"]
    dense = {"attention": {"kind": "attention"}, "mlp": {"kind": "ffn"}}
    experts = {"kind": "ffn", "sparse": True}
    sandwich = {name: {**stage, "update": "sandwich"} for name, stage in dense.items()}
    assert found["qwen3"]["stages"] == dense
    assert found["qwen3_moe"]["stages"] == {"attention": dense["attention"], "experts": experts}
    assert found["glm4"]["stages"] == sandwich
    before = {"before_gather": ["attn_dp"]}
    mixer = {"kind": "mixer", "gathers_tp_input": False, **before}
    hybrid = {"mixer": mixer, "mlp": {"kind": "ffn", **before}, "experts": {**experts, **before}}
    assert found["nemotron_h_utils"]["stages"] == hybrid
    text = (ROOT / "examples/engines/sglang/exaone4/stack.yaml").read_text("utf-8")
    assert found["exaone4"]["stages"] == yaml.safe_load(text)["stages"]
