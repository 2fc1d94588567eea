"""Every test that docs/specification.md names exists, and so does every module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from boundaryc.language.planned import PLANNED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "specification.md"
HOMES = (Path(), Path("tests/runtime"), Path("boundaryc/runtime"))


def _rows() -> list[tuple[str, str, str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]
    assert {len(row) for row in cells} == {3}
    return [(row[0], row[1], row[2]) for row in cells if row[0] != "statement"]


BUILT = [row for row in _rows() if row[1] != "not yet"]
PENDING = [row for row in _rows() if row[1] == "not yet"]


def _file(name: str) -> Path | None:
    found = (ROOT / home / name for home in HOMES)
    return next((path for path in found if path.exists()), None)


@pytest.mark.parametrize("row", BUILT, ids=lambda row: row[0][:50])
def test_what_is_named_exists(row: tuple[str, str, str]) -> None:
    implementation, tests = row[1], row[2]
    for name in re.findall(r"`([\w/]+(?:\.py)?)`", implementation):
        if name.endswith(".py") or "/" in name:
            assert _file(name), f"{name} is not there"
    file = None
    assert "`" in tests
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
            end = "" if test.endswith("…") else r"\b"
            assert re.search(rf"def {prefix}{end}", file.read_text()), f"no {prefix} in {file.name}"


def test_what_is_not_built_is_rejected_by_name() -> None:
    """Every statement that waits names a construct that is closed, and each of these is named."""
    gates = {gate for row in PENDING for gate in re.findall(r"`([^`]+)`", row[2])}
    assert all(re.fullmatch(r"`[^`]+`", row[2]) for row in PENDING)
    assert gates == PLANNED.keys()


def test_the_page_has_statements() -> None:
    assert (len(BUILT) > 110, len(PENDING) > 0) == (True, True)
