"""What the formats for people share: colours, limits, and characters that are safe to print."""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.language.diagnostics import Diagnostic, Severity

MAX_SHOWN = 20
"""How many diagnostics are shown to people before the rest is only counted."""

_CODES = {"bold": "1", "error": "1;31", "warning": "1;33", "note": "1;36", "frame": "1;34"}


@dataclass(frozen=True, slots=True)
class Style:
    """Paints text for a terminal, or leaves it alone."""

    color: bool

    def paint(self, how: str, text: str) -> str:
        """`text` as "bold", "frame" or a severity's value; unchanged without colour or text."""
        return f"\x1b[{_CODES[how]}m{text}\x1b[0m" if self.color and text else text


def hidden(count: int) -> str:
    """The line that stands for what is not shown of `count` diagnostics; empty if all are."""
    return f"... and {count - MAX_SHOWN} more" if count > MAX_SHOWN else ""


def printable(text: str) -> str:
    """`text` with each unprintable character replaced by one of width one.

    Keeps carets aligned under tabs, and keeps a source file from steering the terminal.
    """
    return "".join(
        char if char.isprintable() else " " if char == "\t" else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def worst_first(items: tuple[Diagnostic, ...]) -> list[Diagnostic]:
    """Errors, then warnings, then notes; in the given order within each."""
    ranks = {severity: rank for rank, severity in enumerate(Severity)}
    return sorted(items, key=lambda item: ranks[item.severity])
