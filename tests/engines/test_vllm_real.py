"""The real vLLM on two gloo ranks, in processes of the interpreter that has it.

BOUNDARYC_VLLM_PYTHON names an interpreter with vLLM 0.33.0 and torch for the CPU;
examples/engines/vllm/README.md says which of vLLM's requirements it needs. Without it nothing here
runs.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import boundaryc
from examples.engines.vllm import run
from examples.engines.vllm.worker import CASES
from tests.engines.tiny import SAMPLE
from tests.engines.vllm_compiled import ROWS
from tests.engines.vllm_ranks import FACTS

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "BOUNDARYC_VLLM_PYTHON"
PYTHON = os.environ.get(VARIABLE, "")

pytestmark = pytest.mark.skipif(
    not PYTHON, reason=f"{VARIABLE} does not name an interpreter that has vLLM"
)


def test_the_facts_are_still_true() -> None:
    """`vllm_facts.json` is what the installed package says."""
    done = subprocess.run(
        [PYTHON, "-m", "tests.engines.vllm_facts"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == FACTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all ranks wrote what they found, after one import of vLLM."""
    made = tmp_path_factory.mktemp("vllm")
    (made / "sample.yaml").write_text(SAMPLE, "utf-8")
    for stack in (made / "sample.yaml", run.STACK):
        boundaryc.compile(stack, out=made / "generated")
    run.execute(PYTHON, made, "tests.engines.vllm_program")
    return made


@pytest.fixture
def program(folder: Path) -> list[dict[str, Any]]:
    """What `vllm_program` reports on each rank."""
    return _reports(folder, "program")


def _reports(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{name}-{rank}.json").read_text("utf-8")) for rank in (0, 1)]


@pytest.mark.parametrize("what", ["tp", "dp", "created", "linears"])
def test_coordinators_and_skip_flags(program: list[dict[str, Any]], what: str) -> None:
    assert [report[what] for report in program] == [[], []]


def test_a_whole_stack(program: list[dict[str, Any]]) -> None:
    """Every rank's rows are those of the one-rank float64 model, uneven and empty ranks too."""
    for rank, report in enumerate(program):
        assert [rows for _, rows in report["tp2"]] == [5, 1]
        assert [rows for _, rows in report["tp2_dp2"]] == [[3, 4, 0, 2], [1, 0, 5, 2]][rank]
        for difference, rows in report["tp2"] + report["tp2_dp2"]:
            assert difference <= 1e-12
            assert difference > 0 or not rows


def test_a_model_that_vllm_compiles(folder: Path) -> None:
    """One graph, of 16 rows, serves all numbers of rows although its guards are dropped."""
    for report in _reports(folder, "compiled"):
        assert report["graphs"] == 1
        for (difference, rows), wanted in zip(report["found"], ROWS, strict=True):
            assert rows == wanted
            assert 0 < difference <= run.TOLERANCE


def test_contexts_agree_over_dp(program: list[dict[str, Any]]) -> None:
    """Each rank knows both counts; vLLM's slices over TP are ours with pads."""
    for report in program:
        assert report["agreed"] == {"rows": [5, 2], "slices": [3, 3, 1, 1]}


def test_a_moe_that_leaves_its_sum(program: list[dict[str, Any]]) -> None:
    """The runner that `FusedMoEFactory` makes is taken where it leaves its sum."""
    for report in program:
        assert report["moe"]["False"] == "kept"
        assert "make it with FusedMoEFactory(reduce_results=False)" in report["moe"]["True"]


def test_qwen3_between_compiled_boundaries(folder: Path) -> None:
    """Every row of every rank is that of the one-rank float64 model."""
    for found in run.read(folder):
        for (lengths, variant), (difference, rows) in zip(CASES, found, strict=True):
            assert rows == sum(lengths)
            assert 0 < difference <= run.TOLERANCE, (lengths, variant)
