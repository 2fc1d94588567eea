"""Tables and sentences for people, on a terminal of some width or on none."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

LONGEST = 100
"""Characters of a line of words, however wide the terminal."""


def columns() -> int:
    """Characters of a line of the terminal; 0 where output goes to a file or to another program."""
    if os.environ.get("COLUMNS") or sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return 0


def wrapped(text: str, width: int, indent: str = "") -> Iterator[str]:
    """A sentence in lines, those behind the first indented by two more."""
    longest = max(20, min(width or LONGEST, LONGEST))
    yield from textwrap.wrap(
        text,
        longest,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def filled(text: str, width: int) -> str:
    """Paragraphs as wide as a terminal that is narrower than they are; indented ones are kept."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        "\n".join(
            textwrap.wrap(one, max(20, width), break_long_words=False, break_on_hyphens=False)
        )
        if width and not one.startswith(" ") and max(map(len, one.splitlines())) > width
        else one
        for one in paragraphs
    )


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int, indent: str = ""
) -> Iterator[str]:
    """A table; where the terminal is too narrow for it, a block of ``name: cell`` for each row.

    Columns without any text are left out; numbers end, words begin below each other.
    """
    used = [at for at in range(len(head)) if any(row[at] for row in rows)]
    widths = {at: max(len(head[at]), *(len(row[at]) for row in rows)) for at in used}
    if width and len(indent) + sum(widths.values()) + 2 * (len(used) - 1) > width:
        for row in rows:
            named = [f"{head[at]}: {row[at]}" for at in used if row[at]]
            yield from wrapped(f"- {', '.join(named)}", width, indent)
        return
    right = {at for at in used if all(not row[at] or _counts(row[at]) for row in rows)}
    for row in (head, *rows):
        cells = [
            row[at].rjust(widths[at]) if at in right else row[at].ljust(widths[at]) for at in used
        ]
        yield f"{indent}{'  '.join(cells)}".rstrip()


def _counts(cell: str) -> bool:
    return cell.replace(".", "").replace(",", "").replace("-", "").isdigit()


def number(value: float) -> str:
    """A count of bytes or rows: with separators, and a fraction only where there is one.

    >>> number(57344.0), number(0.5)
    ('57,344', '0.5')
    """
    whole = float(value).is_integer() or abs(value) >= 1000
    return f"{value:,.0f}" if whole else f"{value:,.4g}"
