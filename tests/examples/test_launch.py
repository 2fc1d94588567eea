"""`examples/launch` as on two machines: two launchers that know an address to meet at."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_two_nodes_compute_what_one_rank_does() -> None:
    """Two processes on each: pipeline stages of two, and one stage over both machines."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
    command += ["--nproc-per-node", "2", "--rdzv-id", "test", "--rdzv-backend", "c10d"]
    command += ["--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
    command += ["-m", "examples.launch.program"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environment |= {"BOUNDARYC_CHECK": "1", "CUDA_VISIBLE_DEVICES": ""}
    nodes = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(2)
    ]
    try:
        ended = [node.communicate(timeout=400) for node in nodes]
    finally:
        for node in nodes:
            if node.poll() is None:
                os.killpg(node.pid, signal.SIGKILL)
    assert [node.returncode for node in nodes] == [0, 0], ended
    shown = ended[0][0] + ended[1][0]  # whichever node has rank 0
    found = re.findall(r"^(\S+ x \d stages): largest difference (\S+)$", shown, re.M)
    assert [name for name, _ in found] == [
        "tp2 x 2 stages",
        "tp2_dp2 x 2 stages",
        "tp4_dp2 x 1 stages",
    ]
    assert all(float(error) < 1e-12 for _, error in found)
