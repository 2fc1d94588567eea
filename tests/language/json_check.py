"""A validator for the part of JSON Schema that the published schemas use.

It refuses a schema with any other keyword, so that nothing in a schema goes unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_NOTES = {"$schema", "$defs", "title", "description", "default"}
_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> Iterator[str]:
    """What is wrong with `value`, a path and a keyword each."""
    for keyword, wanted in schema.items():
        if keyword in _NOTES:
            continue
        if keyword in ("properties", "additionalProperties", "propertyNames", "items", "$ref"):
            yield from _parts(keyword, value, schema, root)
        elif keyword == "oneOf":
            if sum(not list(problems(value, arm, root)) for arm in wanted) != 1:
                yield "oneOf"
        elif not _holds(keyword, value, wanted):
            yield f"{keyword}: {wanted}"


def _parts(keyword: str, value: Any, schema: dict[str, Any], root: dict[str, Any]) -> Iterator[str]:
    """The keywords that lead to other schemas."""
    wanted = schema[keyword]
    if keyword == "$ref":
        yield from problems(value, root["$defs"][wanted.removeprefix("#/$defs/")], root)
    elif keyword == "items":
        for item in value if isinstance(value, list) else []:
            yield from problems(item, wanted, root)
    elif isinstance(value, dict):
        known = schema.get("properties", {})
        for key, part in value.items():
            if keyword == "propertyNames":
                yield from problems(key, wanted, root)
            elif keyword == "properties" and key in known:
                yield from (f"{key}: {text}" for text in problems(part, known[key], root))
            elif keyword == "additionalProperties" and key not in known:
                if wanted is False:
                    yield f"{key} is not allowed"
                else:
                    yield from (f"{key}: {text}" for text in problems(part, wanted, root))


def _holds(keyword: str, value: Any, wanted: Any) -> bool:
    """Whether one simple keyword is satisfied; those for other types always are."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    sized = {"Length": str, "Items": list, "Properties": dict}
    match keyword:
        case "type":
            if isinstance(value, float) and wanted == "integer":
                return value.is_integer()  # so says the specification
            plain = not isinstance(value, bool) or wanted == "boolean"
            return isinstance(value, _TYPES[wanted]) and plain
        case "const":
            return type(value) is type(wanted) and bool(value == wanted)
        case "enum":
            return any(type(value) is type(word) and value == word for word in wanted)
        case "required":
            return not isinstance(value, dict) or set(wanted) <= set(value)
        case "pattern":
            return not isinstance(value, str) or re.search(wanted, value) is not None
        case "uniqueItems":
            return not isinstance(value, list) or len(set(map(repr, value))) == len(value)
        case "minimum" | "exclusiveMinimum":
            return not number or value > wanted or (keyword == "minimum" and value == wanted)
        case "maximum" | "exclusiveMaximum":
            return not number or value < wanted or (keyword == "maximum" and value == wanted)
    end, kind = keyword[:3], sized[keyword[3:]]
    return not isinstance(value, kind) or (
        len(value) >= wanted if end == "min" else len(value) <= wanted
    )
