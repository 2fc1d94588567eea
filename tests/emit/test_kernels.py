"""The generated Triton kernels, interpreted on the CPU, against float64 and the torch path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from boundaryc.emit.norms import Norms
from boundaryc.emit.render import render
from boundaryc.emit.stack_views import norm_view
from boundaryc.language.model import NormSpec
from tests.emit.compiled import ROOT

pytest.importorskip("triton")


def program(name: str, *words: str, **environment: str) -> None:
    """Runs one of the programs beside this file; its output is the failure's text."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve().with_name(name)), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


NEEDS = ("rms_norm", "add_rms_norm")
LAYER = ("layer_norm", "add_layer_norm", "biased_layer_norm", "add_biased_layer_norm")
VARIES = ("eps", "offset", "rounded")
PLAIN = Norms(NormSpec("rms", 1e-6, "fp32"))


def written(
    folder: Path,
    width: int,
    *,
    rounded: bool,
    scaled: bool = False,
    offset: float = 0.0,
    varies: tuple[str, ...] = (),
    needs: tuple[str, ...] = NEEDS,
) -> str:
    """The path of `kernels.py` for rows of ``width`` columns."""
    norm = NormSpec("rms", 1e-6, "rounded" if rounded else "fp32", offset)
    view = norm_view("tiny", width, Norms(norm, varies), needs=needs, scaled=scaled)
    path = folder / "kernels.py"
    path.write_text(render("kernels.py.jinja", view), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("width", [64, 100, 2048])
@pytest.mark.parametrize("rounded", [False, True])
def test_kernels_agree_with_float64(tmp_path: Path, width: int, rounded: bool) -> None:
    """For 0, 1, 3 and 17 rows, four dtypes, rows that are slices, a weight of its own dtype."""
    path = written(tmp_path, width, rounded=rounded)

    program("kernel_program.py", path, str(int(rounded)), TRITON_INTERPRET="1")


@pytest.mark.parametrize("width", [16384, 16385])
def test_fu8_wide_rows_too(tmp_path: Path, width: int) -> None:
    """flashinfer-ai/flashinfer#718: whole rows, also one that ends inside of a block."""
    path = written(tmp_path, width, rounded=False)

    program("kernel_program.py", path, "0", "1", TRITON_INTERPRET="1")


@pytest.mark.parametrize("rounded", [False, True])
def test_what_is_added_may_have_a_factor(tmp_path: Path, rounded: bool) -> None:
    """A constant of the call, exact as the factor of the torch path."""
    path = written(tmp_path, 100, rounded=rounded, scaled=True)

    program("kernel_program.py", path, str(int(rounded)), TRITON_INTERPRET="1")


def test_weights_have_an_offset_and_norms_differ(tmp_path: Path) -> None:
    """NM-1, NM-3: it is added in float32; eps, offset and rounding may be those of a call."""
    path = written(tmp_path, 100, rounded=False, scaled=True, offset=1.0, varies=VARIES)

    program("kernel_program.py", path, "0", TRITON_INTERPRET="1")


@pytest.mark.parametrize(("width", "rounded"), [(100, True), (64, False)])
def test_layer_norms_agree_with_float64(tmp_path: Path, width: int, rounded: bool) -> None:
    """With a bias and without, beside columns that are none, and where there are no such columns.

    In the latter what norms of stages differ in, and a factor, are arguments behind the bias.
    """
    varies = () if rounded else VARIES
    path = written(
        *(tmp_path, width),
        rounded=rounded,
        scaled=not rounded,
        offset=1.0,
        varies=varies,
        needs=LAYER,
    )

    program("kernel_program.py", path, str(int(rounded)), "3", TRITON_INTERPRET="1")


@pytest.mark.parametrize(
    ("width", "rounded", "scaled", "varies"),
    [
        (64, False, False, ()),
        (100, True, False, ()),
        (64, False, True, VARIES),
    ],
)
def test_kernels_compile(
    tmp_path: Path, width: int, rounded: bool, scaled: bool, varies: tuple[str, ...]
) -> None:
    """With and without a mask; no GPU is needed for that."""
    needs = LAYER if width == 100 else NEEDS
    path = written(tmp_path, width, rounded=rounded, scaled=scaled, varies=varies, needs=needs)

    program("compile_program.py", path, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path))


def test_only_the_kernels_that_are_called() -> None:
    """A stack that never adds and norms at once has no kernel for it."""
    text = render("kernels.py.jinja", norm_view("tiny", 64, PLAIN, needs={"rms_norm"}))

    assert "def rms_norm" in text
    assert "add_rms_norm" not in text


def test_row_counts_are_no_specialisation() -> None:
    """Strides depend on how rows were cut, counts on the batch: neither compiles a new kernel."""
    view = norm_view("tiny", 64, PLAIN, needs=NEEDS)
    text = render("kernels.py.jinja", view)

    assert 'do_not_specialize=["x_stride"]' in text
    assert 'do_not_specialize=["x_stride", "residual_stride"]' in text
