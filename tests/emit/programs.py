"""Runs the programs beside this file, which know at their start whether Triton interprets.

Those that interpret are forked from one process that has imported what they need: importing torch
and Triton takes longer than most of them.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from multiprocessing import forkserver, get_context
from pathlib import Path
from tempfile import NamedTemporaryFile
from unittest.mock import patch

from tests.emit.compiled import ROOT

HERE = Path(__file__).resolve().parent
PRELOADED = ["torch", "torch._dynamo", "triton.language", "boundaryc.runtime"]
INTERPRETED = {"TRITON_INTERPRET": "1"}
LIMIT = 500
"""Seconds after which a program is taken to hang."""


def program(name: str, *words: str, **environment: str) -> None:
    """Runs a program to its end; fails, with its output as the text, where it does not exit 0."""
    if environment == INTERPRETED:
        _forked(name, words)
        return
    done = subprocess.run(
        [sys.executable, str(HERE / name), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _forked(name: str, words: tuple[str, ...]) -> None:
    context = get_context("forkserver")
    with patch.dict(os.environ, INTERPRETED):  # of the process that forks, for all of its life
        context.set_forkserver_preload(PRELOADED)
        forkserver.ensure_running()
    with NamedTemporaryFile("r") as output:
        process = context.Process(target=_run, args=(name, words, output.name))
        process.start()
        process.join(LIMIT)
        if process.is_alive():
            process.kill()
            process.join()
        assert process.exitcode == 0, output.read()


def _run(name: str, words: tuple[str, ...], output: str) -> None:
    """In the process of its own; what is printed there goes to the file."""
    with Path(output).open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = [name, *words]
    sys.path.insert(0, str(HERE))
    runpy.run_path(str(HERE / name), run_name="__main__")
