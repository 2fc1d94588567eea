"""Runs vLLM's Qwen3 on two gloo ranks between compiled boundaries, and compares its values.

python -m examples.engines.vllm.run --python PATH   the interpreter that has vLLM

Exits 1 where a row of any rank differs from the one-rank float64 model by more than `TOLERANCE`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import boundaryc
from examples.engines.vllm.process import RANKS
from examples.engines.vllm.worker import CASES

ROOT = Path(__file__).resolve().parents[3]
STACK = Path(__file__).resolve().parent / "stack.yaml"
TOLERANCE = 2e-5
"""VLLM's norms and products are float32 on the CPU; outputs have a standard deviation of one."""

Results = list[list[tuple[float, int]]]
"""For each rank and case, the largest difference and the rows."""


def main() -> int:
    """Runs all cases; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with vLLM")
    python = parser.parse_args().python
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        boundaryc.compile(STACK, out=folder / "generated")
        execute(python, folder, "examples.engines.vllm.worker")
        results = read(folder)
    failed = False
    for rank, found in enumerate(results):
        for (lengths, variant), (difference, rows) in zip(CASES, found, strict=True):
            print(f"tp2 rank {rank} {lengths} {variant}: {rows} rows, {difference:.1e}")
            failed = failed or not difference <= TOLERANCE
    return int(failed)


def execute(python: str, folder: Path, module: str, *, timeout_s: float = 1500) -> None:
    """Runs a module with ``folder`` as its argument and on its path. RuntimeError if it fails."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [python, "-m", module, folder],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )
    if done.returncode:
        raise RuntimeError(f"{module}: exit code {done.returncode}\n{done.stdout[-4000:]}")


def read(folder: Path) -> Results:
    """What the ranks of the example wrote."""
    return [torch.load(folder / f"tp2-{rank}.pt") for rank in range(RANKS)]


if __name__ == "__main__":
    sys.exit(main())
