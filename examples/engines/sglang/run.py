"""Runs SGLang's Qwen3 on two gloo ranks between compiled boundaries, and compares its values.

python -m examples.engines.sglang.run --python PATH   the interpreter that has SGLang

Exits 1 where a row of any rank differs from the one-rank float64 model by more than `TOLERANCE`.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import boundaryc
from examples.engines.sglang.worker import CASES, RANKS

ROOT = Path(__file__).resolve().parents[3]
STACK = Path(__file__).resolve().parent / "stack.yaml"
TOLERANCE = 2e-5
"""SGLang's norms and products are float32 on the CPU; outputs have a standard deviation of one."""


def main() -> int:
    """Runs all topologies; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with SGLang")
    python = parser.parse_args().python
    with tempfile.TemporaryDirectory() as folder:
        results = measure(python, Path(folder))
    failed = False
    for (topology, rank), found in results.items():
        for (lengths, facts), (difference, rows) in zip(CASES[topology], found, strict=True):
            words = " ".join(facts) or "ordinary"
            print(f"{topology} rank {rank} {lengths} {words}: {rows} rows, {difference:.1e}")
            failed = failed or not difference <= TOLERANCE
    return int(failed)


def measure(python: str, folder: Path) -> dict[tuple[str, int], list[tuple[float, int]]]:
    """What `worker` says, by topology and rank; ``folder`` is scratch space. Raises as `ranks`."""
    boundaryc.compile(STACK, out=folder / "generated")
    for name in CASES:
        ranks(python, folder, {name: ["examples.engines.sglang.worker", folder, name]})
    return {
        (name, rank): torch.load(folder / f"{name}-{rank}.pt")
        for name in CASES
        for rank in range(RANKS)
    }


def ranks(
    python: str, folder: Path, programs: dict[str, list[str | Path]], *, timeout_s: float = 900.0
) -> None:
    """Runs modules with arguments, by name, on `RANKS` ranks each: PROGRAM... RANK ADDRESS.

    ``folder`` is on their path and has their logs. RuntimeError with the end of a rank's output
    where it failed or took too long.
    """
    logs: dict[tuple[str, int], Path] = {}
    started: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    for name, (module, *arguments) in programs.items():
        address = f"127.0.0.1:{_free_port()}"
        for rank in range(RANKS):
            log = logs[name, rank] = folder / f"{name}-{rank}.log"
            with log.open("w") as output:
                started[name, rank] = subprocess.Popen(
                    [python, "-m", module, *arguments, str(rank), address],
                    cwd=ROOT,
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
    deadline = time.monotonic() + timeout_s
    try:
        # Once one has failed the others wait for it in vain.
        while any(one.poll() is None for one in started.values()) and not any(
            one.poll() for one in started.values()
        ):
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
    finally:
        codes = {place: one.poll() for place, one in started.items()}
        for one in started.values():
            one.kill()
            one.wait()
    for place, code in sorted(codes.items(), key=lambda found: found[1] is None):
        if code != 0:
            said = "took too long or was stopped" if code is None else f"exit code {code}"
            raise RuntimeError(f"{place}: {said}\n{logs[place].read_text()[-3000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
