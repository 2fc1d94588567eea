"""What the documentation says the examples' files cannot say is refused when they are compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from boundaryc.emit.diagnose import planned_family
from boundaryc.language import loads
from boundaryc.language.diagnostics import BoundarycError
from examples.hf.architecture import architecture_names
from examples.hf.editions import EXAMPLES, written

PAGE = (EXAMPLES.parent / "docs/architectures.md").read_text(encoding="utf-8")

Row = tuple[str, tuple[str, ...], str]


def rows() -> Iterator[Row]:
    """The table's architecture, edits and code."""
    for line in PAGE.partition("## What is refused")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[2].startswith("BC"):
            yield cells[0].strip("`"), tuple(re.findall("`([^`]+)`", cells[1])), cells[2]


def edited(name: str, edits: tuple[str, ...]) -> str:
    """The example's file with more keys, each as a dotted path and a YAML value."""
    keys: Any = yaml.safe_load(written(name))
    for edit in edits:
        path, _, value = edit.partition(": ")
        *outer, last = path.split(".")
        place = keys
        for key in outer:
            place = place.setdefault(key, {})
        place[last] = yaml.safe_load(value)
    return yaml.safe_dump(keys, sort_keys=False)


@pytest.mark.parametrize(
    "row", list(rows()), ids=lambda row: f"{row[0]}-{row[1][0].partition(':')[0]}"
)
def test_the_documented_refusals_are_refused(row: Row) -> None:
    """With the code that the page names, at a line, and with a remedy."""
    name, edits, code = row
    text = edited(name, edits)

    with pytest.raises(BoundarycError) as refused:
        planned_family(loads(text, "stack.yaml"), {"stack.yaml": text})

    found = refused.value.diagnostics[0]
    assert found.code == code
    assert found.help


def test_every_architecture_has_a_row_in_both_tables() -> None:
    """An example that is added is described and says what it refuses."""
    described = set(re.findall(r"^\| `(\w+)` \|", PAGE.partition("## What is")[0], re.MULTILINE))

    assert described == set(architecture_names())
    assert {name for name, _, _ in rows()} == set(architecture_names())
