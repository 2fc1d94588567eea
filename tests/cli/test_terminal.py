"""What is different at a terminal: colours and progress."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.process import ROOT, command

COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
"""What sets a colour; a slow run moves the cursor too, to show its progress."""


def at_a_terminal(project: Path, *words: str, **environment: str) -> bytes:
    """What a command writes to a terminal, which is its standard error."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment},
        stdout=subprocess.DEVNULL,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while data := os.read(controller, 4096):
            shown += data
    os.close(controller)
    process.wait()
    return shown


def test_colours(project: Path) -> None:
    """Only at a terminal, and not against the user's wish."""
    (project / "bad.yaml").write_text("boundaryc: 1\n")
    words = ("-m", "boundaryc", "compile", "bad.yaml")

    assert COLOUR.search(at_a_terminal(project, *words, NO_COLOR=""))
    assert not COLOUR.search(at_a_terminal(project, *words, NO_COLOR="1"))
    assert "\x1b[" not in command(*words, folder=project).stderr


def test_progress(project: Path) -> None:
    """Of a long run, at a terminal, on standard error; rich is imported for nothing else."""
    program = (
        "import sys, time; from boundaryc.cli import main, progress; "
        "progress.DELAY = float(sys.argv[1]); "
        "from boundaryc.emit import build as b; real = b.build; "
        "b.build = lambda *given: (time.sleep(1), real(*given))[1]; "
        "main(['compile', 'models/stack.yaml', *sys.argv[2:]]); "
        "sys.stderr.write('rich' if 'rich' in sys.modules else 'plain')"
    )

    shown = at_a_terminal(project, "-c", program, "0.1")
    assert b"compiling" in shown
    assert b"0/1" in shown
    assert at_a_terminal(project, "-c", program, "60").endswith(b"plain")
    assert at_a_terminal(project, "-c", program, "0.1", "-q").endswith(b"plain")
    assert command("-c", program, "0.1", folder=project).stderr.endswith("plain")
