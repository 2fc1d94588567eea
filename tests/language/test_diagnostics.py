"""The text renderer, and the promises of the one diagnostic type."""

from __future__ import annotations

import dataclasses

import pytest

from boundaryc.language import (
    BoundarycError,
    Diagnostic,
    Label,
    Position,
    Severity,
    Span,
    loads,
    render,
)


def _span(line: int, start: int, end: int, file: str = "m.yaml") -> Span:
    return Span(file, Position(line, start), Position(line, end))


TEXT = "\n" * 8 + "stages:\n\tone: {reduce: tp}\n\n  two: {read: late}\n"


def test_two_places() -> None:
    """The primary place has carets, the second one dashes, lines are numbered and aligned."""
    item = Diagnostic(
        "BC204",
        Severity.ERROR,
        "summed twice",
        _span(12, 9, 13),
        (Label(_span(10, 7, 13), "first sum"), Label(_span(12, 9, 13), "second sum")),
        "drop one of them",
    )
    expected = """\
error[BC204]: summed twice
  --> m.yaml:12:9
   |
10 |  one: {reduce: tp}
   |       ------ first sum
   |
12 |   two: {read: late}
   |         ^^^^ second sum
   = help: drop one of them"""
    assert render([item], {"m.yaml": TEXT}) == expected


def test_place_in_another_file() -> None:
    """A second file is named before its line."""
    item = Diagnostic(
        "BC204", Severity.WARNING, "odd", _span(9, 1, 7), (Label(_span(1, 1, 2, "n.yaml"), "here"),)
    )
    expected = """\
warning[BC204]: odd
 --> m.yaml:9:1
  |
9 | stages:
  | ^^^^^^
 ::: n.yaml:1:1
  |
1 | x
  | - here"""
    assert render([item], {"m.yaml": TEXT, "n.yaml": "x"}) == expected


def test_without_source_or_place() -> None:
    """What is not known is left out."""
    item = Diagnostic("BC009", Severity.ERROR, "gone", None, (), "look elsewhere")
    assert render([item], {}) == "error[BC009]: gone\n  = help: look elsewhere"
    assert render([dataclasses.replace(item, span=_span(3, 1, 2))], {}).splitlines()[1:2] == [
        " --> m.yaml:3:1"
    ]
    assert render([], {}) == ""


def test_long_and_strange_spans() -> None:
    """A span over several lines is underlined to the end of its first; one past the end is kept."""
    over = Span("m.yaml", Position(9, 3), Position(12, 2))
    past = _span(9, 8, 9)
    beyond = _span(99, 1, 2)
    texts = [
        render([Diagnostic("BC001", Severity.NOTE, "x", span)], {"m.yaml": TEXT})
        for span in (over, past, beyond)
    ]
    assert texts[0].endswith("|   ^^^^^")
    assert texts[1].endswith("|        ^")
    assert texts[2].endswith(" --> m.yaml:99:1")


def test_an_error_shows_itself() -> None:
    """The exception carries the diagnostics and their source, and prints as the renderer does."""
    with pytest.raises(BoundarycError) as caught:
        loads("boundaryc: 2\n", "m.yaml")
    assert len(caught.value.diagnostics) == 1
    assert str(caught.value) == render(caught.value.diagnostics, {"m.yaml": "boundaryc: 2\n"})


def test_second_place_of_a_real_error() -> None:
    """Overlapping layers show both places."""
    text = (
        "boundaryc: 1\nstack: s\nhidden_size: 8\nnorm: {kind: rms, eps: 1e-5}\n"
        "stages:\n  a: {kind: attention}\n  b: {kind: ffn}\n"
        "layers:\n  count: 4\n  default: [a, b]\n  at:\n    0-1: [a]\n    1: [b]\n"
        "topologies: {t: {tp: 1}}\n"
    )
    with pytest.raises(BoundarycError) as caught:
        loads(text, "m.yaml")
    assert "12 |     0-1: [a]\n   |     --- named here first" in str(caught.value)
    assert "13 |     1: [b]\n   |     ^" in str(caught.value)
