"""JSON Schemas: of stack files, for editors, and of the diagnostics that are printed as JSON.

The first is derived from the shapes, so that an editor and the compiler agree on keys, types and
ranges; what a file means is beyond it. Both are published in `schemas/`.
"""

from __future__ import annotations

import json
from typing import Any

from boundaryc.language.codes import CODES
from boundaryc.language.diagnostics import Severity
from boundaryc.language.names import MAX_NAME
from boundaryc.language.planned import SHIPPED, Gates
from boundaryc.language.renderers.json import VERSION
from boundaryc.language.schema import StackShape

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_NAME = {"pattern": "^[a-z](_?[a-z0-9])*$", "maxLength": MAX_NAME}
_LAYERS = {"pattern": "^(0|[1-9][0-9]*)(-(0|[1-9][0-9]*))?$"}
_CHARACTER = {"minLength": 1, "maxLength": 1}
_KEYS = {
    ("Stack", "stages"): _NAME,
    ("Stack", "topologies"): _NAME,
    ("Stack", "operations"): _NAME,
    ("Stack", "captures"): _NAME,
    ("Stack", "drafts"): _NAME,
    ("Draft", "stages"): _NAME,
    ("Stage", "additive"): _NAME,
    ("Layers", "at"): _LAYERS,
    ("Layers", "stages"): _CHARACTER,
}


def schema(gates: Gates = SHIPPED) -> dict[str, Any]:
    """The JSON Schema of a stack file.

    Every field has a description, no alternative is null, and what `gates` close is not offered.
    """
    raw = StackShape.model_json_schema()
    shapes = {name.removesuffix("Shape"): shape for name, shape in raw.pop("$defs").items()}
    shapes["Stack"] = raw
    for name, shape in shapes.items():
        shape["title"] = name.lower()
        closed = gates.keys(name.lower())
        shape["properties"] = {
            key: field for key, field in shape["properties"].items() if key not in closed
        }
    for name, shape in shapes.items():
        empty = {other for other, part in shapes.items() if not part["properties"]}
        for key, field in shape["properties"].items():
            closed = gates.words(name.lower(), key)
            shape["properties"][key] = _field(name, key, _open(_tidy(field), empty, closed))
    head = {"$schema": DIALECT, **shapes.pop("Stack")}
    head |= {"title": "boundaryc stack", "description": "A decoder stack, for boundaryc to compile"}
    reached = _reached(head, shapes)
    return head | {"$defs": {name: shapes[name] for name in sorted(reached)}}


def _open(value: Any, empty: set[str], closed: list[str]) -> Any:
    """A property without words that are not built and alternatives that have no key left."""
    if isinstance(value, dict):
        gone = [{"$ref": f"#/$defs/{name}"} for name in empty]
        value = {
            key: [arm for arm in part if arm not in gone] if key == "oneOf" else part
            for key, part in value.items()
        }
        if len(value.get("oneOf", ())) == 1:
            value = {**value.pop("oneOf")[0], **value}
        return {key: _open(part, empty, closed) for key, part in value.items()}
    if isinstance(value, list):
        return [_open(part, empty, closed) for part in value if part not in closed]
    return value


def _reached(value: Any, shapes: dict[str, Any]) -> set[str]:
    """The shapes that `value` refers to, also through others."""
    if isinstance(value, dict):
        name = str(value.get("$ref", "")).removeprefix("#/$defs/")
        more = {name} | _reached(shapes[name], shapes) if name else set()
        return more.union(*(_reached(part, shapes) for part in value.values()))
    if isinstance(value, list):
        return set().union(*(_reached(part, shapes) for part in value))
    return set()


def _field(owner: str, key: str, field: dict[str, Any]) -> dict[str, Any]:
    """One property: without a made-up title, without null, with the names its keys may have."""
    field = {name: value for name, value in field.items() if name != "title"}
    some = [arm for arm in field.pop("anyOf", []) if arm != {"type": "null"}]
    for arm in some:
        field = arm | field
    if field.get("default", ...) is None:
        del field["default"]
    if (owner, key) in _KEYS:
        field["propertyNames"] = _KEYS[owner, key]
    if field.get("type") == "array":
        field["uniqueItems"] = True
    if (owner, key) == ("Stack", "stack"):
        field |= _NAME
    return field


def _tidy(value: Any) -> Any:
    """`value` with references to the shapes by their short names."""
    if isinstance(value, dict):
        return {key: _tidy(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_tidy(part) for part in value]
    if isinstance(value, str) and value.startswith("#/$defs/"):
        return value.removesuffix("Shape")
    return value


def diagnostics_schema() -> dict[str, Any]:
    """The JSON Schema of what the renderer `json` writes."""
    count = {"type": "integer", "minimum": 0}
    words = [severity.value for severity in Severity]
    return {
        "$schema": DIALECT,
        "title": "boundaryc diagnostics",
        "description": "What boundaryc found in stack files, in the order in which it is shown",
        **_object(
            version=_described("version of this format", const=VERSION),
            kind=_described("what the document is", const="diagnostics"),
            summary=_described(
                "how many diagnostics there are of each severity",
                **_object(
                    **{word: count | {"description": f"number of {word}s"} for word in words}
                ),
            ),
            diagnostics=_described(
                "all of them", type="array", items={"$ref": "#/$defs/diagnostic"}
            ),
        ),
        "$defs": _diagnostic_parts(words),
    }


def _diagnostic_parts(words: list[str]) -> dict[str, Any]:
    counted = {"type": "integer", "minimum": 1}
    text = {"type": "string"}
    label = _object(
        span=_described("the place", **{"$ref": "#/$defs/span"}),
        text=_described("what it has to do with the diagnostic; may be empty", **text),
    )
    span_or_none = [{"$ref": "#/$defs/span"}, {"type": "null"}]
    diagnostic = _object(
        code=_described("see docs/diagnostics.md", enum=list(CODES)),
        severity=_described("only an error stops a compilation", enum=words),
        message=_described("what is wrong, in one line", **text),
        help=_described("what to do, in one sentence; may be empty", **text),
        span=_described("the place to change; null if it is in no file", oneOf=span_or_none),
        labels=_described("further places", type="array", items={"$ref": "#/$defs/label"}),
    )
    span = _object(
        file=_described("the file's name as it was given", **text),
        start=_described("its first character", **{"$ref": "#/$defs/position"}),
        end=_described("one character past its last", **{"$ref": "#/$defs/position"}),
    )
    position = _object(
        line=_described("counted from 1", **counted),
        column=_described("in characters, counted from 1", **counted),
    )
    parts = {"diagnostic": diagnostic, "label": label, "span": span, "position": position}
    return {name: {"description": f"one {name}", **part} for name, part in parts.items()}


def _described(description: str, **rest: Any) -> dict[str, Any]:
    return {"description": description, **rest}


def _object(**properties: Any) -> dict[str, Any]:
    """An object that has these properties, all of them and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def schema_text(name: str) -> str:
    """The schema called "stack" or "diagnostics" as it is published; KeyError for another name."""
    return json.dumps(SCHEMAS[name](), indent=2) + "\n"


SCHEMAS = {"stack": schema, "diagnostics": diagnostics_schema}
"""The published schemas by name; the file is `schemas/<name>.schema.json`."""
