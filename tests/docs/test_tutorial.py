"""docs/tutorial.md: its files are written, its commands run, and they print what stands there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.process import ROOT, command

PAGE = (ROOT / "docs/tutorial.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", PAGE, re.M | re.S)
COMMAND = re.compile(r"\$ (.*?)(?:  # ends with (\d+))?\n((?:(?!\$ ).*\n)*)")


def _ran(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    if words[0] == "python":
        return command(*words[1:], folder=folder)
    if words[0] == "boundaryc":
        return command("-m", "boundaryc", *words[1:], folder=folder)
    assert shutil.which(words[0])
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def _like(expected: str) -> re.Pattern[str]:
    """What matches the printed text, its numbers too.

    `...` stands for any lines, behind other words for the rest of that line and any others.
    """
    text = re.sub(r"^\\\.\\\.\\\.\\\n", "(?:.*\n)*", re.escape(expected), flags=re.M)
    return re.compile(re.sub(r"\\ \\\.\\\.\\\.\\\n", ".*\n(?:.*\n)*", text))


def test_every_command_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    ran = 0
    for language, name, text in BLOCKS:
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
            continue
        assert language == "console"
        for line, code, expected in COMMAND.findall(text):
            done = _ran(shlex.split(line), tmp_path)
            printed = done.stdout + done.stderr
            assert done.returncode == int(code or 0), (line, printed)
            assert not expected or _like(expected).fullmatch(printed), (line, printed)
            ran += 1
    assert ran == PAGE.count("\n$ ") > 10
