"""Every test that docs/specification.md names exists, and so does every module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "specification.md"
HOMES = (Path(), Path("tests/runtime"), Path("boundaryc/runtime"))


def _rows() -> list[tuple[str, str, str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]
    return [(row[0], row[1], row[2]) for row in cells if len(row) == 3 and row[0] != "statement"]


def _file(name: str) -> Path | None:
    found = (ROOT / home / name for home in HOMES)
    return next((path for path in found if path.exists()), None)


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row[0][:50])
def test_what_is_named_exists(row: tuple[str, str, str]) -> None:
    implementation, tests = row[1], row[2]
    for name in re.findall(r"`([\w/]+(?:\.py)?)`", implementation):
        if name.endswith(".py") or "/" in name:
            assert _file(name), f"{name} is not there"
    file = None
    for token in re.findall(r"`([^`]+)`", tests):
        path, _, test = token.partition("::")
        if path.endswith(".py") or "/" in path:
            file = _file(path)
            assert file is not None, f"{path} is not there"
        else:
            test = path
        if test:
            assert file is not None
            prefix = test.rstrip("…")
            assert re.search(rf"def {prefix}", file.read_text()), f"{prefix} is not in {file.name}"


def test_the_page_has_statements() -> None:
    assert len(_rows()) > 30
