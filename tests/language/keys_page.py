"""docs/keys.md: every key of a stack file with its values, from the schema that editors use."""

from __future__ import annotations

from typing import Any

from boundaryc.language.json_schema import schema

HEAD = """\
# Keys

Every key of a stack file, by the mapping it stands in: what it may be, what it is if it is left
out, and what it says. This is the JSON Schema of the language (`boundaryc schema stack`) as a page;
[language.md](language.md) says what the keys mean together.
"""

Schema = dict[str, Any]


def keys_page() -> str:
    """The page."""
    root = schema()
    shapes: dict[str, Schema] = root.pop("$defs")
    parts = [HEAD, _section("The file", root)]
    for name in _named(root, shapes):
        parts.append(_section(_title(name), shapes[name]))
    return "\n".join(parts)


def _named(value: Schema, shapes: dict[str, Schema]) -> list[str]:
    """The names of the mappings in ``value``, those it names itself first."""
    found: list[str] = []
    waiting = _refs(value)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found.append(name)
            waiting += _refs(shapes[name])
    return found


def _refs(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].rpartition("/")[2]] if "$ref" in value else []
        return own + [name for part in value.values() for name in _refs(part)]
    if isinstance(value, list):
        return [name for part in value for name in _refs(part)]
    return []


def _title(name: str) -> str:
    return {"ScaledAdd": "scaled add"}.get(name, name.lower())


def _section(title: str, shape: Schema) -> str:
    rows = [f"## {title}\n", "| key | value | if left out | meaning |", "|---|---|---|---|"]
    required = shape.get("required", ())
    for key, field in shape["properties"].items():
        absent = "required" if key in required else _default(field)
        rows.append(f"| `{key}` | {_value(field)} | {absent} | {field['description']} |")
    return "\n".join(rows) + "\n"


def _default(field: Schema) -> str:
    default = field.get("default")
    if default in (None, [], {}):
        return "nothing"
    return f"`{_flow(default)}`"


def _flow(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else f"{value:.10g}"


def _value(field: Schema) -> str:
    """What a value may be, in words."""
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{word}`" for word in field["enum"])
    if "$ref" in field:
        title = _title(field["$ref"].rpartition("/")[2])
        return f"[{title}](#{title.replace(' ', '-')})"
    if "oneOf" in field:
        return " or ".join(_value(arm) for arm in field["oneOf"])
    kind = field["type"]
    if kind == "array":
        return f"list of {_value(field['items'])}"
    if kind == "object":
        return f"by name: {_value(field['additionalProperties'])}"
    return {"boolean": "`true`, `false`", "string": "text"}.get(kind) or _number(field)


def _number(field: Schema) -> str:
    kind = {"integer": "whole number", "number": "number"}[field["type"]]
    ends = [
        f"{word} {_flow(field[key])}"
        for key, word in (
            ("minimum", "from"),
            ("exclusiveMinimum", "above"),
            ("maximum", "to"),
            ("exclusiveMaximum", "below"),
        )
        if key in field
    ]
    return " ".join([kind, *ends])
