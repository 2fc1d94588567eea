"""Whoever reads our output may stop, and names of files may be odd: neither is a bug of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from boundaryc.cli import Exit, main
from tests.cli.process import ROOT
from tests.cli.test_takeover import TEXT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small published project, which is the current directory."""
    (tmp_path / "stack.yaml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    assert main(["compile", "stack.yaml"]) == Exit.OK
    return tmp_path


def _run(folder: Path, stdout: int | None, *words: str) -> tuple[int, str]:
    """Exit code and standard error of a process whose standard output is `stdout`, or closed."""
    close = (lambda: os.close(1)) if stdout is None else None
    done = subprocess.run(
        [sys.executable, "-m", "boundaryc", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=stdout,
        stderr=subprocess.PIPE,
        preexec_fn=close,
        check=False,
        text=True,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("how", ["pipe", "closed"])
@pytest.mark.parametrize(
    "words", [["check"], ["compile", "--dry-run"], ["explain", "BC204"], ["--version"], ["--help"]]
)
def test_nobody_reads(folder: Path, how: str, words: list[str]) -> None:
    """The command says how it ended, as if somebody did; what is wrong stays wrong."""
    (folder / "generated/sample/layers.py").unlink()
    reader, writer = os.pipe()
    os.close(reader)
    try:
        code, error = _run(folder, writer if how == "pipe" else None, *words)
    finally:
        os.close(writer)

    assert code == (Exit.FINDINGS if words == ["check"] else Exit.OK), error
    assert "bug" not in error
    assert "Traceback" not in error
    assert "BrokenPipe" not in error


def test_nobody_is_told(folder: Path) -> None:
    """A process without a standard error."""
    words = [sys.executable, "-m", "boundaryc", "compile", "stack.yaml"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    close = partial(os.close, 2)
    assert subprocess.run(words, cwd=folder, env=env, preexec_fn=close, check=False).returncode == 0


NAMES = {"a line end": "new\nline.yaml", "no text": "bad\udcff.yaml", "a bell": "bell\a.yaml"}


@pytest.mark.parametrize("style", ["full", "concise", "json", "github"])
@pytest.mark.parametrize("command", ["compile", "check", "lint", "verify"])
@pytest.mark.parametrize("what", NAMES)
def test_a_file_whose_name_cannot_be_said(
    folder: Path, what: str, command: str, style: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Is refused in every format, and nothing is written."""
    path = folder / NAMES[what]
    path.write_text(TEXT.replace("stack: sample", "stack: other"))
    more = ["--json"] if command == "verify" and style == "json" else []
    if command != "verify":
        more = ["--output-format", style]

    assert main([command, path.name, *more]) == Exit.FINDINGS
    said = "".join(capfd.readouterr())
    assert "BC009" in said
    assert not (folder / "generated/other").exists()


def test_a_file_that_is_called_like_a_layer_of_one(folder: Path) -> None:
    """It is the file where there is one."""
    (folder / "stack.yaml").rename(folder / "a:5.yaml")
    words = ["--topology", "tp2"]
    assert _run(folder, None, "explain", "a:5.yaml", *words)[0] == Exit.OK
    assert _run(folder, None, "explain", "a:5.yaml:0.mlp", *words)[0] == Exit.OK


@pytest.mark.parametrize("what", NAMES)
def test_a_folder_whose_name_cannot_be_said(folder: Path, what: str) -> None:
    """It would be in every header."""
    out = folder / NAMES[what]

    assert main(["compile", "stack.yaml", "--out", out.name]) == Exit.FINDINGS
    assert not out.exists()


def test_a_name_in_another_script(folder: Path) -> None:
    """Is a name."""
    path = folder / "模型\u3000é b.yaml"
    path.write_text(TEXT.replace("stack: sample", "stack: other"))

    assert main(["compile", path.name]) == Exit.OK
    assert main(["check", path.name]) == Exit.OK


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize(
    "edited", [["layers.py"], ["tp2/plan.json"], ["manifest.json"], ["layers.py", "kernels.py"]]
)
def test_edits_are_not_replaced_in_silence(
    folder: Path, edited: list[str], dry: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each file that somebody changed is named, also with --quiet, and no other."""
    for name in edited:
        path = folder / "generated/sample" / name
        path.write_text(path.read_text() + "\n")
    capsys.readouterr()

    assert main(["compile", "--quiet", *["--dry-run"] * dry]) == Exit.OK
    warnings = capsys.readouterr().err.splitlines()
    assert sorted(warnings) == sorted(
        f"warning: generated/sample/{name} was edited by hand; what was compiled takes its place"
        for name in edited
    )
    assert main(["check"]) == (Exit.FINDINGS if dry else Exit.OK)


def test_a_change_of_the_source_is_no_edit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "stack.yaml").write_text(TEXT.replace("count: 2", "count: 3"))
    capsys.readouterr()

    assert main(["compile"]) == Exit.OK
    assert "warning" not in capsys.readouterr().err
