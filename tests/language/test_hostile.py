"""Input that is not meant well: an error with a place, never a traceback, a hang or a surprise."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boundaryc.language import BoundarycError, Diagnostic, Position, load, loads, render
from boundaryc.language.names import MAX_NAME, RESERVED, call_problem, name_problem
from boundaryc.language.reader import read

ROOT = Path(__file__).parents[2]
BASE = (ROOT / "tests" / "fixtures" / "language" / "base.yaml").read_text(encoding="utf-8")


def _codes(text: str) -> list[str]:
    with pytest.raises(BoundarycError) as caught:
        loads(text)
    assert str(caught.value)
    return [item.code for item in caught.value.diagnostics]


def _bomb() -> str:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 10) + "]" for i in range(1, 12)]
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "BC002"),
        ("# only a comment\n", "BC002"),
        ("---\n...\n", "BC002"),
        ("~", "BC002"),
        ("just words", "BC103"),
        (_bomb(), "BC007"),
        ("a: &a [*a]\n", "BC007"),
        ("[ " * 400, "BC008"),
        ("[" * 100_000, "BC001"),
        ("{a: " * 100_000, "BC008"),
        ("".join(" " * i + "a:\n" for i in range(300)), "BC008"),
        ("- " * 20_000 + "x", "BC008"),
        ("? " * 20_000 + "x", "BC008"),
        ("x" * 1_000_001, "BC011"),
        ("a: '" + "x" * 900_000 + "'", "BC101"),
        ("\ud800: 1", "BC001"),
        ("a: \x00", "BC001"),
        ('a: "\\ud800"', "BC001"),
        ("a: b: c", "BC001"),
        ("%TAG ! tag:x,2000:\n---\n!y {}", "BC006"),
        ("\ufeff\ufeffa: 1", "BC101"),
    ],
    ids=range(21),
)
def test_one_bad_file(text: str, code: str) -> None:
    """Each is refused with a code, quickly, and its message can be printed."""
    begin = time.perf_counter()
    assert code in _codes(text)
    assert time.perf_counter() - begin < 5


def test_the_number_of_errors_is_bounded() -> None:
    """Thousands of errors are collected up to a limit, and the renderer counts the rest."""
    text = BASE + "".join("stack: x\n" for _ in range(5000))
    with pytest.raises(BoundarycError) as caught:
        loads(text)
    assert len(caught.value.diagnostics) == 100
    assert str(caught.value).endswith("... and 80 more")
    assert str(caught.value).count("error[") == 20


def test_a_yaml_line_break_counts_as_one() -> None:
    """Lines are counted as YAML counts them, whatever ends them."""
    for newline in ("\n", "\r\n", "\r", "\x85", "\u2028"):
        text = BASE.replace("hidden_size: 64", "hidden_size: '64'").replace("\n", newline)
        with pytest.raises(BoundarycError) as caught:
            loads(text)
        (found,) = caught.value.diagnostics
        assert found.span is not None
        assert (found.span.start.line, found.span.start.column) == (3, 14)
        assert "3 | hidden_size: '64'" in str(caught.value)


def test_columns_count_characters() -> None:
    """A character outside ASCII is one column."""
    with pytest.raises(BoundarycError) as caught:
        loads(BASE.replace("stack: demo", '? "st\u00e9\U0001f600ck"\n: 1\nstack: d\u00e9mo'))
    (found,) = caught.value.diagnostics
    assert found.span is not None
    assert (found.span.start.column, found.span.end.column) == (3, 11)


def test_a_byte_order_mark_takes_no_column() -> None:
    """Neither the place nor the line that is shown counts it."""
    with pytest.raises(BoundarycError) as caught:
        loads("\ufeff" + BASE.replace("boundaryc: 1", "boundaryc: 7"))
    assert "<string>:1:12\n  |\n1 | boundaryc: 7\n  |            ^\n" in str(caught.value)


def test_a_block_ends_with_its_last_value() -> None:
    """Not where the next token starts, which may be lines below."""
    root = read("a: 1\nb:\n  - 2\n\n\n# c\n", "m.yaml").root
    assert root.span.end == Position(3, 6)
    assert isinstance(root.value, dict)
    assert root.value["b"][1].span.end == Position(3, 6)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a folder and bytes that are not UTF-8 are errors of the user's."""
    (tmp_path / "latin.yaml").write_bytes(b"boundaryc: 1\nstack: d\xe9mo\n")
    for path, code in (("none.yaml", "BC009"), (".", "BC009"), ("latin.yaml", "BC010")):
        with pytest.raises(BoundarycError) as caught:
            load(tmp_path / path)
        assert [item.code for item in caught.value.diagnostics] == [code]
        assert caught.value.diagnostics[0].help
    span = caught.value.diagnostics[0].span
    assert span is not None
    assert (span.start.line, span.start.column) == (2, 9)


