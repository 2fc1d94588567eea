"""Judges faults in forks of one process that has imported what is slow and nothing of ours.

    python -m tests.verify.faults.server JOBS THOROUGH NAME ...

writes one line of JSON for each fault: its name, what each check saw, and the seconds it took.
THOROUGH 0 stops at the first check that sees the fault. The name `none` judges undamaged sources.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.verify.faults.catalogue import FAULTS
from tests.verify.faults.fault import ROOT, Fault, damaged_copy

LIMIT_S = 300
"""A fault that makes something run longer counts as seen: nothing here takes that long."""

ORDER = (
    "planning",
    "typing",
    "provenance",
    "demands",
    "emission",
    "cells",
    "traffic",
    "rules",
    "diagnostics",
    "demo",
    "units",
    "gloo",
)
"""The checks, each of which may use what the earlier ones made."""

SLOW = {"demo": ("model",), "units": ("runtime", "language"), "gloo": ()}
"""Checks that take longest, and the areas whose faults they always judge."""

OWN_TESTS = ("units", "gloo")
"""Checks that run tests of the suite."""

OF_STACKS = ORDER[:8]
"""Checks that look at one stack after the other."""

CELLS = ("values", "census", "refusals")
"""What the check `cells` tells apart."""


def main() -> None:
    """Serves the request on the command line."""
    jobs, thorough, names = int(sys.argv[1]), sys.argv[2] == "1", sys.argv[3:]
    references = _preload()
    known = {fault.name: fault for fault in FAULTS}
    for line in serve([known.get(name) for name in names], jobs, thorough, references):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _preload() -> dict[str, Any]:
    """Imports the libraries that checks need and computes what the example models must say."""
    import greenlet  # noqa: F401
    import jinja2  # noqa: F401
    import pydantic  # noqa: F401
    import pytest  # noqa: F401
    import torch
    import yaml  # noqa: F401

    torch.set_num_threads(1)
    from examples.reference import reference

    dense = {"qwen3": [], "qwen3_moe": [0]}
    return {
        name: reference(
            width=64, layers=4, dense=layers, sparse=bool(layers), lengths=LENGTHS, seed=seed
        )
        for seed, (name, layers) in enumerate(dense.items())
    }


LENGTHS = [9, 6, 8, 6]
"""Tokens of the example's sequences: what `examples.cases` runs."""


def serve(
    faults: list[Fault | None], jobs: int, thorough: bool, references: dict[str, Any]
) -> Iterator[str]:
    """The lines of all faults as they come, from at most ``jobs`` processes at a time."""
    waiting, running = list(faults), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            pid, pipe = _fork(waiting.pop(0), thorough, references)
            running[pid] = pipe
        pid, _ = os.wait()
        with os.fdopen(running.pop(pid)) as pipe:
            yield pipe.read().strip()


def _fork(fault: Fault | None, thorough: bool, references: dict[str, Any]) -> tuple[int, int]:
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, ours
    try:
        os.close(ours)
        answer = judge(fault, thorough, references)
    except BaseException:
        answer = {"name": _name(fault), "seen": {"planning": traceback.format_exc()}, "seconds": 0}
    os.write(theirs, json.dumps(answer).encode())
    os._exit(0)


def _name(fault: Fault | None) -> str:
    return fault.name if fault else "none"


def judge(fault: Fault | None, thorough: bool, references: dict[str, Any]) -> dict[str, Any]:
    """What the checks see in a damaged copy; in a process of its own, which is of no use after."""
    began = time.monotonic()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT_S)
    with tempfile.TemporaryDirectory() as folder:
        damaged_copy(fault, Path(folder))
        _see_only(folder)
        seen = _judge(fault, thorough, references)
        os.chdir("/")
    return {"name": _name(fault), "seen": seen, "seconds": round(time.monotonic() - began, 1)}


def _too_long(*_: object) -> None:
    raise TimeoutError(f"longer than {LIMIT_S} s")


def _see_only(folder: str) -> None:
    """Makes the copy the one that is imported, here and in processes that are started."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("boundaryc", "examples")]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    sys.path.append(str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join((folder, str(ROOT)))
    os.chdir(folder)


def _judge(fault: Fault | None, thorough: bool, references: dict[str, Any]) -> dict[str, str]:
    try:
        import boundaryc
        from tests.verify.faults import checks, models

        assert str(Path(boundaryc.__file__).parents[1]) == str(Path.cwd())
        models.REFERENCES.update(references)
    except Exception as error:
        return {"planning": f"{type(error).__name__}: {error}"}
    seen: dict[str, str] = {}
    if fault is None:
        # Whoever judges a sample runs the tests of undamaged sources beside this.
        names = ORDER if thorough else [name for name in ORDER if name not in OWN_TESTS]
        _look(checks, names, seen, thorough=thorough)
    elif thorough:
        _look(checks, [name for name in ORDER if name not in SLOW], seen, thorough=True)
        slow = [name for name, areas in SLOW.items() if not seen or fault.area in areas]
        _look(checks, dict.fromkeys([*slow, *(SLOW.keys() & fault.seen_by)]), seen, thorough=True)
    else:
        _look_for(checks, fault, seen)
    return {name: text[:300] for name, text in seen.items()}


def _look_for(checks: Any, fault: Fault, seen: dict[str, str]) -> None:
    """Runs the checks that must see a fault, stack by stack, and then the others."""
    expected = ["cells" if name in CELLS else name for name in fault.seen_by]
    if expected[0] not in OF_STACKS:
        _look(checks, expected, seen, thorough=False)
    every = checks.selected
    for stack in every:
        checks.selected = (stack,)
        _look(checks, [name for name in OF_STACKS if name in expected], seen, thorough=False)
    checks.selected = every
    _look(checks, [name for name in ORDER if name != "gloo"], seen, thorough=False)


def _look(checks: Any, names: Iterable[str], seen: dict[str, str], *, thorough: bool) -> None:
    """Adds what the checks see to ``seen``, until one does if that is enough."""
    for name in names:
        if (seen and not thorough) or seen.keys() & {"planning", "emission"}:
            break
        try:
            if name == "cells":
                left = iter(range(5 if thorough else 1, 0, -1))
                seen |= checks.cells(lambda _, left=left: next(left) == 1)
            elif text := getattr(checks, name)():
                seen[name] = text
        except Exception as error:
            seen[name] = f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
