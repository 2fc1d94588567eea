"""Input that is not meant well: an error with a place, never a traceback, a hang or a surprise."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from boundaryc.language import BoundarycError, Position, load, loads, render
from boundaryc.language.names import MAX_NAME, RESERVED, call_problem, name_problem
from boundaryc.language.reader import read
from tests.language import fuzz
from tests.language.fuzz import run
from tests.language.hang import HangError, no_hang

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


def _far_too_many_layers() -> str:
    layers = ", ".join(f"{i}: [attentoin, mpl]" for i in range(9999))
    return BASE.replace("0: [attention, mlp]", layers).replace("count: 4", "count: 10000")


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
        ("a: '" + "x" * 900_000 + "'", "BC012"),
        ("x" * 900_000 + ": 1", "BC012"),
        ("a: [" + "0, " * 300_000 + "]", "BC011"),
        (BASE + "".join(f"k{i}: 1\n" for i in range(40_000)), "BC101"),
        (BASE.replace("[ordinary]", "[" + "ordinary, " * 90_000 + "]"), "BC104"),
        (BASE.replace("[ordinary]", "[" + "ordinary, " * 250 + "]"), "BC210"),
        (_far_too_many_layers(), "BC203"),
        ("&" * 900_000, "BC001"),
        ("a: " * 300_000, "BC001"),
        ("\ud800: 1", "BC001"),
        ("a: \x00", "BC001"),
        ('a: "\\ud800"', "BC001"),
        ("a: b: c", "BC001"),
        ("%TAG ! tag:x,2000:\n---\n!y {}", "BC006"),
        ("\ufeff\ufeffa: 1", "BC101"),
    ],
    ids=range(29),
)
def test_one_bad_file(text: str, code: str) -> None:
    """Each is refused with a code, and its message can be printed."""
    with no_hang():
        assert code in _codes(text)


def test_a_hang_is_noticed() -> None:
    """What runs for longer than the limit is stopped, and nothing is left behind."""
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(HangError, match="still running"), no_hang(0.01):
        signal.pause()
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        BASE + "stack: x\n" * 5000,
        BASE + "".join(f"k{i}: 1\n" for i in range(5000)),
        _far_too_many_layers(),
    ],
    ids=["reading", "shape", "meaning"],
)
def test_the_number_of_errors_is_bounded(text: str) -> None:
    """Thousands of errors are collected up to a limit, and the renderer counts the rest."""
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


@pytest.mark.parametrize(
    ("name", "code", "help_"),
    [
        ("none.yaml", "BC009", "check the path and its permissions"),
        ("latin.yaml/x", "BC009", "check the path and its permissions"),
        ("nul\0.yaml", "BC009", "rename it; generated files say in one line where they come from"),
        ("a\nb.yaml", "BC009", "rename it; generated files say in one line where they come from"),
        ("\udcff.yaml", "BC009", "rename it; generated files say in one line where they come from"),
        (
            "a\u2028b.yaml",
            "BC009",
            "rename it; generated files say in one line where they come from",
        ),
        ("x" * 5000, "BC009", "check the path and its permissions"),
        ("loop.yaml", "BC009", "check the path and its permissions"),
        (".", "BC009", "name the file in it, like stack.yaml"),
        ("pipe", "BC009", "name a regular file; write what a pipe delivers to a file first"),
        ("latin.yaml", "BC010", "save the file as UTF-8"),
        ("utf16.yaml", "BC010", "save the file as UTF-8"),
        ("huge.yaml", "BC011", "at most 1000000 characters are read; name a stack file"),
        (
            "zeros.yaml",
            "BC001",
            "delete the character, or write it as an escape inside double quotes",
        ),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, code: str, help_: str) -> None:
    """Whatever a path leads to, the answer is an error of the user's."""
    (tmp_path / "latin.yaml").write_bytes(b"boundaryc: 1\nstack: d\xe9mo\n")
    (tmp_path / "utf16.yaml").write_bytes(BASE.encode("utf-16"))
    (tmp_path / "huge.yaml").write_bytes(b"# 10 MB\n" * 1_250_000)
    (tmp_path / "zeros.yaml").write_bytes(bytes(1000))
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BoundarycError) as caught, no_hang():
        load(f"{tmp_path}/{name}")
    assert [(item.code, item.help) for item in caught.value.diagnostics] == [(code, help_)]
    assert str(caught.value)


