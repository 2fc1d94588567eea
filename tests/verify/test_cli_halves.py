"""`boundaryc verify` of a stack whose batches may be split into two that overlap."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from boundaryc.cli import main
from boundaryc.language import loads
from boundaryc.plan.compose import plan_stack
from boundaryc.verify.matrix import Selection, matrix

STACK = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages: {attention: {kind: attention}, mlp: {kind: ffn}}
layers: {count: 2, default: [attention, mlp]}
topologies: {tp4_dp2: {tp: 4, attn_dp: 2}}
overlap: {two_batch: true}
"""
GATED = """\
pipeline: {payload: partial}
operations: {gated: {role: update, call: "tests.emit.operations:gated_add", params: [gate],
                     facts: [outlives_producer]}}
"""


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command for a few cells of a compiled stack, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("stack.yaml").write_text(STACK)
    assert main(["compile", "stack.yaml"]) == 0
    return ["verify", "stack.yaml", "--policy", "ar", "--padding", "sum_len", "--size", "few"]


def test_both_kinds_of_halves_run_and_are_told(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole, and split with FFNs in exits and without; the summary says how many."""
    assert main([*words, "--rows", "5,3"]) == 0
    shown = capsys.readouterr()
    assert "3 of 3 cells hold" in shown.err
    assert " ".join(shown.out.split()).endswith(" 2 cells in two halves")

    assert main([*words, "--halves", "alone", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {cell["cell"]["halves"] for cell in document["cells"]} == {"alone"}
    assert len(document["cells"]) > 3
    assert main([*words, "--halves", "both"]) == 2
    assert "there is none, exits, alone" in capsys.readouterr().err


def test_a_half_that_fails_is_rerun_by_the_line_it_shows(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only runs without exits is broken: the shown command fails in the same cell."""

    def lose(*parts: object, **_: object) -> None:
        raise ValueError("half a batch is lost")

    monkeypatch.setattr("boundaryc.runtime.FfnBoundary.postprocess", lose)
    assert main([*words, "--rows", "2,1"]) == 1
    shown = capsys.readouterr().err
    assert "2 of 3 cells hold" in shown
    line = shown.partition("rerun: boundaryc ")[2].splitlines()[0]
    assert "--halves alone" in line
    assert main(shlex.split(line)) == 1
    assert "0 of 1 cells hold" in capsys.readouterr().err


def test_only_what_can_be_folded_is_cut_without_exits() -> None:
    """With an update that is not plain halves run in exits where the stack is cut."""
    text = STACK.replace("mlp: {kind: ffn}", "mlp: {kind: ffn, update: gated}") + GATED
    found = {(bool(c.cuts), c.halves) for c in matrix(plan_stack(loads(text)), Selection())}
    every = {(cut, halves) for cut in (False, True) for halves in ("", "exits", "alone")}
    assert found == every - {(True, "alone")}
