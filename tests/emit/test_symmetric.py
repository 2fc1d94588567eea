"""Generated sums over symmetric memory, and where stacks have them; see `symmetric_ranks` too."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundaryc.emit.norms import Norms
from boundaryc.emit.render import render
from boundaryc.emit.summing import sum_view
from boundaryc.language.model import NormSpec
from tests.emit.compiled import MOE, compiled
from tests.emit.programs import INTERPRETED, program
from tests.verify.subjects import compiled as subject

STACK = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn, norm: {kind: rms, eps: 1.0e-5}}
layers: {count: 2, default: [attention, mlp]}
topologies: {tp2: {tp: 2}, tp4_dp4: {tp: 4, attn_dp: 4}}
fusion: {providers: [symmetric_memory]}
"""
FILES = {"symmetric.py", "symmetric_kernels.py"}


def test_sums_agree_with_float64(tmp_path: Path) -> None:
    """One-shot and two-shot, late and absent ranks; without a mask, and with one and own norms."""
    pytest.importorskip("triton")
    usual = Norms(NormSpec("rms", 1e-6, "fp32"))
    other = Norms(NormSpec("rms", 1e-6, "fp32", 1.0), ("eps", "offset", "rounded"))
    paths = []
    for width, norms in ((64, usual), (96, other)):
        path = tmp_path / f"symmetric_kernels_{width}.py"
        text = render("symmetric_kernels.py.jinja", sum_view("tiny", width, norms))
        path.write_text(text, encoding="utf-8")
        paths.append(str(path))

    program("symmetric_program.py", *paths, **INTERPRETED)


def test_every_boundary_that_is_a_sum_has_a_kernel() -> None:
    """With the norm of the stage that reads it; a topology without such sums has none."""
    _, files = subject(STACK)

    assert set(files) >= FILES
    layout = files["tp2/layout.py"]
    assert layout.count("kernel=symmetric.kernel(),") == 1
    assert layout.count("kernel=symmetric.kernel(eps=1e-05),") == 1
    assert "def kernel(eps: float = EPS) -> runtime.SumKernel | None:" in files["symmetric.py"]
    assert "symmetric" not in files["tp4_dp4/layout.py"]
    for name in FILES:
        compile(files[name], name, "exec")


def test_a_stack_that_does_not_name_it_has_no_word_of_it() -> None:
    """Also where another provider is named."""
    for files in (
        compiled(MOE).output.files,
        subject(STACK.replace("symmetric_memory", "engine"))[1],
    ):
        assert not any("symmetric" in text for text in files.values())
        assert not FILES & set(files)
