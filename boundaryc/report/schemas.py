"""The JSON Schemas of what commands print as JSON, derived from what they print.

Published in `schemas/` beside those of the language.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter

from boundaryc.language.json_schema import DIALECT
from boundaryc.report.costs import Costs
from boundaryc.report.diff.model import Differences
from boundaryc.report.documents import (
    Check,
    Compilation,
    Completion,
    Failure,
    Recordings,
    Traces,
    Verification,
)
from boundaryc.report.drawing import Drawing
from boundaryc.report.environment import Environment
from boundaryc.report.explained import Explained
from boundaryc.report.origin_line import GeneratedLine
from boundaryc.report.page_model import Report
from boundaryc.scaffold.written import Written


@dataclass(frozen=True, slots=True)
class ExplainedCode:
    """What a diagnostic means, with an example that fails and one that works."""

    code: str
    title: str
    story: str
    fails: str
    works: str


RESULTS: Mapping[str, type] = MappingProxyType(
    {
        "explanation": ExplainedCode,
        "explain": Explained,
        "generated_line": GeneratedLine,
        "cost": Costs,
        "graph": Drawing,
        "report": Report,
        "init": Written,
        "diff": Differences,
        "env": Environment,
        "compile": Compilation,
        "check": Check,
        "verify": Verification,
        "recordings": Recordings,
        "trace": Traces,
        "completion": Completion,
        "error": Failure,
    }
)
"""What the results are, by the kind of their document; the file is `schemas/<kind>.schema.json`."""

VERSION = 1
"""Of every document; that of `boundaryc.cli.output`."""


def result_schema(kind: str) -> dict[str, Any]:
    """The schema of one kind of document. Raises KeyError for another kind."""
    shape = TypeAdapter(RESULTS[kind]).json_schema(mode="serialization")
    parts = {name: _closed(part) for name, part in shape.pop("$defs", {}).items()}
    shape = _closed(shape)
    head = {
        "version": {"description": "version of this format", "const": VERSION},
        "kind": {"description": "what the document is", "const": kind},
    }
    return {
        "$schema": DIALECT,
        **shape,
        "title": f"boundaryc {kind}",
        "properties": {**head, **shape["properties"]},
        "required": [*head, *shape["required"]],
        **({"$defs": parts} if parts else {}),
    }


def _closed(shape: dict[str, Any]) -> dict[str, Any]:
    """An object that has its properties and no others, which have no made-up titles."""
    found = _plain(shape)
    assert isinstance(found, dict)
    return {**found, "required": list(found["properties"]), "additionalProperties": False}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        one_of = {"anyOf": "oneOf"}
        return {
            one_of.get(key, key): _plain(part)
            for key, part in value.items()
            if key != "default" and not (key == "title" and isinstance(part, str))
        }
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value


def result_schema_text(kind: str) -> str:
    """A schema as it is published."""
    return json.dumps(result_schema(kind), indent=2) + "\n"
