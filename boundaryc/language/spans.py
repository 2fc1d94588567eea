"""Places in a source file.

Lines and columns are 1-based and columns count characters, which is what editors show. The end of a
span is exclusive: the column one past its last character.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# YAML ends a line at each of these, so positions only agree with the text if we do too.
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def split_lines(text: str) -> list[str]:
    """The lines of `text` as YAML counts them, without their ends; at least one."""
    return _LINE_BREAK.split(text)


class Position(NamedTuple):
    """One character of a file: `line` and `column`, both counted from 1."""

    line: int
    column: int


class Span(NamedTuple):
    """The characters of `file` from `start` up to, not including, `end`.

    `file` is the name the source was loaded under, unchanged, so that what is printed can be
    clicked in a terminal.
    """

    file: str
    start: Position
    end: Position

    def __str__(self) -> str:
        return f"{self.file}:{self.start.line}:{self.start.column}"
