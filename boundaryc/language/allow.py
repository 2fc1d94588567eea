"""Comments that allow a finding of lint: `# boundaryc: allow BC601 because ...`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from boundaryc.language.codes import CODES
from boundaryc.language.diagnostics import Diagnostic, Severity
from boundaryc.language.model import Stack
from boundaryc.language.spans import Position, Span, split_lines

_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#[ \t]*boundaryc:(.*)$")
_ALLOW = re.compile(r"[ \t]*allow[ \t]+(BC6[0-8][0-9])[ \t]+because[ \t]+\S.*$")

_FORM = "write `# boundaryc: allow BC601 because ...`, with a code of lint and a reason"


@dataclass(frozen=True, slots=True)
class _Allow:
    """One suppression: the code it names, the line it is about, and where it is written."""

    code: str
    line: int
    span: Span


def apply_allows(stack: Stack, text: str, found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """`found` in file order, without what is allowed, with what is wrong with the comments."""
    allows, problems = _allows(stack, text)
    used: set[_Allow] = set()
    kept: list[Diagnostic] = []
    for item in found:
        line = item.span.start.line if item.span else 0
        matching = [allow for allow in allows if (allow.code, allow.line) == (item.code, line)]
        used.update(matching)
        if not matching:
            kept.append(item)
    for allow in allows:
        if allow not in used:
            message = f"nothing here is reported as {allow.code}"
            problems.append(_problem("BC692", message, allow.span, "remove the comment"))
    return tuple(sorted([*kept, *problems], key=_place))


def _allows(stack: Stack, text: str) -> tuple[list[_Allow], list[Diagnostic]]:
    """The suppressions that `text` makes, and those that are not complete.

    No value of a valid file has a space before a `#`, so lines need no parsing to find comments.
    """
    allows: list[_Allow] = []
    problems: list[Diagnostic] = []
    for number, line in enumerate(split_lines(text), start=1):
        match = _COMMENT.search(line)
        if match is None:
            continue
        span = Span(
            stack.source,
            Position(number, match.start() + 1),
            Position(number, len(line.rstrip()) + 1),
        )
        allow = _ALLOW.match(match[1])
        if allow is None or allow[1] not in CODES:
            message = "this comment suppresses nothing: it has no reason or no code of lint"
            problems.append(_problem("BC691", message, span, _FORM))
        else:
            alone = not line[: match.start()].strip()
            allows.append(_Allow(allow[1], number + alone, span))
    return allows, problems


def _problem(code: str, message: str, span: Span, help: str) -> Diagnostic:  # noqa: A002
    return Diagnostic(code, Severity.WARNING, message, span, (), help)


def _place(item: Diagnostic) -> tuple[bool, object, str, str]:
    return (item.span is None, item.span, item.code, item.message)
