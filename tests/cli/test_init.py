"""`boundaryc init`: what it writes, what it leaves alone, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boundaryc.cli import Exit, main
from boundaryc.language import load
from boundaryc.report.schemas import result_schema
from tests.cli.process import ROOT
from tests.language.json_check import problems

CONFIG = str(ROOT / "tests/fixtures/configs/qwen3_moe.json")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Standard output, which is one document that satisfies its schema."""
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    schema = result_schema("init")
    assert list(problems(found, schema, schema)) == []
    return found


def test_from_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dense stack that compiles with the command that is printed."""
    assert main(["init"]) == Exit.OK
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "wrote stack.yaml: a dense decoder, 4 layers, for tp8, tp8_attn_dp4\n" in shown.err
    assert "next: boundaryc compile stack.yaml\n" in shown.err
    assert "for editors: boundaryc schema stack > stack.schema.json\n" in shown.err
    assert "for git: echo 'generated/** text eol=lf linguist-generated=true' >>" in shown.err

    assert main(["compile", "stack.yaml"]) == Exit.OK
    assert (folder / "generated/model/tp8_attn_dp4/ordinary.py").exists()


def test_from_a_config(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the topologies and variants that are asked for, in the file that is named."""
    words = ["--topology", "tp8-attn_dp4-ep8", "--topology", "tp4", "--variant", "ordinary"]
    assert main(["init", "--from-config", CONFIG, *words, "-o", "a b.yaml", "--json"]) == Exit.OK

    found = document(capsys)
    assert (found["file"], found["stack"], found["family"]) == ("a b.yaml", *["qwen3_moe"] * 2)
    assert (found["topologies"], found["variants"]) == (["tp4", "tp8_attn_dp4_ep8"], ["ordinary"])
    assert (found["left"], found["next"]) == ([], ["boundaryc compile 'a b.yaml'"])
    stack = load("a b.yaml")
    assert [spec.moe.ep for spec in stack.topologies] == [1, 8]
    assert main(["lint", "a b.yaml", "--config", CONFIG]) == Exit.OK


def test_a_file_that_is_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stays as it is without --force, also if it is a link to nowhere."""
    (folder / "stack.yaml").write_text("mine\n")
    assert main(["init"]) == Exit.UNUSABLE
    assert "stack.yaml is there already" in capsys.readouterr().err
    assert (folder / "stack.yaml").read_text() == "mine\n"
    (folder / "link.yaml").symlink_to("nowhere.yaml")
    assert main(["init", "-o", "link.yaml", "--json"]) == Exit.UNUSABLE
    assert json.loads(capsys.readouterr().out)["kind"] == "error"

    assert main(["init", "--force", "--quiet"]) == Exit.OK
    assert capsys.readouterr().err == ""
    assert load("stack.yaml").name == "model"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--topology", "tp8-dp4"], Exit.UNUSABLE),
        (["--topology", "tp8-attn_dp3"], Exit.UNUSABLE),
        (["--variant", "odd"], Exit.UNUSABLE),
        (["-o", "no/such/stack.yaml"], Exit.UNUSABLE),
        (["-o", "bell\a.yaml"], Exit.FINDINGS),
        (["--from-config", "missing.json"], Exit.UNUSABLE),
        (["--from-config", "broken.json"], Exit.FINDINGS),
    ],
)
def test_nothing_is_written_where_something_is_wrong(
    folder: Path, words: list[str], code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the options, or in the config; what it is is said."""
    (folder / "broken.json").write_text('{"model_type": "llama",\n"hidden_size": }')

    assert main(["init", *words]) == code
    assert capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["broken.json"]


def test_a_broken_config_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At its line, by both commands that read one."""
    (folder / "broken.json").write_text('{"model_type": "llama",\n"hidden_size": }')
    assert main(["init"]) == Exit.OK
    for words in (["init", "--from-config"], ["lint", "stack.yaml", "--config"]):
        capsys.readouterr()
        assert main([*words, "broken.json"]) == Exit.FINDINGS
        shown = capsys.readouterr().err
        assert "error[BC013]: this is not JSON: Expecting value\n" in shown
        assert "--> broken.json:2:16\n" in shown


def test_a_skeleton(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Is written, and says in the file and on standard error what is left to its author."""
    said = {"model_type": "new", "hidden_size": 64, "num_hidden_layers": 2, "scale_depth": 1.4}
    (folder / "config.json").write_text(json.dumps(said))
    words = ["init", "--from-config", "config.json", "--force"]

    assert main(words) == Exit.FINDINGS
    shown = capsys.readouterr().err
    assert "warning[BC608]: no known family: model_type is 'new'" in shown
    assert "warning[BC607]: the config says scale_depth = 1.4, and nothing in the file" in shown
    assert ":::" in shown
    assert (folder / "stack.yaml").read_text().count("# TODO ") == shown.count("# TODO ")
    assert main([*words, "--json"]) == Exit.FINDINGS
    left = document(capsys)["left"]
    assert {one["code"] for one in left} == {"BC607", "BC608"}
    assert any("update: sandwich" in one["message"] for one in left)
    assert main([*words, "--output-format", "github"]) == Exit.FINDINGS
    assert "::warning file=stack.yaml," in capsys.readouterr().out
