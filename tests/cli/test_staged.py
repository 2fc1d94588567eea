"""`check --staged`: what a commit would not have, or otherwise, is a finding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boundaryc.cli import Exit, main
from tests.cli import git as of_git
from tests.cli.git import git, repository
from tests.report.seeded import BASE

CHECK = ("check", "--staged", "--no-diff")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, not at its top, with a compiled stack of which all is staged."""
    of_git.clean(monkeypatch)
    folder = repository(tmp_path / "top") / "inner"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("stack.yaml").write_text(BASE, encoding="utf-8")
    assert main(["compile", "-q"]) == Exit.OK
    git("add", ".", cwd=folder)
    return folder


def test_what_is_staged_is_fresh(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing need be committed yet."""
    assert main([*CHECK]) == Exit.OK
    assert "all fresh" in capsys.readouterr().err


def test_what_is_not_staged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """New files, changed ones and the stack file, each with how to put it right."""
    git("commit", "-qm", "one", cwd=folder)
    text = BASE.replace("  tp2: {tp: 2}\n", "  tp2: {tp: 2}\n  tp3: {tp: 3}\n")
    Path("stack.yaml").write_text(text, encoding="utf-8")
    assert main(["compile", "-q"]) == Exit.OK
    assert main(["check"]) == Exit.OK
    capsys.readouterr()

    assert main([*CHECK]) == Exit.FINDINGS
    shown = capsys.readouterr()
    assert "not staged: stack.yaml\n" in shown.out
    assert "not staged: generated/tiny/manifest.json\n" in shown.out  # changed
    assert "not staged: generated/tiny/tp3/layout.py\n" in shown.out  # new
    [fix] = [line for line in shown.err.splitlines() if line.startswith("fix: ")]
    assert fix.startswith("fix: git add -- stack.yaml generated/tiny/__init__.py ")

    git("add", "-u", cwd=folder)
    assert main([*CHECK, "--json"]) == Exit.FINDINGS  # as after `git commit -a`
    found = json.loads(capsys.readouterr().out)
    assert {Path(one["path"]).parts[2] for one in found["findings"]} == {"tp3"}
    git(*fix.removeprefix("fix: git ").split(), cwd=folder)
    assert main([*CHECK]) == Exit.OK


def test_what_is_ignored_and_what_is_removed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that are here and in no commit."""
    git("rm", "-q", "--cached", "generated/tiny/tp2/layout.py", cwd=folder)
    (folder / ".gitignore").write_text("layout.py\n", encoding="utf-8")

    assert main([*CHECK]) == Exit.FINDINGS
    assert capsys.readouterr().out == "not staged: generated/tiny/tp2/layout.py\n"


def test_where_there_is_no_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cannot be told, which is no pass."""
    of_git.clean(monkeypatch)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    Path("stack.yaml").write_text(BASE, encoding="utf-8")
    assert main(["compile", "-q"]) == Exit.OK

    assert main([*CHECK]) == Exit.UNUSABLE
    assert "git cannot say what is staged" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([*CHECK]) == Exit.UNUSABLE
    assert "git cannot be run" in capsys.readouterr().err
