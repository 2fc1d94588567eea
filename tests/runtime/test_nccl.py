"""What two GPUs show, where there are two; see the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus() -> None:
    """NCCL's collectives, quantised inputs and both example models with their kernels."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "tests.runtime.nccl_program"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
