"""A process that has imported what interpreted programs need, and forks one for each line it reads.

A line of standard input is a JSON list: the program's file, that of its output, and its words. The
line that answers is its exit code.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path

import torch._dynamo
import triton.language

import boundaryc.runtime

HERE = Path(__file__).resolve().parent
LIMIT = 500
"""Seconds after which a program is taken to hang, and killed."""
LOADED = (torch, triton, boundaryc)


def main() -> None:
    """Until the input ends."""
    for line in sys.stdin:
        name, output, *words = json.loads(line)
        child = os.fork()
        if not child:
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
