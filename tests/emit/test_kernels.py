"""The generated Triton kernels, interpreted on the CPU, against float64 and the torch path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from boundaryc.emit.render import render
from boundaryc.emit.stack_views import norm_view
from tests.emit.compiled import ROOT

PROGRAM = Path(__file__).resolve().parent / "kernel_program.py"

pytest.importorskip("triton")


@pytest.mark.parametrize("width", [64, 100, 2048])
@pytest.mark.parametrize("rounded", [False, True])
def test_kernels_agree_with_float64(tmp_path: Path, width: int, rounded: bool) -> None:
    """For 0, 1, 3 and 17 rows in four dtypes, rows that are slices, and a weight of its own dtype."""
    view = norm_view("tiny", width, 1e-6, rounded=rounded, needs={"rms_norm", "add_rms_norm"})
    (tmp_path / "kernels.py").write_text(render("kernels.py.jinja", view), encoding="utf-8")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "kernels.py"), str(int(rounded))],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_only_the_kernels_that_are_called() -> None:
    """A stack that never adds and norms at once has no kernel for it."""
    text = render(
        "kernels.py.jinja", norm_view("tiny", 64, 1e-6, rounded=False, needs={"rms_norm"})
    )

    assert "def rms_norm" in text
    assert "add_rms_norm" not in text


def test_row_counts_are_no_specialisation() -> None:
    """Strides depend on how rows were cut, counts on the batch: neither compiles a new kernel."""
    view = norm_view("tiny", 64, 1e-6, rounded=False, needs={"rms_norm", "add_rms_norm"})
    text = render("kernels.py.jinja", view)

    assert 'do_not_specialize=["x_stride"]' in text
    assert 'do_not_specialize=["x_stride", "residual_stride"]' in text
