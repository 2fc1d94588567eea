"""Text in the one layout that generated Python has: what fits on a line stays on it.

The result is what a formatter with lines of 100 characters leaves alone, so none has to run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

WIDTH = 100


def bracketed(head: str, items: Sequence[str], tail: str, *, indent: int = 0) -> tuple[str, ...]:
    """``head`` + items + ``tail`` as lines: on one if it fits, else one item a line.

    ``head`` ends with the opening bracket, ``tail`` begins with the closing one. ``indent`` is the
    column at which the first line starts; the returned lines do not carry it.

    >>> bracketed("f(", ["a", "b"], ")")
    ('f(a, b)',)
    """
    line = f"{head}{', '.join(items)}{tail}"
    if indent + len(line) <= WIDTH and "\n" not in line:
        return (line,)
    return (head, *(f"    {item}," for item in items), tail)


def tuple_lines(head: str, items: Sequence[str], *, indent: int = 0) -> tuple[str, ...]:
    """``head`` and a tuple of ``items`` as lines; ``head`` ends before the bracket.

    >>> tuple_lines("A = ", ["x"])
    ('A = (x,)',)
    """
    if len(items) == 1:
        line = f"{head}({items[0]},)"
        return (line,) if indent + len(line) <= WIDTH else (f"{head}(", f"    {items[0]},", ")")
    return bracketed(f"{head}(", items, ")", indent=indent)


def broken(line: str, *, indent: int = 0) -> tuple[str, ...]:
    """A statement that ends in a call, with one argument a line where it is too long.

    >>> broken("return f(x, (y, z))", indent=90)
    ('return f(', '    x,', '    (y, z),', ')')
    >>> broken("    return f(x, (y, z))", indent=90)
    ('    return f(', '        x,', '        (y, z),', '    )')
    >>> broken("x = tuple(f(part) for part in y)", indent=70)
    ('x = tuple(', '    f(part) for part in y', ')')
    >>> broken("x = tuple(f(part) for part in y)", indent=90)
    ('x = tuple(', '    f(part)', '    for part in y', ')')
    """
    margin = len(line) - len(line.lstrip())
    if margin:
        return indented(broken(line[margin:], indent=indent + margin), margin)
    if indent + len(line) <= WIDTH or not line.endswith(")"):
        return (line,)
    depth, start, items = 0, line.index("("), [""]
    for character in line[start + 1 : -1]:
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            items.append("")
        else:
            items[-1] += character
    if len(items) == 1 and " for " in items[0]:  # behind a generator there may be no comma
        return _generator(line[: start + 1], items[0], indent)
    return bracketed(line[: start + 1], [item.strip() for item in items], ")", indent=indent)


def _generator(head: str, text: str, indent: int) -> tuple[str, ...]:
    """A call whose one argument is a generator, which has its loop on a line of its own if long."""
    if indent + 4 + len(text) <= WIDTH:
        return (head, f"    {text}", ")")
    value, loop = text.rsplit(" for ", 1)
    return (head, f"    {value}", f"    for {loop}", ")")


def indented(lines: Iterable[str], columns: int = 4) -> tuple[str, ...]:
    """The lines moved to the right; empty ones stay empty."""
    return tuple(" " * columns + line if line else line for line in lines)


def closed(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines of an item of a list that goes on."""
    return (*lines[:-1], f"{lines[-1]},")


@lru_cache(maxsize=4096)
def wrapped(first: str, text: str, *, indent: int = 0) -> tuple[str, ...]:
    """``first`` + ``text`` broken into lines, the later ones aligned with the text.

    ``indent`` is the column at which the lines will start; they do not carry it.
    """
    return tuple(
        textwrap.wrap(
            text,
            WIDTH - indent,
            initial_indent=first,
            subsequent_indent=" " * len(first),
            break_long_words=False,
            break_on_hyphens=False,
        )
        or [first.rstrip()]
    )


def listed(words: Sequence[str], last: str = "and") -> str:
    """Words as people list them.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def bracketed_import(module: str, names: Sequence[str], *, indent: int = 0) -> tuple[str, ...]:
    """An import that is broken as a formatter would, at the column ``indent``."""
    line = f"from {module} import {', '.join(names)}"
    if indent + len(line) <= WIDTH:
        return (line,)
    return (f"from {module} import (", *(f"    {name}," for name in names), ")")


def local_imports(home: Mapping[str, str]) -> tuple[str, ...]:
    """The imports of names from the modules beside this one in which they are."""
    found: dict[str, list[str]] = {}
    for name, module in home.items():
        found.setdefault(module, []).append(name)
    return tuple(
        line
        for module, names in sorted(found.items())
        for line in bracketed_import(
            f".{module}", sorted(names, key=lambda name: (not name.isupper(), name))
        )
    )
