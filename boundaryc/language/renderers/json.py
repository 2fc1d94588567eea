"""Diagnostics for programs: one versioned JSON document, as `diagnostics.schema.json` says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from boundaryc.language.diagnostics import Diagnostic, Severity
from boundaryc.language.spans import Position, Span

VERSION = 1
"""Changes when a reader of the document would have to change."""


def render(items: tuple[Diagnostic, ...], sources: Mapping[str, str], color: bool) -> str:
    """All diagnostics, in the given order; a document even if there are none. ASCII only."""
    return json.dumps(document(items), indent=2)


def document(items: tuple[Diagnostic, ...]) -> dict[str, Any]:
    """What `render` writes, as plain values."""
    severities = [item.severity for item in items]
    return {
        "version": VERSION,
        "kind": "diagnostics",
        "summary": {severity.value: severities.count(severity) for severity in Severity},
        "diagnostics": [_diagnostic(item) for item in items],
    }


def _diagnostic(item: Diagnostic) -> dict[str, Any]:
    return {
        "code": item.code,
        "severity": item.severity.value,
        "message": item.message,
        "help": item.help,
        "span": _span(item.span) if item.span else None,
        "labels": [{"span": _span(label.span), "text": label.text} for label in item.labels],
    }


def _span(span: Span) -> dict[str, Any]:
    return {"file": span.file, "start": _position(span.start), "end": _position(span.end)}


def _position(position: Position) -> dict[str, int]:
    return {"line": position.line, "column": position.column}
