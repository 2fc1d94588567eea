"""Annotations of a GitHub workflow, and the full text for its log.

GitHub shows ten annotations of a step and drops the others without a word, so the worst ten are
written and the text below them has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping

from boundaryc.language.diagnostics import Diagnostic, Severity
from boundaryc.language.renderers import full
from boundaryc.language.renderers.style import printable, worst_first

MAX_ANNOTATIONS = 10

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(items: tuple[Diagnostic, ...], sources: Mapping[str, str], color: bool) -> str:
    """At most `MAX_ANNOTATIONS` workflow commands, an empty line, and the full text."""
    if not items:
        return ""
    lines = [_annotation(item) for item in worst_first(items)[:MAX_ANNOTATIONS]]
    return "\n".join([*lines, "", full.render(items, sources, color)])


def _annotation(item: Diagnostic) -> str:
    properties: dict[str, object] = {}
    if item.span is not None:
        start, end = item.span.start, item.span.end
        properties |= {"file": item.span.file, "line": start.line, "col": start.column}
        if end.line == start.line and end.column > start.column:
            properties |= {"endLine": end.line, "endColumn": end.column - 1}  # theirs is inclusive
    properties["title"] = item.code
    listed = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    text = printable(item.message) + (f"\nhelp: {printable(item.help)}" if item.help else "")
    return f"::{_COMMANDS[item.severity]} {listed}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