def test_the_terminal_is_not_steered() -> None:
    """Escape sequences in quoted strings are shown, not sent."""
    with pytest.raises(BoundarycError) as caught:
        loads(BASE.replace("stack: demo", 'stack: "\\e[31mred"'))
    assert "\x1b" not in str(caught.value)
    assert "\x1b" not in render(caught.value.diagnostics, {})


@pytest.mark.parametrize(
    "name", ["_x", "x_", "x__y", "X", "1x", "x-y", "x.y", "", "x\n", "\u0430", "\uff41"]
)
def test_names_outside_the_grammar(name: str) -> None:
    """Only a-z, 0-9 and single underscores, beginning with a letter."""
    for kind in RESERVED:
        problem = name_problem(kind, name)
        assert problem is not None
        assert problem[0] == "BC201"


def test_names_at_the_limit() -> None:
    """The longest name is a name, one more character is not; words of Python never are."""
    assert name_problem("stage", "a" * MAX_NAME) is None
    assert name_problem("stage", "a" * (MAX_NAME + 1)) is not None
    for word in ("class", "none", "true", "match", "type", "async"):
        assert name_problem("topology", word) is not None
    assert name_problem("stage", "a_to_b") is not None
    assert name_problem("topology", "a_to_b") is None
    assert name_problem("topology", "con") is not None


@pytest.mark.parametrize("call", ["a:b", "a.b:c", "_a.B1:c_d"])
def test_calls(call: str) -> None:
    """Dotted identifiers, a colon, an identifier."""
    assert call_problem(call) is None


NOT_CALLS = [
    *["", "a", "a.b", ":b", "a:", "a:b.c", "a:b:c", ".a:b", "a..b:c", "a:b\n", "a b:c", "a:b()"],
    *["1a:b", "a:__class__", "__main__:f", "a.class:f", "\u0430:b", "a\u0430:b", "a:" + "b" * 300],
]


@pytest.mark.parametrize("call", NOT_CALLS)
def test_not_calls(call: str) -> None:
    """Nothing else, so that no text of a file becomes code."""
    assert call_problem(call) is not None


PIECES = [
    *["", " ", "\n", "\t", ":", "{", "}", "[", "]", "- ", "? ", "&a", "*a", "!!x ", "'", '"', "0"],
    *["-1", "~", "<<: ", "\ufeff", "\r", "|", ">", "%", "#", "tp: ", "true", "\u2028", "1e999"],
]


def _found(text: str) -> tuple[Diagnostic, ...]:
    """What is wrong with `text`; nothing if it is a stack."""
    try:
        loads(text)
    except BoundarycError as caught:
        return caught.diagnostics
    return ()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutations_end_well(data: st.DataObject) -> None:
    """Any edit of a valid file gives a stack or diagnostics that can be rendered."""
    text = BASE
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        piece = data.draw(st.sampled_from(PIECES) | st.text(max_size=3))
        text = text[:start] + piece + text[end:]
    found = _found(text)
    assert bool(render(found, {"<string>": text})) == bool(found)
    for item in found:
        assert item.span is not None
        assert item.help
        assert item.span.start.line >= 1
        assert item.span.start.column >= 1
