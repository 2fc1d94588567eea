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


def measure(
    python: str, folder: Path, *, timeout_s: float = 500.0
) -> dict[tuple[str, int], list[tuple[float, int]]]:
    """What `worker` says, by topology and rank; ``folder`` is scratch space.

    RuntimeError with the end of a rank's output where it failed or took too long.
    """
    boundaryc.compile(STACK, out=folder / "generated")
    ranks = [
        (topology, rank, address)
        for topology, address in ((name, f"127.0.0.1:{_free_port()}") for name in CASES)
        for rank in range(RANKS)
    ]
    logs = [(folder / f"{topology}-{rank}.log").open("w+") for topology, rank, _ in ranks]
    started = [
        subprocess.Popen(
            [python, "-m", "examples.engines.sglang.worker", folder, topology, str(rank), address],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        for (topology, rank, address), log in zip(ranks, logs, strict=True)
    ]
    try:
        for process in started:
            process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        pass  # said below, with what the ranks have printed
    finally:
        for process in started:
            process.kill()
            process.wait()
    for (topology, rank, _), process, log in zip(ranks, started, logs, strict=True):
        log.seek(0)
        text = log.read()
        log.close()
        if process.returncode:
            raise RuntimeError(f"{topology} rank {rank}: {process.returncode}\n{text[-3000:]}")
    return {
        (topology, rank): torch.load(folder / f"{topology}-{rank}.pt")
        for topology, rank, _ in ranks
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
