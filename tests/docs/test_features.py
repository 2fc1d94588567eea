"""docs/features.md: every row names a test that runs, an example, or what to do instead."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, ROOT, collected, rows

PAGE = (DOCS / "features.md").read_text("utf-8")
INSTEAD = (DOCS / "language.md").read_text("utf-8").partition("\n## Left out")[2]
LEFT_OUT = {row[0] for row in rows(INSTEAD.partition("\n## ")[0])}
ROWS = rows(PAGE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_what_a_row_names_exists(row: list[str]) -> None:
    _, _, shown = row
    named = re.findall(r"`(tests/[^`]+)`", shown)
    examples = re.findall(r"\]\(\.\./(examples/[^)]+)\)", shown)
    left_out = re.findall(r"\*([^*]+)\*", shown)

    assert named or examples or left_out
    assert [
        one for one in named if one.partition("::")[2] not in collected(one.partition("::")[0])
    ] == []
    assert [one for one in examples if not (ROOT / one / "stack.yaml").exists()] == []
    assert set(left_out) <= LEFT_OUT
    assert bool(left_out) == ("[left out]" in shown)


def test_what_is_left_out_is_asked_for() -> None:
    """Each row of what to do instead stands for something on the page."""
    asked = {name for row in ROWS for name in re.findall(r"\*([^*]+)\*", row[2])}

    assert asked == LEFT_OUT
    assert len(ROWS) > 60
