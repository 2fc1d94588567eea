"""The statements of a function with the locals they use."""

from __future__ import annotations

import re

LOCALS = ("groups", "rows", "stream")
"""What a function takes from its batch."""

_ATTRIBUTE = {name: re.compile(rf"(?<![\w.]){name}\.") for name in LOCALS}


def body(lines: list[str], result: str | None = None) -> tuple[str, ...]:
    """Statements with their locals; ``result`` is returned, at once where it is assigned last."""
    lines = list(lines)
    if result is not None:
        if lines and lines[-1].startswith(f"{result} = "):
            lines[-1] = "return " + lines[-1].removeprefix(f"{result} = ")
        else:
            lines.append(f"return {result}")
    counts = {name: _count(lines, name) for name in LOCALS}
    names = [name for name, count in counts.items() if count]
    if len(lines) == 1:
        return (_qualified(lines[0], names),)
    if sum(counts.values()) == 1:
        return tuple(_qualified(line, names) for line in lines)
    if not names:
        return tuple(lines)
    sources = ", ".join(f"batch.{name}" for name in names)
    return (f"{', '.join(names)} = {sources}", *lines)


def _count(lines: list[str], name: str) -> int:
    start = f"{name}."
    return sum(len(_ATTRIBUTE[name].findall(line)) for line in lines if start in line)


def _qualified(line: str, names: list[str]) -> str:
    for name in names:
        line = _ATTRIBUTE[name].sub(f"batch.{name}.", line)
    return line
