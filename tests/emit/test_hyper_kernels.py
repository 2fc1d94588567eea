"""Generated kernels of hyper-connections against torch and float64; interpreted without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundaryc.emit.norms import Norms
from boundaryc.emit.render import render
from boundaryc.emit.stream_views import StreamsView, hyper_view
from boundaryc.language.model import NormSpec, Residual
from boundaryc.plan.stream_kernels import STREAM_KERNELS
from tests.emit.programs import program
from tests.emit.test_kernels import AS_IT_RUNS, VARIES

pytest.importorskip("triton")

PLAIN = ("hyper_enter", "hyper_update", "hyper_read_rms_norm", "hyper_mean_rms_norm")
FUSED = "hyper_update_read_rms_norm"


def view_of(
    width: int, streams: int, needs: tuple[str, ...], varies: tuple[str, ...] = ()
) -> StreamsView:
    """Of a stack whose matrices are balanced three times."""
    residual = Residual("hyper_connections", streams, "hyper_enter", "hyper_mean", 3, 1e-6)
    norms = Norms(NormSpec("rms", 1e-6, "fp32"), varies)
    return hyper_view("tiny", width, residual, norms, needs=needs)


def written(folder: Path, view: StreamsView) -> str:
    """The path of `hyper_kernels.py`."""
    path = folder / "hyper_kernels.py"
    path.write_text(render("hyper_kernels.py.jinja", view), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("width", "streams", "needs", "rows", "varies"),
    [
        (100, 4, (*PLAIN, FUSED), "0,1,17", ()),
        (100, 4, (FUSED,), "3", ()),
        (100, 2, (*PLAIN, FUSED), "3", VARIES),
        (8200, 2, (FUSED,), "1", ()),
        (2100, 2, (f"{FUSED}_fp8", "hyper_read_layer_norm"), "2", ()),
        (256, 3, (f"{FUSED}_fp8_group128_and_norm", f"{FUSED}_int8_and_norm"), "3", ()),
        (100, 2, ("hyper_read_biased_layer_norm_fp8_static_and_norm",), "3", ()),
    ],
)
def test_kernels_agree_with_torch(
    tmp_path: Path,
    width: int,
    streams: int,
    needs: tuple[str, ...],
    rows: str,
    varies: tuple[str, ...],
) -> None:
    """Streams and the mixed row bit for bit, coefficients near float64, norms to the last place."""
    path = written(tmp_path, view_of(width, streams, needs, varies))

    dtypes = "float32" if rows == "3" and streams == 4 else "bfloat16"
    program("hyper_program.py", path, rows, dtypes, **AS_IT_RUNS)


def test_kernels_compile(tmp_path: Path) -> None:
    """For a GPU that need not be there, with the mixed row in the output and in registers."""
    path = written(tmp_path, view_of(8704, 2, (FUSED, f"{FUSED}_fp8")))

    cache = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    program("hyper_compile_program.py", path, **cache)


def test_kernels_are_operators_of_torch(tmp_path: Path) -> None:
    """One graph for one row, one for any other number, whole; what it returns is as without."""
    path = written(tmp_path, view_of(64, 2, (FUSED,)))

    program("hyper_operator_program.py", path, TRITON_INTERPRET="1")


def test_every_combination_is_python(tmp_path: Path) -> None:
    """All of them together are one module."""
    text = render("hyper_kernels.py.jinja", view_of(256, 4, tuple(STREAM_KERNELS)))

    compile(text, "hyper_kernels.py", "exec")
    assert all(f"def {name}(" in text for name in STREAM_KERNELS)


def test_only_what_is_called() -> None:
    """A stack that quantises nothing has no word of it, and whole reads need no update alone."""
    text = render("hyper_kernels.py.jinja", view_of(16384, 4, (FUSED,)))

    assert not any(word in text for word in ("TINY", "scales", "_divided", "_packed", "OFFSET"))
    assert "def hyper_update(" not in text
