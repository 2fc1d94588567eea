"""The generated Triton kernels against float64 and the torch path; interpreted without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from boundaryc.emit.norms import Norms
from boundaryc.emit.render import render
from boundaryc.emit.rowwise import norm_view
from boundaryc.language.model import NormSpec
from boundaryc.plan.kernels import KERNELS, NORMS
from tests.emit.compiled import ROOT
from tests.emit.programs import program

pytest.importorskip("triton")


AS_IT_RUNS = {"TRITON_INTERPRET": "0" if torch.cuda.is_available() else "1"}
"""Interpreted where there is no GPU."""
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


@pytest.mark.parametrize(("width", "rounded"), [(64, True), (100, False)])
def test_kernels_agree_with_float64(tmp_path: Path, width: int, rounded: bool) -> None:
    """For 0, 1, 3 and 17 rows, four dtypes, rows that are slices, a weight of its own dtype."""
    path = written(tmp_path, width, rounded=rounded)

    program("kernel_program.py", path, str(int(rounded)), **AS_IT_RUNS)


@pytest.mark.parametrize("part", ["add_rms", "rms", "layer", "biased", "none"])
def test_every_combination_agrees_with_float64(tmp_path: Path, part: str) -> None:
    """Quantised in each way, kept beside that or not: exactly as torch quantises the norm."""
    needs = tuple(name for name in KERNELS if _part(name) == part)
    path = written(tmp_path, 256, rounded=part == "add_rms", scaled=part == "none", needs=needs)

    rows = "1,3,17" if part in ("add_rms", "none") else "3"
    rounded = str(int(part == "add_rms"))
    program("kernel_program.py", path, rounded, rows, "bfloat16", **AS_IT_RUNS)


def _part(name: str) -> str:
    kernel = KERNELS[name]
    if kernel.addition or kernel.finalize:
        return "addition" if kernel.addition else "finalize"
    if kernel.output_norm:
        return "of_output"
    if kernel.norm is None:
        return "none"
    parts = {"layer_norm": "layer", "biased_layer_norm": "biased"}
    return parts.get(kernel.norm, "add_rms" if kernel.adds else "rms")


@pytest.mark.parametrize("kind", NORMS)
def test_norms_of_outputs_agree_with_float64(tmp_path: Path, kind: str) -> None:
    """Sandwich and post-norm: the norm of a contribution is rounded, added and read in one pass.

    Every kind is read by itself and by the next kind, quantised in each way or not at all.
    """
    reads = (kind, NORMS[(NORMS.index(kind) + 1) % len(NORMS)], None)
    needs = tuple(
        name
        for name, one in KERNELS.items()
        if one.output_norm == kind and one.norm in reads and not one.addition
    )
    assert len(needs) == 2 * 9 + 5
    path = written(tmp_path, 256, rounded=kind == "layer_norm", needs=needs)

    rounded = str(int(kind == "layer_norm"))
    program("kernel_program.py", path, rounded, "3", "bfloat16", **AS_IT_RUNS)


def test_norms_of_outputs_differ_from_those_that_read(tmp_path: Path) -> None:
    """Each has its own eps and offset, beside a factor, odd widths, all dtypes and row counts."""
    needs = ("rms_add_rms_norm", "biased_add_layer_norm", "layer_add", "rms_add_rms_norm_fp8")
    path = written(
        tmp_path, 100, rounded=False, scaled=True, offset=1.0, varies=VARIES, needs=needs
    )

    program("kernel_program.py", path, "0", **AS_IT_RUNS)


ADDITIONS = (
    *("add_addition", "add_addition_rms_norm", "add_addition_fp8"),
    *("rms_add_addition_layer_norm", "add_addition_biased_layer_norm_fp8_and_norm"),
)


@pytest.mark.parametrize("rounded", [False, True])
def test_additions_agree_with_float64(tmp_path: Path, rounded: bool) -> None:
    """Between the update and the read, rounded before and after whatever the norm's sum is.

    Beside a factor and norms that differ, of a width that is no power of two.
    """
    varies = () if rounded else VARIES
    path = written(
        *(tmp_path, 100),
        rounded=rounded,
        scaled=not rounded,
        offset=1.0,
        varies=varies,
        needs=ADDITIONS,
    )

    words = ("0,1,3,17", "bfloat16") if rounded else ("3", "float64,float16,bfloat16")
    program("kernel_program.py", path, str(int(rounded)), *words, **AS_IT_RUNS)


FINALIZES = (
    *("finalize", "finalize_add", "finalize_add_rms_norm", "finalize_add_fp8"),
    "finalize_add_biased_layer_norm_fp8_static_and_norm",
)


@pytest.mark.parametrize("rounded", [False, True])
def test_rows_of_experts_agree_with_float64(tmp_path: Path, rounded: bool) -> None:
    """Three a token, next to each other or where an index says, with a shared one: the torch bits.

    Some are on another rank, and what is not used is no number.
    """
    path = written(tmp_path, 100, rounded=rounded, scaled=not rounded, needs=FINALIZES)

    words = ("0,1,3,17", "bfloat16") if rounded else ("3", "float64,float16,bfloat16")
    program("kernel_program.py", path, str(int(rounded)), *words, **AS_IT_RUNS)


def test_wide_rows_agree_with_float64(tmp_path: Path) -> None:
    """Of a width that is no power of two."""
    path = written(tmp_path, 5120, rounded=False, needs=("add_rms_norm_fp8_group128_and_norm",))

    program("kernel_program.py", path, "0", "1,3,17", "bfloat16", **AS_IT_RUNS)


def test_kernels_are_operators_of_torch(tmp_path: Path) -> None:
    """One graph for one row, one for any other number, whole; what it returns is as without."""
    needs = (
        *("add_rms_norm", "rms_add_rms_norm_fp8_static", "rms_norm_int8_and_norm", "rms_add"),
        *("add_addition_rms_norm", "finalize_add_rms_norm"),
    )
    path = written(tmp_path, 64, rounded=False, scaled=True, varies=VARIES, needs=needs)

    program("operator_program.py", path, **AS_IT_RUNS)


@pytest.mark.parametrize("width", [16384, 16385])
def test_fu8_wide_rows_too(tmp_path: Path, width: int) -> None:
    """flashinfer-ai/flashinfer#718: whole rows, also one that ends inside of a block."""
    path = written(tmp_path, width, rounded=False)

    program("kernel_program.py", path, "0", "1", **AS_IT_RUNS)


