"""One line per diagnostic: `file:line:column: code message`."""

from __future__ import annotations

from collections.abc import Mapping

from boundaryc.language.diagnostics import Diagnostic
from boundaryc.language.renderers.style import MAX_SHOWN, Style, hidden, printable


def render(items: tuple[Diagnostic, ...], sources: Mapping[str, str], color: bool) -> str:
    """The diagnostics a line each, at most `MAX_SHOWN`, then the number of the rest."""
    style = Style(color)
    lines = [_line(item, style) for item in items[:MAX_SHOWN]]
    rest = hidden(len(items))
    return "\n".join([*lines, rest] if rest else lines)


def _line(item: Diagnostic, style: Style) -> str:
    place = f"{style.paint('bold', printable(str(item.span)))}: " if item.span else ""
    code = style.paint(item.severity.value, item.code)
    return f"{place}{code} {printable(item.message)}"
