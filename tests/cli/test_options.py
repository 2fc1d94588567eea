"""Options of the command line: formats, processes, dry runs, and the smaller commands."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import boundaryc
from boundaryc.cli import Exit, main
from tests.cli.process import MOE, QWEN3, ROOT


def test_a_dry_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Says what would change, changes nothing, and is no failure."""
    assert main(["compile", "models/stack.yaml", "--dry-run"]) == Exit.OK
    shown = capsys.readouterr().out
    assert "would write: generated/qwen3/layers.py\n" in shown
    assert re.search(r"^dry run: \d+ written, 0 unchanged, 0 removed\n$", shown, re.M)
    assert not (project / "generated").exists()

    main(["compile", "models/stack.yaml"])
    source = project / "models/stack.yaml"
    source.write_text(source.read_text().replace("  tp2: {tp: 2}\n", ""))
    capsys.readouterr()
    assert main(["compile", "--dry-run", "-q"]) == Exit.OK
    shown = capsys.readouterr()
    assert "would remove: generated/qwen3/tp2/layout.py\n" in shown.out
    assert "dry run" not in shown.out
    assert shown.err == ""
    assert (project / "generated/qwen3/tp2/layout.py").exists()


def test_one_summary_of_all_stacks(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the number of processes."""
    shutil.copyfile(MOE, project / "moe.yaml")

    assert main(["compile", "models/stack.yaml", "moe.yaml", "--jobs", "2"]) == Exit.OK

    files = sum(path.is_file() for path in (project / "generated").rglob("*"))
    assert capsys.readouterr().out == f"{files} written, 0 unchanged, 0 removed\n"
    assert main(["check", "--full", "-j2"]) == Exit.OK


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_errors_of_all_files(
    project: Path, capsys: pytest.CaptureFixture[str], jobs: str
) -> None:
    """Are shown together."""
    (project / "one.yaml").write_text("boundaryc: 1\n")
    (project / "two.yaml").write_text("stack: {}\n")

    assert main(["compile", "one.yaml", "two.yaml", "--jobs", jobs]) == Exit.FINDINGS
    shown = capsys.readouterr().err
    assert "--> one.yaml:" in shown
    assert "--> two.yaml:" in shown


def test_quiet(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Says nothing when nothing is wrong, and everything when something is."""
    assert main(["compile", "models/stack.yaml", "-q"]) == Exit.OK
    assert main(["check", "--quiet"]) == Exit.OK
    assert main(["lint", "--quiet"]) == Exit.OK
    shown = capsys.readouterr()
    assert shown.out + shown.err == ""

    (project / "generated/qwen3/layers.py").unlink()
    assert main(["check", "--quiet"]) == Exit.FINDINGS
    assert "fix: boundaryc compile\n" in capsys.readouterr().err


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Standard output, which is one JSON document and nothing else."""
    found = json.loads(capsys.readouterr().out)
    assert found["version"] == 1
    assert isinstance(found, dict)
    return found


def test_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One document on standard output, whatever happens."""
    style = ["--output-format", "json"]
    assert main(["compile", "models/stack.yaml", *style]) == Exit.OK
    compiled = document(capsys)
    assert compiled["kind"] == "compile"
    assert compiled["summary"]["written"] == len(compiled["stacks"][0]["written"])
    (project / "generated/qwen3/layers.py").unlink()
    assert main(["check", *style]) == Exit.FINDINGS
    checked = document(capsys)
    assert (checked["kind"], checked["fresh"], checked["summary"]["missing"]) == ("check", False, 1)
    assert checked["findings"][0]["path"] == "generated/qwen3/layers.py"
    assert checked["fixes"] == ["boundaryc compile"]
    assert main(["lint", *style]) == Exit.OK
    assert document(capsys)["kind"] == "diagnostics"
    assert main(["explain", "bc204", *style]) == Exit.OK
    assert document(capsys)["code"] == "BC204"

    source = project / "models/stack.yaml"
    source.write_text(source.read_text().replace("kind: ffn", "kind: fnf"))
    for command in ("compile", "check", "lint"):
        assert main([command, *style]) == Exit.FINDINGS
        assert document(capsys)["summary"]["error"] == 1
    assert main(["compile", *style, "no/such.yaml"]) == Exit.UNUSABLE
    assert "no/such.yaml" in document(capsys)["message"]


def test_github(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At most ten annotations, on standard output, and the full text."""
    main(["compile", "models/stack.yaml"])
    for path in (project / "generated/qwen3").rglob("*.py"):
        path.unlink()
    capsys.readouterr()

    assert main(["check", "--output-format", "github"]) == Exit.FINDINGS
    shown = capsys.readouterr().out
    assert shown.count("::error file=generated/qwen3/") == 10
    assert "\nmissing: generated/qwen3/layers.py\n" in shown

    (project / "bad.yaml").write_text("boundaryc: 1\n")
    assert main(["compile", "bad.yaml", "--output-format", "github"]) == Exit.FINDINGS
    assert capsys.readouterr().out.startswith("::error file=bad.yaml,line=1,")


def test_concise(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line each; a check without diffs."""
    main(["compile", "models/stack.yaml"])
    (project / "generated/qwen3/layers.py").unlink()
    (project / "bad.yaml").write_text("boundaryc: 1\n")
    capsys.readouterr()

    main(["check", "--output-format", "concise"])
    assert capsys.readouterr().out == "missing: generated/qwen3/layers.py\n"
    main(["compile", "bad.yaml", "--output-format", "concise"])
    assert all(line.startswith("bad.yaml:1:") for line in capsys.readouterr().err.splitlines())


def test_the_diffs_of_many_files(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Are cut with a count."""
    main(["compile", "models/stack.yaml"])
    source = project / "models/stack.yaml"
    source.write_text(source.read_text().replace("eps: 1.0e-6", "eps: 1.0e-5"))
    capsys.readouterr()

    assert main(["check"]) == Exit.FINDINGS
    shown = capsys.readouterr().out
    assert shown.count("(published)") == 10
    assert re.search(r"\.\.\. and the diffs of \d+ more files\n$", shown)


def test_a_read_only_folder(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is not our bug; and is no matter where nothing has to change."""
    main(["compile", "models/stack.yaml"])
    capsys.readouterr()

    def refused(self: Path, *rest: object) -> None:
        raise PermissionError(30, "Read-only file system", str(self))

    monkeypatch.setattr("boundaryc.emit.publish._Places.stage", refused)
    assert main(["compile"]) == Exit.OK
    (project / "generated/qwen3/layers.py").unlink()
    assert main(["compile", "--output-format", "json"]) == Exit.UNUSABLE
    shown = capsys.readouterr()
    assert "error: [Errno 30] Read-only file system" in shown.err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["explain", "BC204"], "BC204: something is declared and never used\n"),
        (["explain", "bc204"], "BC204: something is declared and never used\n"),
        (["schema"], '"title": "boundaryc stack"'),
        (["schema", "diagnostics"], '"title": "boundaryc diagnostics"'),
    ],
)
def test_what_is_printed(capsys: pytest.CaptureFixture[str], words: list[str], shown: str) -> None:
    """Texts from the language, on standard output."""
    assert main(words) == Exit.OK
    assert shown in capsys.readouterr().out


