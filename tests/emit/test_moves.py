"""The generated kernels that move rows against torch, bit for bit; interpreted without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from boundaryc.emit.render import render
from boundaryc.emit.row_moves import move_view
from boundaryc.plan.row_moves import MOVES, PLACE, TO_SHARDS
from tests.emit.compiled import ROOT
from tests.emit.programs import program
from tests.emit.test_kernels import AS_IT_RUNS

pytest.importorskip("triton")


def written(folder: Path, width: int, needs: object = MOVES) -> str:
    """The path of `move_kernels.py` for rows of ``width`` columns."""
    view = move_view("tiny", width, list(needs))  # type: ignore[call-overload]
    for name in ("moves.py", "move_kernels.py"):
        (folder / name).write_text(render(f"{name}.jinja", view), encoding="utf-8")
    return str(folder / "move_kernels.py")


@pytest.mark.parametrize("width", [384, 100])
def test_rows_are_moved_bit_for_bit(tmp_path: Path, width: int) -> None:
    """Placed, permuted, padded and quantised, in every dtype, 0 to 17 rows."""
    grouped = [name for name in MOVES if width % 128 == 0 or "group128" not in name]
    words = ("3",) if width == 384 else ()
    program("move_program.py", written(tmp_path, width, grouped), *words, **AS_IT_RUNS)


def test_they_compile_for_a_gpu(tmp_path: Path) -> None:
    """No GPU is needed for that."""
    path = written(tmp_path, 384, (PLACE, TO_SHARDS, "to_tokens_fp8_static_and_rows"))
    cache = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    program("compile_program.py", path, **cache)


def test_they_are_laid_out_as_a_formatter_would(tmp_path: Path) -> None:
    """All of them."""
    written(tmp_path, 384)
    for words in (("format", "--check"), ("check",)):
        config = ("--no-cache", "--config", str(ROOT / "pyproject.toml"), str(tmp_path))
        command = [sys.executable, "-m", "ruff", *words, *config]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


STACK = """\
stages:
  attention: {kind: attention, order: token, quantize: {format: fp8, scale: token, keep: true}}
  mlp: {kind: ffn}
layers: {count: 2, default: [attention, mlp]}
topologies: {tp4_cp2: {tp: 4, attn_cp: 2}}
variants: [ordinary, context_parallel]
"""


def test_rows_are_permuted_and_quantised_in_one() -> None:
    """Where the one follows the other; a stack whose rows are not moved so has no module for it."""
    from tests.verify.fused import HEAD  # simulated ranks need more than kernels do
    from tests.verify.subjects import compiled

    _, files = compiled(HEAD + STACK)
    text = files["tp4_cp2/context_parallel.py"]
    assert "    return to_tokens_fp8_and_rows(hidden, rows.order)\n" in text
    _, plain = compiled(HEAD + STACK.replace(", context_parallel", ""))
    assert "moves.py" not in plain