def test_permission_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's reason is passed on."""

    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.yaml").write_text(BASE)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(BoundarycError) as caught:
        load(tmp_path / "a.yaml")
    (found,) = caught.value.diagnostics
    assert (found.code, found.span) == ("BC009", None)
    assert found.message == f"cannot read {tmp_path}/a.yaml: Permission denied"


@pytest.mark.parametrize(
    ("data", "place", "line"),
    [
        (b"boundaryc: 1\nstack: d\xe9mo\n", (2, 9), "2 | stack: d\ufffdmo"),
        (b"\xef\xbb\xbfa\xff", (1, 2), "1 | a\ufffd"),
        (b"a: \xe2\x80\xa8b\x0cc: \xff", (2, 6), "2 | b\ufffdc: \ufffd"),
    ],
)
def test_the_first_byte_that_is_not_utf8(
    tmp_path: Path, data: bytes, place: tuple[int, int], line: str
) -> None:
    """Its place counts lines and the byte order mark as every other place does."""
    (tmp_path / "m.yaml").write_bytes(data)
    with pytest.raises(BoundarycError) as caught:
        load(tmp_path / "m.yaml")
    span = caught.value.diagnostics[0].span
    assert span is not None
    assert (span.start.line, span.start.column) == place
    assert line in str(caught.value)


def test_what_a_file_quotes_is_cut() -> None:
    """A message stays readable whatever stands in the file, and so does the line that is shown."""
    text = BASE.replace("[ordinary]", "[ordinary]\n? " + "k" * 9000 + "\n: 1")
    with pytest.raises(BoundarycError) as caught:
        loads(text)
    assert len(caught.value.diagnostics[0].message) == 400
    assert max(map(len, str(caught.value).splitlines())) < 450


def test_names_that_look_alike() -> None:
    """A letter of another alphabet is named by its number, and compatible ones are spelled out."""
    assert name_problem("stage", "\uff4dlp") == (
        "BC201",
        "the stage name `\uff4dlp` contains U+FF4D FULLWIDTH LATIN SMALL LETTER M",
        "type it as `mlp`, in plain letters",
    )
    problem = name_problem("stage", "ml\u0440")
    assert problem is not None
    assert "U+0440 CYRILLIC SMALL LETTER ER" in problem[1]
    assert problem[2].startswith("use a-z, 0-9")
    assert call_problem("m\u043e:f") == "`m\u043e:f` contains U+043E CYRILLIC SMALL LETTER O"


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
    assert name_problem("topology", "kernels_of_all") is not None


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


def test_mutations_end_well() -> None:
    """A thousand random edits of the examples: stacks or diagnostics, and none hangs."""
    stats = run(1000, seed=20)
    assert not stats.failures, stats.failures[0]
    assert stats.count == 1000
    assert stats.stacks > 100
    assert len(stats.codes) > 15
    assert run(20, seed=20).codes == run(20, seed=20).codes


def test_a_failure_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that is no BoundarycError, and a text that hangs, are failures."""
    monkeypatch.setattr(fuzz, "examine", lambda text: 1 / 0)
    assert "ZeroDivisionError" in run(2, seed=1).failures[1]
    monkeypatch.setattr(fuzz, "examine", lambda text: signal.pause())
    monkeypatch.setattr(fuzz, "LIMIT", 0.01)
    assert "HangError" in run(2, seed=1).failures[1]
