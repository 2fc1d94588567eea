"""docs/language.md is true: its examples load or are rejected by name, its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from boundaryc.language import CODES, BoundarycError, loads
from boundaryc.language.base_shape import Shape
from boundaryc.language.fusion_shapes import FusionShape, TerminalShape
from boundaryc.language.layer_shapes import CaptureShape, ExtraShape
from boundaryc.language.lint import lint
from boundaryc.language.names import RESERVED
from boundaryc.language.planned import PLANNED
from boundaryc.language.schema import (
    BranchShape,
    DraftShape,
    LayersShape,
    LinkShape,
    MoeShape,
    NormShape,
    OperationShape,
    OverlapShape,
    PipelineShape,
    PolicyShape,
    QuantizeShape,
    ScaledAddShape,
    ScaleShape,
    StackShape,
    StageShape,
    TopologyShape,
)

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml *(?:planned=([^\n]*))?\n(.*?)^```", DOC, re.M | re.S)
BASE: str = BLOCKS[0][1]


def _whole(fragment: str) -> str:
    """A fragment put in the place of the same keys of the first example."""
    if fragment.startswith("boundaryc:"):
        return fragment
    parts = {
        text.partition(":")[0]: text for text in re.split(r"^(?=\w)", BASE, flags=re.M) if text
    }
    parts |= {t.partition(":")[0]: t for t in re.split(r"^(?=\w)", fragment, flags=re.M) if t}
    return "".join(parts.values())


@pytest.mark.parametrize("block", [text for planned, text in BLOCKS if not planned])
def test_supported_examples_load(block: str) -> None:
    """An example that is not marked as planned is a valid file."""
    assert loads(_whole(block)).layers


@pytest.mark.parametrize(("planned", "block"), [block for block in BLOCKS if block[0]])
def test_planned_examples_are_rejected_by_name(planned: str, block: str) -> None:
    """An example marked as planned is rejected with the named messages among others of its kind."""
    with pytest.raises(BoundarycError) as caught:
        loads(_whole(block))

    messages = [item.message for item in caught.value.diagnostics]
    assert {item.code for item in caught.value.diagnostics} == {"BC301"}
    assert {f"{word}: not yet supported" for word in planned.split(",")} <= set(messages)


def test_the_example_of_an_allowed_finding() -> None:
    """What the document's comment allows is not reported, and would be without it."""
    (block,) = [_whole(text) for _, text in BLOCKS if "boundaryc: allow" in text]
    codes = {item.code for item in lint(loads(block), block)}
    bare = re.sub("# boundaryc.*", "", block)
    assert "BC604" in {item.code for item in lint(loads(bare), bare)}
    assert not codes & {"BC604", "BC691", "BC692"}


def test_there_are_examples_of_both_sorts() -> None:
    """A change of the document's format cannot silence the two tests above."""
    assert sum(not planned for planned, _ in BLOCKS) >= 7
    assert sum(bool(planned) for planned, _ in BLOCKS) >= 1


def test_a_dense_model_is_short() -> None:
    """The plain dense example stays under 20 lines."""
    (dense,) = [text for _, text in BLOCKS if "stack: dense" in text]
    assert len(dense.splitlines()) < 20


@pytest.mark.parametrize(
    "shape",
    [
        BranchShape,
        CaptureShape,
        DraftShape,
        ExtraShape,
        FusionShape,
        LayersShape,
        LinkShape,
        MoeShape,
        NormShape,
        OperationShape,
        OverlapShape,
        PipelineShape,
        PolicyShape,
        QuantizeShape,
        ScaleShape,
        ScaledAddShape,
        StackShape,
        StageShape,
        TerminalShape,
        TopologyShape,
    ],
)
def test_every_key_has_a_row(shape: type[Shape]) -> None:
    """Each key is in a table of the document, or in a value that one shows."""
    rows = [line for line in DOC.splitlines() if line.startswith("|")]
    for key, field in shape.model_fields.items():
        assert field.description
        assert any(f"`{key}`" in row or f"`{{{key}: " in row for row in rows), key


def test_the_tables_say_what_is_planned() -> None:
    """What is rejected by name has a row that ends with `not yet` or `in part`."""
    rows = [line for line in DOC.splitlines() if re.search(r"\| (not yet|in part) \|$", line)]
    for place in (place for places in PLANNED.values() for place in places):
        word = re.split("[.=]", place)[-1]
        assert any(f"`{word}`" in row or f"`{{{word}: " in row for row in rows), place


def test_planned_operations_are_reserved() -> None:
    """A name that the language will give to a built-in cannot be taken by a custom operation."""
    for place in (place for places in PLANNED.values() for place in places):
        if place.startswith(("stage.read=", "stage.update=")):
            assert place.partition("=")[2] in RESERVED["operation"]


def test_codes_are_documented() -> None:
    """The document's last table is the registry of codes."""
    rows = dict(re.findall(r"^\| (BC\d{3}) \| (.*) \|$", DOC, re.M))
    assert rows == dict(CODES)


def test_codes_in_the_source_are_registered_and_used() -> None:
    """Each code in the package has a title, and each registered one of the language is reported."""
    used: set[str] = set()
    for path in (ROOT / "boundaryc").rglob("*.py"):
        if path.name != "codes.py":
            used |= set(re.findall(r'"(BC\d{3})"', path.read_text(encoding="utf-8")))
    assert used <= set(CODES)
    assert {code for code in CODES if code < "BC4"} <= used
