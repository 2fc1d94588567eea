"""The command line in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOE = ROOT / "examples/qwen3_moe/stack.yaml"
QWEN3 = ROOT / "examples/qwen3/stack.yaml"


def command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
