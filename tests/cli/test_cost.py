"""`boundaryc cost`: what topologies, variants and policies send, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boundaryc.cli import Exit, main
from boundaryc.report.schemas import result_schema
from tests.cli.process import ROOT
from tests.language.json_check import problems
from tests.report.example import QWEN3_MOE


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's stack file."""
    monkeypatch.chdir(tmp_path)
    Path("stack.yaml").write_text(QWEN3_MOE, encoding="utf-8")
    return "stack.yaml"


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What a command that succeeds prints as JSON, which satisfies its schema."""
    assert main(["cost", *words, "--json"]) == Exit.OK
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    schema = result_schema("cost")
    assert list(problems(found, schema, schema)) == []
    return found


def test_side_by_side_best_first(stack: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Few tokens: fewest collectives; many: fewest bytes; a policy that forbids costs more."""
    found = document(capsys, stack, "--tokens", "64,8192", "--policy", "auto", "--policy", "ar")
    lines = found["lines"]

    for tokens in (64, 8192):
        took = [one["microseconds"] for one in lines if one["tokens"] == tokens]
        assert took == sorted(took)
        assert len(took) == 8
    best = next(one for one in lines if one["tokens"] == 8192)
    assert (best["topology"], best["variant"], best["size"]) == ("tp8_dp4", "ordinary", "many")
    assert (best["layer_collectives"], best["layer_bytes"]) == (4, 8192.0 * 8192)
    assert best["forward_collectives"] == 48 * 4 + 1
    link = (48 * 4 + 1) * 10 + best["forward_bytes"] / 300e3  # 10 us each, 300 GB/s
    assert best["microseconds"] == round(link, 3)
    few = next(one for one in lines if one["tokens"] == 64 and one["topology"] == "tp8_dp4")
    assert (few["size"], few["layer_collectives"], few["layer_bytes"]) == ("few", 2, 14336.0 * 64)


@pytest.mark.parametrize(
    ("example", "layer", "collectives"),
    [("deepseek_v3", ["attention", "experts"], 2), ("nemotron_h", ["mamba"], 1)],
)
def test_a_layer_is_one_of_those_that_it_names(
    example: str, layer: list[str], collectives: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the first, which is another one or has nothing before it; each sum is 192 bytes."""
    file = str(ROOT / f"examples/{example}/stack.yaml")
    found = document(capsys, file, "--topology", "tp4", "--tokens", "4096")
    line = next(one for one in found["lines"] if one["variant"] == "ordinary")

    assert found["layer"] == layer
    assert line["layer_collectives"] == collectives
    assert line["layer_bytes"] == 192.0 * 4096 * collectives


def test_topologies_and_links_that_the_file_does_not_have(
    stack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """How a stack grows; and plans follow the link."""
    asked = [f"{{tp: {tp}, attn_dp: 4, moe: {{ep: {tp}}}}}" for tp in (8, 64)]
    words = [word for one in asked for word in ("--topology", one)]
    found = document(capsys, stack, *words, "--tokens", "512", "--variant", "ordinary")
    slow = document(capsys, stack, *words, "--tokens", "512", "--latency", "0", "--bandwidth", "1")

    assert [one["topology"] for one in found["lines"]] == ["tp8_attn_dp4_ep8", "tp64_attn_dp4_ep64"]
    assert found["lines"][0]["size"] == "few"
    assert slow["lines"][0]["size"] in ("many", "")
    assert slow["lines"][0]["forward_bytes"] < found["lines"][0]["forward_bytes"]


def test_text(
    stack: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table; on a narrow terminal a list."""
    monkeypatch.delenv("COLUMNS", raising=False)  # a run on several processes sets it
    words = ["cost", stack, "--tokens", "8192", "--topology", "tp8", "--variant", "ordinary"]
    assert main(words) == Exit.OK
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "60")
    assert main(words) == Exit.OK
    narrow = capsys.readouterr().out

    assert "tp8           8  ordinary  rs+rsv  8,192           2  117,440,512" in wide
    assert "- topology: tp8, ranks: 8, variant: ordinary" in narrow
    assert max(map(len, narrow.splitlines())) <= 60


def test_what_there_is_not(stack: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Ends with 2, and says what there is; what a batch is too small for is said too."""
    for words, said in (
        (("--tokens", "1,x"), "--tokens: 1,x is not numbers"),
        (("--topology", "tp9"), "has no topology 'tp9'"),
        (("--policy", "x"), "unknown name 'x'"),
        (("--topology", "tp8", "--topology", "{tp: 8}"), "exclude each other"),
    ):
        assert main(["cost", stack, *words]) == Exit.UNUSABLE
        assert said in " ".join(capsys.readouterr().err.split())
    Path("cp.yaml").write_text(
        QWEN3_MOE.replace("attn_dp: 4", "attn_cp: 4").replace("sequence_p", "context_p"), "utf-8"
    )
    words = ("cp.yaml", "--topology", "tp8_dp4", "--tokens", "1")
    assert document(capsys, *words)["left_out"] == [
        "context_parallel on tp8_dp4: 1 tokens are too few to be dealt out"
    ]
