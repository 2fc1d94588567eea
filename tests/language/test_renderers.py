"""The formats beside `full`: a line each, JSON, and the annotations of a workflow."""

from __future__ import annotations

import json
import re

import pytest

from boundaryc.language import FORMATS, Diagnostic, Label, Position, Severity, Span, render

ESCAPE = re.compile("\x1b\\[[0-9;]*m")


def _item(number: int, severity: Severity = Severity.ERROR, **rest: object) -> Diagnostic:
    span = Span("m.yaml", Position(number, 2), Position(number, 5))
    return Diagnostic("BC101", severity, f"message {number}", span, **rest)  # type: ignore[arg-type]


SOURCES = {"m.yaml": "one two three\n" * 40}


def test_concise() -> None:
    """`file:line:column: code message`, and only the code where there is no place."""
    items = [_item(3), Diagnostic("BC009", Severity.ERROR, "gone\n\x1b[1m")]
    assert render(items, SOURCES, "concise").splitlines() == [
        "m.yaml:3:2: BC101 message 3",
        "BC009 gone\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[1m",
    ]


@pytest.mark.parametrize("name", ["full", "concise", "github"])
def test_the_rest_is_counted(name: str) -> None:
    """People are shown 20 and told how many more there are; one that fits is shown."""
    assert render([_item(1)] * 25, SOURCES, name).endswith("\n... and 5 more")
    assert "more" not in render([_item(1)] * 20, SOURCES, name)


def test_json_has_all_of_them() -> None:
    """Programs get every diagnostic, with every place, and the counts."""
    label = Label(Span("n.yaml", Position(1, 1), Position(2, 4)), "also \u00e9\ud800")
    items = [_item(n, Severity.WARNING, labels=(label,), help="fix it") for n in range(1, 31)]
    document = json.loads(render(items, SOURCES, "json"))
    assert (document["version"], document["kind"]) == (1, "diagnostics")
    assert document["summary"] == {"error": 0, "warning": 30, "note": 0}
    assert document["diagnostics"][29] == {
        "code": "BC101",
        "severity": "warning",
        "message": "message 30",
        "help": "fix it",
        "span": {
            "file": "m.yaml",
            "start": {"line": 30, "column": 2},
            "end": {"line": 30, "column": 5},
        },
        "labels": [
            {
                "span": {
                    "file": "n.yaml",
                    "start": {"line": 1, "column": 1},
                    "end": {"line": 2, "column": 4},
                },
                "text": "also \u00e9\ud800",
            }
        ],
    }
    assert render(items, SOURCES, "json").isascii()


def test_github_shows_the_worst_ten() -> None:
    """Errors before warnings before notes, ten in all; the text below has them in their order."""
    items = [
        *[_item(n, Severity.NOTE) for n in range(1, 4)],
        *[_item(n, Severity.WARNING) for n in range(4, 12)],
        *[_item(n) for n in range(12, 15)],
    ]
    text = render(items, SOURCES, "github")
    commands = [line for line in text.splitlines() if line.startswith("::")]
    assert [line.split()[0] for line in commands] == ["::error"] * 3 + ["::warning"] * 7
    assert commands[0] == (
        "::error file=m.yaml,line=12,col=2,endLine=12,endColumn=4,title=BC101::message 12"
    )
    assert text.endswith("\n\n" + render(items, SOURCES))


def test_github_cannot_be_steered() -> None:
    """Whatever a message or a file name holds, it is one command and no other."""
    span = Span("a,b:c%.yaml", Position(1, 1), Position(2, 1))
    item = Diagnostic("BC101", Severity.ERROR, "50%\n::warning::no\r", span, (), "a\n::b")
    text = render([item], {}, "github")
    assert text.splitlines()[0] == (
        "::error file=a%2Cb%3Ac%25.yaml,line=1,col=1,title=BC101::"
        "50%25\ufffd::warning::no\ufffd%0Ahelp: a\ufffd::b"
    )
    assert sum(line.lstrip().startswith("::") for line in text.splitlines()) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_colour_is_the_callers_choice(name: str) -> None:
    """Without it there is no escape sequence; with it nothing but escape sequences is added."""
    items = [_item(3, help="fix it"), _item(4, Severity.WARNING), _item(5, Severity.NOTE)]
    plain, painted = render(items, SOURCES, name), render(items, SOURCES, name, color=True)
    assert "\x1b" not in plain
    assert ESCAPE.sub("", painted) == plain
    assert (painted != plain) == (name != "json")


def test_an_unknown_format() -> None:
    """Is the caller's mistake."""
    with pytest.raises(KeyError):
        render([], {}, "xml")


@pytest.mark.parametrize("column", [1, 61, 300, 940, 1000])
def test_a_long_line_is_shown_around_the_caret(column: int) -> None:
    """The caret stays under its character, and the line under a limit."""
    line = "".join(chr(ord("a") + n % 26) for n in range(1000))
    span = Span("m.yaml", Position(1, column), Position(1, column + 3))
    item = Diagnostic("BC101", Severity.ERROR, "x", span)
    shown = render([item], {"m.yaml": line}).splitlines()
    assert len(shown[3]) < 180
    assert shown[3][shown[4].index("^")] == line[column - 1]
    assert shown[4].count("^") == min(3, 1001 - column)


def test_two_places_of_one_long_line() -> None:
    """Each is shown with its own part of the line."""
    line = "a" * 500 + "b" + "a" * 400 + "c"
    first, second = (Span("m.yaml", Position(1, c), Position(1, c + 1)) for c in (501, 902))
    item = Diagnostic("BC101", Severity.ERROR, "x", second, (Label(first, "first"),))
    shown = render([item], {"m.yaml": line}).splitlines()
    assert shown[3][shown[4].index("-")] == "b"
    assert shown[6][shown[7].index("^")] == "c"
