"""A compile does not replace what another file, which is still there, was compiled to."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundaryc.api import compile as compile_
from boundaryc.emit.publish import PublishError

TEXT = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages: {attention: {kind: attention}, mlp: {kind: ffn}}
layers: {count: 2, default: [attention, mlp]}
topologies: {tp2: {tp: 2}}
variants: [ordinary]
"""


def test_another_file_keeps_its_output(tmp_path: Path) -> None:
    first, second, out = tmp_path / "a.yaml", tmp_path / "b.yaml", tmp_path / "out"
    first.write_text(TEXT)
    second.write_text(TEXT.replace("count: 2", "count: 3"))
    compile_(first, out=out)
    before = (out / "sample" / "tp2" / "__init__.py").read_text()

    with pytest.raises(PublishError, match=r"was compiled from .*a\.yaml, which is still there"):
        compile_(second, out=out)

    assert (out / "sample" / "tp2" / "__init__.py").read_text() == before
    compile_(second, out=out, replace=True)
    compile_(first, out=out, replace=True)
    assert (out / "sample" / "tp2" / "__init__.py").read_text() == before
    first.unlink()
    compile_(second, out=out)  # a file that was moved takes its output along
    assert (out / "sample" / "tp2" / "__init__.py").read_text() != before
