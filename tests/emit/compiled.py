"""Stacks compiled in memory, once for all tests that read them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from boundaryc.emit.build import Build, build

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = Path(__file__).resolve().parent / "fixtures"
MOE = ROOT / "examples/qwen3_moe/stack.yaml"
WIDE = FIXTURES / "wide.yaml"
DRAFTS = FIXTURES / "drafts.yaml"


@cache
def family(source: Path) -> tuple[Build, ...]:
    """What the stacks of ``source`` compile to for the folder `generated` of the checkout."""
    return build(source, ROOT / "generated")


def compiled(source: Path) -> Build:
    """The same of the file's own stack."""
    return family(source)[0]


def function(text: str, name: str) -> str:
    """The source of one top-level function, its docstring included."""
    _, _, rest = text.partition(f"\ndef {name}(")
    assert rest, f"no function {name}"
    return f"def {name}({rest.split(chr(10) * 3)[0]}"
