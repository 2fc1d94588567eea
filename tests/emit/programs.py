"""Runs the programs beside this file, which know at their start whether Triton interprets.

They are forked from a process that has imported what they need: importing torch and Triton takes
longer than most of them. Those that use a GPU start afresh.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

import torch

from tests.emit.compiled import ROOT

HERE = Path(__file__).resolve().parent
INTERPRETED = {"TRITON_INTERPRET": "1"}


def program(name: str, *words: str, **environment: str) -> None:
    """Runs a program to its end; fails, with its output as the text, where it does not exit 0."""
    interprets = environment["TRITON_INTERPRET"]
    if interprets == "1" or not torch.cuda.is_available():
        _forked(_forks(interprets), name, environment, words)
        return
    command = [sys.executable, str(HERE / name), *words]
    done = subprocess.run(
        command, env=_with(environment), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _with(environment: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **environment}


@cache
def _forks(interprets: str) -> subprocess.Popen[str]:
    """The process that forks; it ends with this one, whose end closes its input."""
    return subprocess.Popen(
        [sys.executable, str(HERE / "forks.py")],
        env=_with({"TRITON_INTERPRET": interprets}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _forked(
    forks: subprocess.Popen[str], name: str, environment: dict[str, str], words: tuple[str, ...]
) -> None:
    assert forks.stdin is not None
    assert forks.stdout is not None
    with NamedTemporaryFile("r") as output:
        forks.stdin.write(json.dumps([name, output.name, environment, *words]) + "\n")
        forks.stdin.flush()
        code = forks.stdout.readline().strip()
        assert code == "0", f"exit code {code}\n{output.read()}"
