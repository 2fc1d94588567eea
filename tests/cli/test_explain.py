"""`boundaryc explain`: answers from the tool alone, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boundaryc.cli import Exit, main
from boundaryc.report.schemas import result_schema
from tests.cli.process import ROOT, command
from tests.language.json_check import problems
from tests.report.example import QWEN3_MOE


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's stack file, in the current directory."""
    monkeypatch.chdir(tmp_path)
    path = Path("stack.yaml")
    path.write_text(QWEN3_MOE, encoding="utf-8")
    return path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that succeeds prints."""
    assert main(["explain", *words]) == Exit.OK
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The same as JSON, which satisfies its published schema."""
    found: dict[str, Any] = json.loads(told(capsys, *words, "--json"))
    schema = result_schema(found["kind"])
    assert list(problems(found, schema, schema)) == []
    assert list(problems({**found, "more_than_that": 1}, schema, schema))
    return found


def test_a_layer_on_a_data_parallel_topology(
    stack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which collectives, how many bytes, why no reduce-scatter, and which line to change."""
    words = ("stack.yaml:5", "--topology", "tp8_dp4", "--batch", "300,200,0,100")
    text = " ".join(told(capsys, *words).split())

    assert "2 collectives, 14,336 bytes a token and rank, 8,601,600 bytes a rank" in text
    assert "all_reduce(tp), placed all_reduce(tp)" in text
    assert "few rows: up to 976 of all groups" in text
    assert "reduce-scatter: possible as reduce_scatter(attn_tp) + all_gather(tp)" in text
    assert "it sends 3,072 bytes a token less (above" in text
    assert "stack.yaml:11 topologies.tp8_dp4.link" in text
    assert "11 | tp8_dp4: {tp: 8, attn_dp: 4, moe: {ep: 8}}" in text
    many = document(capsys, *words[:-1], "3000,2000,0,7")
    (total,) = many["totals"]
    assert total["sent"] == [
        "reduce_scatter(tp)",
        "all_gather(attn_tp)",
        "reduce_scatter(attn_tp)",
        "all_gather(tp)",
    ]
    assert total["bytes_per_rank"] == 8192 * many["batch"]["rows"]
    works = [work for each in many["crossings"] for way in each["ways"] for work in way["works"]]
    assert [work["sizes"] for work in works if work["group"]] == [
        "one per rank",
        "equal",
        "equal",
        "one per rank",
    ]
    assert {work["kernel"] for work in works if "update" in work["operation"]} == {"add_rms_norm"}


def test_what_stands_in_the_way_of_a_scatter(
    stack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy is named, and so is the node that sets it."""
    words = ("stack.yaml:5.attention", "--topology", "tp8_dp4", "--batch", "3000,1,1,1")
    for policy, why in (
        ("ar", "policy ar permits no reduce-scatter"),
        ("rs", "policy rs permits equal sizes only, and the rows are cut unevenly over attn_dp"),
    ):
        found = document(capsys, *words, "--policy", policy)
        (way,) = found["crossings"][0]["ways"]
        assert way["no_scatter"].startswith(f"not permitted: {why}")
    paths = [one["path"] for one in found["crossings"][0]["levers"]]
    assert paths == [
        "topologies.tp8_dp4",
        "topologies.tp8_dp4.link",
        "stages.experts",
        "policy",
        "stages.attention",
    ]


def test_the_next_best_of_few_rows_is_what_many_rows_take(
    stack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It sends as much as where it runs."""
    [crossing] = document(capsys, "stack.yaml:5.experts", "--topology", "tp8_dp4")["crossings"]
    few, many = crossing["ways"]

    assert few["next_best"]["operations"] == ["reduce_scatter(attn_tp)", "all_gather(tp)"]
    for key in ("collectives", "bytes_per_token"):
        assert few["next_best"][key] == many[key]


def test_a_topology_that_the_file_does_not_have(
    stack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written as it would be in the file; the answer is that of a file that has it."""
    asked = "{tp: 8, attn_dp: 4, moe: {ep: 8}}"
    other = document(capsys, "stack.yaml:5", "--topology", asked)
    named = document(capsys, "stack.yaml:5", "--topology", "tp8_dp4")

    assert other["topology"] == "tp8_attn_dp4_ep8"
    assert other["totals"] == named["totals"]
    assert [one["when"] for one in named["totals"]] == [
        "batches of few rows",
        "batches of many rows",
    ]


def test_every_boundary_of_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Also of those with branches, streams, captures, drafts and quantised inputs."""
    for name in ("qwen3_moe", "longcat_flash", "glm5_next", "deepseek_v3"):
        file = str(ROOT / f"examples/{name}/stack.yaml")
        found = document(capsys, file, "--topology", "tp4_dp2")
        assert found["what"] == "all boundaries"
        assert all(each["ways"] for each in found["crossings"])
        called = "\n".join(
            path.read_text("utf-8") for path in (ROOT / f"generated/{name}/tp4_dp2").glob("*.py")
        )
        for each in found["crossings"]:
            for kernel in {work["kernel"] for way in each["ways"] for work in way["works"]}:
                assert f"{kernel.partition(':')[2] or kernel}(" in called or kernel in ("", "torch")


def test_a_line_of_generated_code(stack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Leads to the nodes of the stack file, and to the command that explains them."""
    main(["compile", "stack.yaml"])
    path = Path("generated/qwen3_moe/tp8_dp4/ordinary_after_attention.py")
    lines = path.read_text("utf-8").splitlines()
    at = next(n for n, line in enumerate(lines, 1) if line.startswith("def attention_to_experts"))
    capsys.readouterr()
    found = document(capsys, f"{path}:{at + 3}")

    assert found["boundary"] == "attention -> experts"
    assert [(node["path"], node["line"]) for node in found["nodes"]][:3] == [
        ("stages.attention", 6),
        ("stages.experts", 7),
        ("topologies.tp8_dp4", 11),
    ]
    path = path.with_name("ordinary_after_experts.py")
    lines = path.read_text("utf-8").splitlines()
    more = found["more"].split()[2:]
    assert more[0] == "stack.yaml:0.experts"
    assert "attention -> experts" in told(capsys, *more)
    at = next(n for n, line in enumerate(lines, 1) if line.startswith("EXPERTS_EXIT"))
    assert "stack.yaml:7  stages.experts" in told(capsys, f"{path}:{at}")
    above = path.with_name("boundaries_after_experts.py")
    lines = above.read_text("utf-8").splitlines()
    at = next(n for n, line in enumerate(lines, 1) if line.startswith("EXPERTS_TO_ATTENTION"))
    assert document(capsys, f"{above}:{at}")["boundary"] == "experts -> attention"
    shared = [
        node["path"] for node in document(capsys, f"{above.parents[1]}/rowwise.py:20")["nodes"]
    ]
    assert shared == ["norm", "hidden_size", "stack"]


def test_a_line_of_a_draft(capsys: pytest.CaptureFixture[str]) -> None:
    """Leads to the node of the draft's own stages, and to a command that takes the draft."""
    path = ROOT / "generated/deepseek_v3_nextn/tp4/ordinary_access.py"
    found = document(capsys, f"{path}:1")
    assert found["more"].endswith("--variant ordinary --draft deepseek_v3_nextn")
    lines = path.read_text("utf-8").splitlines()
    at = next(n for n, line in enumerate(lines, 1) if line.startswith("def output_to_next"))
    assert document(capsys, f"{path}:{at}")["boundary"] == ""  # there are several
    words = found["more"].split()[2:]
    words[0] = str(ROOT / "examples/deepseek_v3/stack.yaml")
    assert document(capsys, *words)["stack"] == "deepseek_v3_nextn"


def test_a_diagnostic_satisfies_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """With an example that fails and one that works."""
    assert document(capsys, "BC204")["code"] == "BC204"


def test_a_diagnostic_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its words are as wide as that, its examples as they are; elsewhere nothing is filled."""
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = told(capsys, "BC204")
    monkeypatch.setenv("COLUMNS", "40")
    narrow = told(capsys, "BC204")

    assert narrow.split() == whole.split()
    examples = [line for line in whole.splitlines() if line.startswith("    ")]
    assert [line for line in narrow.splitlines() if line.startswith("    ")] == examples
    words = [line for line in narrow.splitlines() if line not in examples]
    assert max(map(len, words)) <= 40 < max(map(len, whole.splitlines()))


def test_what_there_is_not(stack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ends with 2 and says what there is."""
    Path("own.py").write_text("x = 1\n")
    tp8 = ("--topology", "tp8")
    for words, said in (
        (("stack.yaml",), "which one? qwen3_moe has tp8, tp8_dp4"),
        (("stack.yaml", "--topology", "tp9"), "has no topology 'tp9'; it has tp8, tp8_dp4"),
        (("stack.yaml", "--topology", "{tp"), "is not a topology such as"),
        (("stack.yaml", "--topology", "{tp: 0}"), "tp` must be at least 1, not 0 (BC104): write a"),
        (("stack.yaml:48", *tp8), "has layers 0 to 47"),
        (("stack.yaml:1.mlp", *tp8), "layer 1 of qwen3_moe has no 'mlp'; it has attention, exp"),
        (("stack.yaml", *tp8, "--policy", "x"), "unknown name 'x'; there is auto, ar"),
        (("stack.yaml", *tp8, "--variant", "x"), "does not list 'x'; it lists ordinary, seq"),
        (("stack.yaml", *tp8, "--batch", "1,2"), "2 numbers of tokens for 1 attention-DP groups"),
        (("stack.yaml", *tp8, "--batch", "a"), "is not numbers of tokens"),
        (("stack.yaml", *tp8, "--draft", "a"), "has no draft 'a'; there is none"),
        (("own.py:1",), "own.py is not generated"),
        (("BC999",), "there is no code BC999"),
    ):
        assert main(["explain", *words]) == Exit.UNUSABLE
        assert said in " ".join(capsys.readouterr().err.split())
    assert main(["explain", "other.yaml", *tp8]) == Exit.FINDINGS
    assert "error[BC009]" in capsys.readouterr().err


def test_narrow_terminals_and_no_torch(stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is longer than the terminal, no colour is written, and torch is not imported."""
    monkeypatch.setenv("COLUMNS", "48")
    program = (
        "import sys; from boundaryc.cli import main; "
        "main(['explain', 'stack.yaml:5', '--topology', 'tp8_dp4']); "
        "sys.exit('torch' in sys.modules)"
    )
    done = command("-c", program, folder=Path.cwd())

    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "- operation: all_reduce, group (ranks): tp (8)" in " ".join(done.stdout.split())
    assert all(len(line) <= 48 or " " not in line.strip() for line in done.stdout.splitlines())
