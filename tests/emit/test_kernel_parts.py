"""Modules of kernels that would be too long to read, divided by kernel."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from boundaryc.emit.kernel_parts import HEADER, kernel_files
from boundaryc.emit.norms import Norms
from boundaryc.emit.parts import LONGEST
from boundaryc.emit.render import render
from boundaryc.emit.rowwise import norm_view
from tests.emit.programs import program
from tests.emit.test_hyper_kernels import FUSED, PLAIN, view_of
from tests.emit.test_kernels import PLAIN as USUAL
from tests.emit.test_kernels import VARIES

pytest.importorskip("triton")

ROWS = (
    *("rms_norm", "add_rms_norm", "rms_norm_fp8_static_and_norm", "add_rms_norm_int8_and_norm"),
    *("rms_norm_fp8_group128", "add_biased_layer_norm", "scaled_add", "to_int8"),
)
MODULES = ("kernels", "hyper_kernels")


@cache
def texts() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Whole modules, and their functions."""
    rows = norm_view("tiny", 256, Norms(USUAL.usual, VARIES), needs=ROWS, scaled=True)
    streams = view_of(64, 4, (*PLAIN, FUSED))
    return {
        "kernels": (render("kernels.py.jinja", rows), tuple(k.name for k in rows.kernels)),
        "hyper_kernels": (
            render("hyper_kernels.py.jinja", streams),
            tuple(k.name for k in streams.kernels),
        ),
    }


def statements(text: str) -> list[str]:
    """All but the docstring, imports and what is exported."""
    left_out = (ast.Import, ast.ImportFrom, ast.Expr)
    found = [node for node in ast.parse(text).body if not isinstance(node, left_out)]
    return [one for one in map(ast.unparse, found) if not one.startswith("__all__")]


@pytest.mark.parametrize("module", MODULES)
def test_the_parts_are_the_whole(module: str) -> None:
    """Every statement once, in the order of the whole; one part for each kernel."""
    text, kernels = texts()[module]
    files = kernel_files(module, text, kernels)

    parts = {name: statements(one) for name, one in files.items()}
    every = Counter(one for part in parts.values() for one in part)
    assert every == Counter(statements(text))
    order = {one: at for at, one in enumerate(statements(text))}
    assert all(part == sorted(part, key=order.__getitem__) for part in parts.values())
    assert parts[f"{module}.py"] == []
    assert len(parts) >= len(kernels) + 2
    assert all(HEADER + len(one.splitlines()) <= LONGEST for one in files.values())


def test_what_is_short_stays_whole() -> None:
    """To the letter."""
    text = render("hyper_kernels.py.jinja", view_of(64, 4, ("hyper_enter",)))

    assert kernel_files("hyper_kernels", text, ["hyper_enter"]) == {"hyper_kernels.py": text}


def test_parts_compute_what_the_whole_does(tmp_path: Path) -> None:
    """Bit for bit."""
    for module, (text, kernels) in texts().items():
        trees = {"whole": {f"{module}.py": text}, "divided": kernel_files(module, text, kernels)}
        for tree, files in trees.items():
            (tmp_path / tree).mkdir(exist_ok=True)
            for name, one in files.items():
                (tmp_path / tree / name).write_text(one, encoding="utf-8")

    program("divided_program.py", str(tmp_path), TRITON_INTERPRET="1")
