"""Pages to follow: their files are written, their commands run, and print what stands there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.process import ROOT, command

BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"\$ (.*?)(?:  # ends with (\d+))?\n((?:(?!\$ ).*\n)*)")


def _ran(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    if words[0] == "python":
        return command(*words[1:], folder=folder)
    modules = {"boundaryc": "boundaryc", "torchrun": "torch.distributed.run"}
    if words[0] in modules:
        return command("-m", modules[words[0]], *words[1:], folder=folder)
    assert shutil.which(words[0])
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def _like(expected: str) -> re.Pattern[str]:
    """What matches the printed text, its numbers too.

    `...` stands for any lines, behind other words for the rest of that line and any others.
    """
    text = re.sub(r"^\\\.\\\.\\\.\\\n", "(?:.*\n)*", re.escape(expected), flags=re.M)
    return re.compile(re.sub(r"\\ \\\.\\\.\\\.\\\n", ".*\n(?:.*\n)*", text))


@pytest.mark.parametrize("name", ["tutorial.md", "ci.md"])
def test_every_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs an installation or a service is in blocks of other languages, and is not run."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    page = (ROOT / "docs" / name).read_text("utf-8")
    ran = 0
    for language, file, text in BLOCK.findall(page):
        if file:
            (tmp_path / file).write_text(text, encoding="utf-8")
        for line, code, expected in COMMAND.findall(text) if language == "console" else ():
            done = _ran(shlex.split(line), tmp_path)
            printed = done.stdout + done.stderr
            assert done.returncode == int(code or 0), (line, printed)
            assert not expected or _like(expected).fullmatch(printed), (line, printed)
            ran += 1
    assert ran == page.count("\n$ ") >= 6
