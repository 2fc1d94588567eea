"""`compile --watch`: goes on after changes and mistakes, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from boundaryc.cli import Exit, main
from tests.cli.process import ROOT
from tests.report.seeded import BASE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a user works."""
    monkeypatch.chdir(tmp_path)
    Path("stack.yaml").write_text(BASE, encoding="utf-8")
    return tmp_path


class Watched:
    """A process that compiles on change, and what it has printed."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "boundaryc", "compile", "--watch", "stack.yaml"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Tests in the background of a shell ignore it, and so would what they start.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    def wait_for(self, rounds: int) -> str:
        """What it has printed once it has compiled so often, or tried to."""
        deadline = time.monotonic() + 120
        while sum(line.startswith("watching ") for line in self.lines) < rounds:
            assert self.process.poll() is None, self.lines
            assert time.monotonic() < deadline, self.lines
            time.sleep(0.05)
        return "".join(self.lines)

    def end(self) -> int:
        """Ctrl-C, and its exit code."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(60)
        self._reader.join(10)
        return code


@pytest.fixture
def watched(folder: Path) -> Iterator[Watched]:
    pytest.importorskip("watchfiles", reason="watchfiles is needed")
    found = Watched(folder)
    yield found
    if found.process.poll() is None:
        found.process.kill()
    found.process.wait()


def test_it_compiles_on_change_and_goes_on(folder: Path, watched: Watched) -> None:
    """A change, a mistake, and a file that an editor puts in the place of the old one."""
    assert "unchanged, 0 removed\n" in watched.wait_for(1)
    assert (folder / "generated/tiny/tp2/ordinary.py").exists()

    (folder / "stack.yaml").write_text(BASE.replace("kind: ffn", "kind: fnn"), encoding="utf-8")
    said = watched.wait_for(2)
    assert "changed: stack.yaml\n" in said
    assert "error[BC105]" in said

    (folder / "new").write_text(BASE.replace("  tp2: {tp: 2}\n", ""), encoding="utf-8")
    (folder / "new").replace(folder / "stack.yaml")
    watched.wait_for(3)
    assert not (folder / "generated/tiny/tp2").exists()
    assert watched.end() == Exit.OK
    assert "Traceback" not in "".join(watched.lines)


def test_it_says_how_to_install_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is compiled."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)

    assert main(["compile", "--watch"]) == Exit.UNUSABLE
    assert "--watch needs watchfiles: pip install 'boundaryc[watch]'" in capsys.readouterr().err
    assert not Path("generated").exists()


def test_a_document_has_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--watch", "--json"]) == Exit.UNUSABLE
    assert "leave one of both" in capsys.readouterr().out
