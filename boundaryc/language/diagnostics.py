"""The one form in which boundaryc tells a user that something is wrong, and its text renderer."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from boundaryc.language.spans import Span

MAX_SHOWN = 20
"""How many diagnostics the text renderer prints before it only counts the rest."""

# YAML ends a line at each of these, so positions only agree with the text if we do too.
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


class Severity(enum.Enum):
    """How bad it is. Only an `ERROR` stops a compilation."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Label:
    """A second place that belongs to a diagnostic, and what it has to do with it."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    `code` is a key of `boundaryc.language.codes.CODES`. `span` is the place to change, None when no
    line of a file is to blame. `labels` are further places; one with the same span as `span` gives
    the text beside the caret. `help` says what to do, in one sentence.
    """

    code: str
    severity: Severity
    message: str
    span: Span | None = None
    labels: tuple[Label, ...] = ()
    help: str = ""


class BoundarycError(Exception):
    """Errors in what the user wrote: at least one `Diagnostic`, all of one phase.

    `sources` maps the file names in the spans to their text, so that `str()` can show the lines.
    """

    def __init__(
        self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None
    ) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        self.sources: Mapping[str, str] = dict(sources or {})
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return render(self.diagnostics, self.sources)


def error(
    code: str,
    message: str,
    span: Span | None = None,
    *,
    help: str,  # noqa: A002 - the word users see
    labels: Iterable[Label] = (),
) -> Diagnostic:
    """An error; `help` is required because an error without a remedy is half an error."""
    return Diagnostic(code, Severity.ERROR, message, span, tuple(labels), help)


def render(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> str:
    """The diagnostics as text for people, each with its source lines and carets.

    `sources` maps file names to text; a file that is not in it is named without its lines. At most
    `MAX_SHOWN` are shown, in the given order. Ends without a newline; empty for no diagnostics.
    """
    items = tuple(diagnostics)
    lines = {name: _LINE_BREAK.split(text) for name, text in sources.items()}
    blocks = [_render_one(item, lines) for item in items[:MAX_SHOWN]]
    hidden = len(items) - MAX_SHOWN
    if hidden > 0:
        blocks.append(f"... and {hidden} more")
    return "\n\n".join(blocks)


def _render_one(item: Diagnostic, lines: Mapping[str, list[str]]) -> str:
    head = f"{item.severity.value}[{item.code}]: {_printable(item.message)}"
    marks = _marks(item)
    width = max((len(str(mark.span.start.line)) for mark in marks), default=1)
    out = [head]
    if item.span is not None:
        out.append(f"{' ' * width}--> {_printable(str(item.span))}")
    shown = [mark for mark in marks if _has_line(mark.span, lines)]
    out.extend(_snippet(shown, lines, width, item.span))
    if item.help:
        out.append(f"{' ' * width} = help: {_printable(item.help)}")
    return "\n".join(out)


@dataclass(frozen=True, slots=True)
class _Mark:
    span: Span
    text: str
    caret: str


def _marks(item: Diagnostic) -> list[_Mark]:
    """The places of a diagnostic: the primary first within a line, then by position."""
    marks: list[_Mark] = []
    own = [label.text for label in item.labels if label.span == item.span]
    if item.span is not None:
        marks.append(_Mark(item.span, "; ".join(own), "^"))
    marks += [
        _Mark(label.span, label.text, "-") for label in item.labels if label.span != item.span
    ]
    home = item.span.file if item.span else ""
    return sorted(marks, key=lambda mark: (mark.span.file != home, mark.span))


def _has_line(span: Span, lines: Mapping[str, list[str]]) -> bool:
    return span.file in lines and 1 <= span.start.line <= len(lines[span.file])


def _snippet(
    marks: list[_Mark], lines: Mapping[str, list[str]], width: int, primary: Span | None
) -> list[str]:
    bar = f"{' ' * width} |"
    out: list[str] = []
    file = primary.file if primary else ""
    previous = 0
    for mark in marks:
        span = mark.span
        if span.file != file:
            out.append(f"{' ' * width}::: {_printable(str(span))}")
            file, previous = span.file, 0
        text = lines[span.file][span.start.line - 1]
        if span.start.line != previous:
            out += [bar, f"{span.start.line:>{width}} | {_printable(text)}".rstrip()]
        previous = span.start.line
        carets = mark.caret * _caret_length(span, text)
        out.append(
            f"{bar} {' ' * (span.start.column - 1)}{carets} {_printable(mark.text)}".rstrip()
        )
    return out


def _caret_length(span: Span, text: str) -> int:
    """How many characters of its first line a span covers, at least one."""
    end = span.end.column if span.end.line == span.start.line else len(text.rstrip()) + 1
    return max(1, min(end, len(text) + 1) - span.start.column)


def _printable(text: str) -> str:
    """`text` with each unprintable character replaced by one of width one.

    Keeps carets aligned under tabs, and keeps a source file from steering the terminal.
    """
    return "".join(
        char if char.isprintable() else " " if char == "\t" else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )
