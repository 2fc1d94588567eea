"""A stack file as text: bounded, regular, UTF-8, or a diagnostic."""

from __future__ import annotations

import stat
from pathlib import Path
from unicodedata import category

from boundaryc.language.diagnostics import BoundarycError, Diagnostic, error
from boundaryc.language.reader import MAX_CHARACTERS, line_and_column
from boundaryc.language.spans import Position, Span

MAX_BYTES = 4 * MAX_CHARACTERS + 3
"""No text of `MAX_CHARACTERS` is longer, with a byte order mark."""

_UNWRITABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Controls, line ends, and what stands for bytes that are not UTF-8."""


def read_text(path: str | Path) -> str:
    """The text of the file at `path`, without a byte order mark.

    Raises BoundarycError if it is missing, no regular file, unreadable or has a name that cannot be
    written down (BC009), not UTF-8 (BC010)
    or too large to be looked at (BC011). Reads no more than `MAX_BYTES`.
    """
    source = str(path)
    check_name(source)
    data = read_bytes(path)
    if len(data) > MAX_BYTES:
        message = f"the file has more than {MAX_BYTES} bytes"
        help_ = f"at most {MAX_CHARACTERS} characters are read; name a stack file"
        raise BoundarycError([error("BC011", message, _start(source), help=help_)])
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        found = _not_utf8(data, problem.start, source)
        shown = data.decode("utf-8", errors="replace").removeprefix("\ufeff")
        raise BoundarycError([found], {source: shown}) from problem
    return text.removeprefix("\ufeff")


def check_name(path: str) -> None:
    """Raises BoundarycError (BC009) for a path that no message and no header could show."""
    if all(category(char) not in _UNWRITABLE for char in path):
        return
    message = f"{path!a} is no name for a stack file: it is no single line of Unicode text"
    help_ = "rename it; generated files say in one line where they come from"
    raise BoundarycError([error("BC009", message, help=help_)])


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a regular file, up to one more than `MAX_BYTES`.

    Raises BoundarycError (BC009) if it is missing, no regular file or unreadable.
    """
    source, path = str(path), Path(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            help_ = "name the file in it, like stack.yaml"
            raise BoundarycError([error("BC009", f"{source} is a folder", help=help_)])
        if not stat.S_ISREG(mode):  # reading a pipe or a device might never end
            help_ = "name a regular file; write what a pipe delivers to a file first"
            raise BoundarycError([error("BC009", f"{source} is not a regular file", help=help_)])
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as problem:  # ValueError: a NUL byte in the path
        reason = getattr(problem, "strerror", None) or str(problem)
        help_ = "check the path and its permissions"
        found = error("BC009", f"cannot read {source}: {reason}", help=help_)
        raise BoundarycError([found]) from problem


def _not_utf8(data: bytes, offset: int, source: str) -> Diagnostic:
    before = data[:offset].decode("utf-8").removeprefix("\ufeff")
    line, column = line_and_column(before)
    span = Span(source, Position(line, column), Position(line, column + 1))
    message = f"byte 0x{data[offset]:02x} is not valid UTF-8"
    return error("BC010", message, span, help="save the file as UTF-8")


def _start(source: str) -> Span:
    return Span(source, Position(1, 1), Position(1, 2))
