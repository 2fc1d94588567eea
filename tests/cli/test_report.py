"""`boundaryc report`: a page where it is asked for, its data as JSON, what stands in the way."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_a_page_and_its_data(
    stack: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page holds what --json prints, which is as its schema says; it may be written again."""
    monkeypatch.delenv("COLUMNS", raising=False)
    words = ("report", stack, "--topology", "tp8", "--tokens", "1,64")
    assert main([*words, "-o", "page.html"]) == Exit.OK
    assert capsys.readouterr().out == "page.html: qwen3_moe on tp8, 8 plans\n"
    text = Path("page.html").read_text(encoding="utf-8")
    assert main([*words, "-o", "page.html"]) == Exit.OK
    assert Path("page.html").read_text(encoding="utf-8") == text
    capsys.readouterr()

    assert main([*words, "--json", "-o", "other.html"]) == Exit.OK
    data = json.loads(capsys.readouterr().out)
    schema = result_schema("report")
    assert list(problems(data, schema, schema)) == []
    assert data.pop("version") == 1
    inside = text.partition('<script type="application/json" id="data">')[2].partition("</script>")
    assert json.loads(inside[0]) == data
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["page.html", "stack.yaml"]


def test_what_stands_in_the_way(stack: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is no page of ours stays as it is; what there is not is named."""
    Path("report.html").write_text("<!doctype html>mine", encoding="utf-8")
    for words, said in (
        ((), "report.html is no report of boundaryc"),
        (("--topology", "tp9"), "has no topology 'tp9'; it has tp8, tp8_dp4"),
        (("--draft", "x"), "has no draft 'x'"),
        (("--tokens", "1,x"), "1,x is not numbers"),
        (("-o", "nowhere/page.html"), "nowhere/page.html cannot be written: No such file"),
    ):
        assert (
            main(["report", stack, "--topology", "tp8", "--tokens", "1", *words]) == Exit.UNUSABLE
        )
        assert said in " ".join(capsys.readouterr().err.split())
    assert Path("report.html").read_text(encoding="utf-8") == "<!doctype html>mine"
    Path("wrong.yaml").write_text(QWEN3_MOE.replace("tp: 8", "tp: x"), encoding="utf-8")
    assert main(["report", "wrong.yaml"]) == Exit.FINDINGS


def test_a_draft(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A draft is a stack of its own, with modules of its own."""
    file = str(ROOT / "examples/deepseek_v3/stack.yaml")
    assert main(["report", file, "--draft", "nextn", "--tokens", "64", "--json"]) == Exit.OK
    data = json.loads(capsys.readouterr().out)
    assert data["stack"] == "deepseek_v3_nextn"
    for one in data["files"]:
        published = (ROOT / one["path"]).read_text(encoding="utf-8").splitlines()
        assert [data["code"][place] for place in one["text"]][4:] == published[4:]