def test_what_is_committed_is_fresh() -> None:
    """The examples' code, rendered again."""
    report = boundaryc.check(QWEN3, MOE, out=ROOT / "generated", full=True)

    assert [(finding.state.value, finding.path) for finding in report.findings] == []
    assert report.fresh


def test_a_code_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Names one that does."""
    assert main(["explain", "BC999"]) == Exit.UNUSABLE
    assert "there is no code BC999; did you mean" in capsys.readouterr().err


def test_lint(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Notes are no failure, warnings are, and so are errors; all files are read."""
    assert main(["lint", "models/stack.yaml"]) == Exit.OK
    assert "note[BC605]" in capsys.readouterr().out
    source = project / "models/stack.yaml"
    text = source.read_text().replace("  tp2: {tp: 2}", "  tp2: {tp: 2}\n  again: {tp: 2}")
    source.write_text(text)
    (project / "bad.yaml").write_text("boundaryc: 1\n")

    assert main(["lint", "models/stack.yaml"]) == Exit.FINDINGS
    assert "warning[BC604]" in capsys.readouterr().out
    assert main(["lint", "bad.yaml", "models/stack.yaml"]) == Exit.FINDINGS
    shown = capsys.readouterr()
    assert "--> bad.yaml:1:1" in shown.out
    assert "warning[BC604]" in shown.out
    assert "2 files: " in shown.err


def test_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Equal ones, differing ones, and none."""
    for rank, policy in enumerate(("ar", "ar", "rs")):
        about = {"trace": 1, "rank": rank, "world_rank": rank, "policy": policy}
        (tmp_path / f"{rank}.jsonl").write_text(json.dumps(about) + "\n")
    (tmp_path / "none").mkdir()

    assert main(["trace", "compare", str(tmp_path)]) == Exit.FINDINGS
    assert "policy that was loaded" in capsys.readouterr().out
    assert main(["trace", "compare", str(tmp_path), "--output-format", "json"]) == Exit.FINDINGS
    assert document(capsys)["agree"] is False
    (tmp_path / "2.jsonl").unlink()
    assert main(["trace", "compare", str(tmp_path)]) == Exit.OK
    assert "no divergence in 2 traces" in capsys.readouterr().out
    assert main(["trace", "compare", str(tmp_path / "none")]) == Exit.UNUSABLE
