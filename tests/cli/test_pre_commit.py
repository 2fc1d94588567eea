"""The hook of `.pre-commit-hooks.yaml`, in commits of a real repository by the real pre-commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from boundaryc.cli import Exit, main
from tests.cli import git as of_git
from tests.cli.git import git, repository
from tests.cli.process import ROOT
from tests.report.seeded import BASE

pytestmark = pytest.mark.skipif(find_spec("pre_commit") is None, reason="pre-commit is needed")

MORE = BASE.replace("  tp2: {tp: 2}\n", "  tp2: {tp: 2}\n  tp3: {tp: 3}\n")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A repository that has our hooks, and its revision."""
    with pytest.MonkeyPatch.context() as patch:
        of_git.clean(patch)
        folder = repository(tmp_path_factory.mktemp("hooks"))
        shutil.copy(ROOT / ".pre-commit-hooks.yaml", folder)
        git("add", ".", cwd=folder)
        git("commit", "-qm", "hooks", cwd=folder)
        return folder, git("rev-parse", "HEAD", cwd=folder).stdout.strip()


@pytest.fixture
def folder(hooks: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's repository with the hook installed, and a fresh stack in its first commit."""
    of_git.clean(monkeypatch)
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "cache"))
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    boundaryc(programs, f'exec "{sys.executable}" -m boundaryc "$@"')

    folder = repository(tmp_path / "user")
    monkeypatch.chdir(folder)
    config = f"repos: [{{repo: '{hooks[0]}', rev: {hooks[1]}, hooks: [{{id: boundaryc-check}}]}}]\n"
    (folder / ".pre-commit-config.yaml").write_text(config, encoding="utf-8")
    (folder / "stack.yaml").write_text(BASE, encoding="utf-8")
    assert main(["compile", "-q"]) == Exit.OK
    command = [sys.executable, "-m", "pre_commit", "install"]
    subprocess.run(command, check=True, capture_output=True)
    git("add", ".", cwd=folder)
    return folder


def boundaryc(programs: Path, script: str) -> None:
    """Makes the command what ``script`` does."""
    program = programs / "boundaryc"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)


def commits(folder: Path, *words: str) -> tuple[bool, str]:
    """Whether a commit is made, and what is said."""
    before = git("rev-list", "--all", "--count", cwd=folder).stdout
    done = git("commit", "-m", "more", *words, cwd=folder, check=False)
    made = git("rev-list", "--all", "--count", cwd=folder).stdout != before
    assert made is (done.returncode == 0)
    return made, done.stdout + done.stderr


def test_fresh_commits_pass_and_stale_ones_are_blocked(folder: Path) -> None:
    """Whatever of it is staged, and in whichever way the commit is made."""
    made, said = commits(folder)
    assert made, said
    assert "boundaryc check" in said
    assert "Passed" in said

    (folder / "stack.yaml").write_text(MORE, encoding="utf-8")
    made, said = commits(folder, "-a")
    assert not made
    assert "stale: generated/tiny/manifest.json" in said
    assert "fix: boundaryc compile" in said

    assert main(["compile", "-q"]) == Exit.OK
    made, said = commits(folder, "-a")  # the new files are not in it
    assert not made
    assert "not staged: generated/tiny/tp3/layout.py" in said
    assert "fix: git add -- generated/tiny/tp3/__init__.py" in said
    git("add", ".", cwd=folder)
    assert commits(folder)[0]

    git("rm", "-q", "generated/tiny/tp3/layout.py", cwd=folder)  # no file to give to a hook
    made, said = commits(folder)
    assert not made
    assert "missing: generated/tiny/tp3/layout.py" in said


@pytest.mark.parametrize("broken", ["missing", "raises"])
def test_a_tool_that_does_not_run_is_no_pass(
    folder: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although nothing is stale."""
    programs = folder.parent / "bin"
    if broken == "raises":
        boundaryc(programs, f'exec "{sys.executable}" -c "import no_such_module"')
    else:
        (programs / "boundaryc").unlink()
        where = [one for one in os.environ["PATH"].split(os.pathsep) if not own(one)]
        monkeypatch.setenv("PATH", os.pathsep.join(where))

    made, said = commits(folder)

    assert not made
    assert "Failed" in said
    assert ("not found" if broken == "missing" else "no_such_module") in said


def own(folder: str) -> bool:
    """Whether a folder of the path has a boundaryc, as that of an environment may."""
    return (Path(folder) / "boundaryc").exists()
