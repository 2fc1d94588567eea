"""A process that has imported what programs of Triton need, and forks one for each line it reads.

A line of standard input is a JSON list: the program's file, that of its output, its environment,
and its words. The line that answers is its exit code.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch._dynamo
import triton.compiler
import triton.language
from triton.runtime import interpreter

import boundaryc.runtime

HERE = Path(__file__).resolve().parent
LIMIT = 500
"""Seconds after which a program is taken to hang, and killed."""
LANGUAGES = (triton.language, triton.language.core)
LOADED = (torch, triton, boundaryc)


class Patches:
    """Gives Triton's language its interpreted meaning once, and leaves it there.

    The interpreter does so in every launch and again in every call of one jitted function by
    another, each time around what the last one left: most of a launch's time, and ever more.
    """

    def __init__(self, patch: Callable[[Any], Any]) -> None:
        self._patch, self._done = patch, set[str]()

    def __call__(self, function: Any) -> Patches:
        """What the interpreter would restore at the end of a launch."""
        known = function.__globals__.values()
        seen = {one.__name__ for one in LANGUAGES if any(value is one for value in known)}
        if not seen <= self._done:
            self._patch(function)
            self._done |= seen
        return self

    def restore(self) -> None:
        """Nothing: every program is a process of its own."""


def main() -> None:
    """Until the input ends."""
    if os.environ["TRITON_INTERPRET"] == "1":
        interpreter._patch_lang = Patches(interpreter._patch_lang)
    for line in sys.stdin:
        name, output, environment, *words = json.loads(line)
        child = os.fork()
        if not child:
            os.environ.update(environment)
            run(name, output, words)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def run(name: str, output: str, words: list[str]) -> None:
    """In the process of its own; what is printed there goes to the file."""
    signal.alarm(LIMIT)
    with Path(output).open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = [name, *words]
    code = 0
    try:
        runpy.run_path(str(HERE / name), run_name="__main__")
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