@pytest.mark.parametrize("rounded", [False, True])
def test_what_is_added_may_have_a_factor(tmp_path: Path, rounded: bool) -> None:
    """A constant of the call, exact as the factor of the torch path."""
    needs = ("add_rms_norm", "add_rms_norm_fp8_and_norm")
    path = written(tmp_path, 100, rounded=rounded, scaled=True, needs=needs)

    program("kernel_program.py", path, str(int(rounded)), **AS_IT_RUNS)


def test_weights_have_an_offset_and_norms_differ(tmp_path: Path) -> None:
    """NM-1, NM-3: it is added in float32; eps, offset and rounding may be those of a call."""
    path = written(tmp_path, 100, rounded=False, scaled=True, offset=1.0, varies=VARIES)

    program("kernel_program.py", path, "0", **AS_IT_RUNS)


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

    program("kernel_program.py", path, str(int(rounded)), "3", **AS_IT_RUNS)


@pytest.mark.parametrize(
    ("width", "needs", "scaled", "varies"),
    [
        (64, NEEDS, False, ()),
        (100, (*LAYER, "rms_norm_int8"), False, ()),
        (64, (*NEEDS, "add_rms_norm_fp8_and_norm"), True, VARIES),
        (64, ("rms_add_biased_layer_norm_int8", "scaled_add", "to_fp8"), True, VARIES),
        (100, (*ADDITIONS, *FINALIZES), True, VARIES),
        (
            5120,
            (
                *("add_rms_norm_fp8", "add_rms_norm_fp8_group128", "rms_norm_fp8_static"),
                *("rms_add_rms_norm_fp8", "finalize_add_rms_norm_fp8"),
            ),
            False,
            (),
        ),
    ],
)
def test_kernels_compile(
    tmp_path: Path, width: int, needs: tuple[str, ...], scaled: bool, varies: tuple[str, ...]
) -> None:
    """With and without a mask; no GPU is needed for that. Wide rows move 16 bytes at a time."""
    path = written(tmp_path, width, rounded=True, scaled=scaled, varies=varies, needs=needs)

    words = ("accesses",) if width == 5120 else ()
    cache = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    program("compile_program.py", path, *words, **cache)


def test_only_the_kernels_that_are_called() -> None:
    """A stack that never adds and norms at once has no kernel for it."""
    text = render("kernels.py.jinja", norm_view("tiny", 64, PLAIN, needs={"rms_norm"}))

    assert "def rms_norm" in text
    assert "add_rms_norm" not in text


def test_a_stack_that_quantises_nothing_has_no_word_of_it() -> None:
    """Code is as short as the stack is plain."""
    text = render("kernels.py.jinja", norm_view("tiny", 64, PLAIN, needs=NEEDS))

    assert not any(word in text for word in ("QUANTIZE", "TINY", "scales", "quantize", "OFFSET"))
    assert text.count("tl.store") == 4


def test_every_kernel_is_laid_out_as_a_formatter_would(tmp_path: Path) -> None:
    """Whatever a stack needs: all of them, with all that calls may say."""
    norms = Norms(NormSpec("rms", 1e-6, "fp32", 1.0), VARIES)
    view = norm_view("tiny", 384, norms, needs=KERNELS, scaled=True)
    for name in ("kernels.py", "rowwise.py"):
        (tmp_path / name).write_text(render(f"{name}.jinja", view), encoding="utf-8")

    for words in (("format", "--check"), ("check",)):
        config = ("--no-cache", "--config", str(ROOT / "pyproject.toml"), str(tmp_path))
        command = [sys.executable, "-m", "ruff", *words, *config]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
