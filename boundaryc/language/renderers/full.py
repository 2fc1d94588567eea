"""Diagnostics for people: each with its source lines, carets and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boundaryc.language.diagnostics import Diagnostic
from boundaryc.language.renderers.style import MAX_SHOWN, Style, hidden, printable
from boundaryc.language.spans import Span, split_lines

MAX_LINE = 160
"""Characters of a source line that are shown; of a longer one, those around the caret."""

_BEFORE = 60  # characters left of the caret that are kept of a line that is too long


def render(items: tuple[Diagnostic, ...], sources: Mapping[str, str], color: bool) -> str:
    """The diagnostics in the given order, at most `MAX_SHOWN`, then the number of the rest."""
    style = Style(color)
    lines = {name: split_lines(text) for name, text in sources.items()}
    blocks = [_render_one(item, lines, style) for item in items[:MAX_SHOWN]]
    rest = hidden(len(items))
    return "\n\n".join([*blocks, rest] if rest else blocks)


def _render_one(item: Diagnostic, lines: Mapping[str, list[str]], style: Style) -> str:
    kind = style.paint(item.severity.value, f"{item.severity.value}[{item.code}]")
    marks = _marks(item)
    width = max((len(str(mark.span.start.line)) for mark in marks), default=1)
    out = [f"{kind}: {style.paint('bold', printable(item.message))}"]
    if item.span is not None:
        out.append(f"{' ' * width}{style.paint('frame', '-->')} {printable(str(item.span))}")
    shown = [mark for mark in marks if _has_line(mark.span, lines)]
    out.extend(_snippet(shown, lines, width, item, style))
    if item.help:
        out.append(f"{' ' * width} {style.paint('frame', '=')} help: {printable(item.help)}")
    return "\n".join(out)


@dataclass(frozen=True, slots=True)
class _Mark:
    span: Span
    text: str
    caret: str


def _marks(item: Diagnostic) -> list[_Mark]:
    """The places of a diagnostic, those in its own file first, by position."""
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
    marks: list[_Mark], lines: Mapping[str, list[str]], width: int, item: Diagnostic, style: Style
) -> list[str]:
    bar = f"{' ' * width} {style.paint('frame', '|')}"
    out: list[str] = []
    file = item.span.file if item.span else ""
    previous: tuple[int, int] | None = None
    for mark in marks:
        span = mark.span
        if span.file != file:
            out.append(f"{' ' * width}{style.paint('frame', ':::')} {printable(str(span))}")
            file, previous = span.file, None
        text, skipped = _window(lines[span.file][span.start.line - 1], span.start.column)
        if (span.start.line, skipped) != previous:
            number = style.paint("frame", f"{span.start.line:>{width}} |")
            out += [bar, f"{number} {printable(text)}".rstrip()]
        previous = (span.start.line, skipped)
        carets = mark.caret * _caret_length(span, text, skipped)
        kind = item.severity.value if mark.caret == "^" else "frame"
        under = style.paint(kind, f"{carets} {printable(mark.text)}".rstrip())
        out.append(f"{bar} {' ' * (span.start.column - 1 - skipped)}{under}")
    return out


def _window(text: str, column: int) -> tuple[str, int]:
    """The part of a line that is shown, and how many columns it begins further right."""
    if len(text) <= MAX_LINE:
        return text, 0
    first = max(0, column - 1 - _BEFORE)
    left = "..." if first else ""
    right = "..." if first + MAX_LINE < len(text) else ""
    return f"{left}{text[first : first + MAX_LINE]}{right}", first - len(left)


def _caret_length(span: Span, text: str, skipped: int) -> int:
    """How many characters a span covers of the shown part of its first line, at least one."""
    end = span.end.column if span.end.line == span.start.line else skipped + len(text.rstrip()) + 1
    return max(1, min(end, skipped + len(text) + 1) - span.start.column)
