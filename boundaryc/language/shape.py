"""A tree checked against the schema, with pydantic's errors brought back to lines and columns."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from boundaryc.language.diagnostics import BoundarycError, Diagnostic, error
from boundaryc.language.names import did_you_mean
from boundaryc.language.reader import MAX_ERRORS, Path, Tree
from boundaryc.language.schema import StackShape, shape_at
from boundaryc.language.spans import Span

VERSION = 1

_TYPES = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_RANGES = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_LENGTHS = {"too_short", "too_long", "string_too_short", "string_too_long"}
_PYTHON_TYPES = {dict: "a mapping", list: "a list", str: "a string", bool: "true or false"}


def check_shape(tree: Tree, source: str, text: str) -> StackShape:
    """The document as typed shapes.

    Raises BoundarycError with every unknown key, missing key and wrong value, in file order.
    Another version of the language is reported alone, since its keys may differ.
    """
    data = tree.root.plain()
    if not isinstance(data, dict):
        shown = _python_type(data)
        found = error(
            "BC103",
            f"the file must be a mapping, not {shown}",
            tree.root.span,
            help="start with `boundaryc: 1` and `stack: name`",
        )
        raise BoundarycError([found], {source: text})
    if "boundaryc" in data and (type(data["boundaryc"]) is not int or data["boundaryc"] != VERSION):
        found = error(
            "BC106",
            f"this is not version {VERSION} of the language, the only one that is supported",
            tree.value(("boundaryc",)),
            help=f"write `boundaryc: {VERSION}`",
        )
        raise BoundarycError([found], {source: text})
    try:
        return StackShape.model_validate(data)
    except ValidationError as problem:
        details = problem.errors(include_url=False)[:MAX_ERRORS]
        found_all = {_diagnostic(detail, tree) for detail in details}
        raise BoundarycError(sorted(found_all, key=_place), {source: text}) from None


def _place(item: Diagnostic) -> tuple[Any, ...]:
    assert item.span is not None
    return (item.span, item.code, item.message)


def _diagnostic(detail: ErrorDetails, tree: Tree) -> Diagnostic:
    path: Path = tuple(detail["loc"])
    kind = detail["type"]
    if kind == "extra_forbidden":
        return _unknown_key(path, tree)
    if kind == "missing":
        return _missing(path, tree)
    if kind == "literal_error":
        return _word(path, detail, tree)
    if kind in _RANGES:
        name, words = _RANGES[kind]
        limit = f"{words} {_number(detail['ctx'][name])}"
        message = f"{_last(path)} must be {limit}, not {detail['input']}"
        help_ = f"write a number that is {limit} for {_meaning(path)}"
        return error("BC104", message, tree.value(path), help=help_)
    if kind in _LENGTHS:
        wrong, help_ = _length(detail)
        message, help_ = f"{_last(path)}: {wrong}", f"{help_} {_meaning(path)}"
        return error("BC104", message, tree.value(path), help=help_)
    if kind == "empty":
        return _empty(path, tree)
    expected = _TYPES.get(kind, "something else")
    message = f"{_last(path)} must be {expected}, not {_python_type(detail['input'])}"
    help_ = f"write {expected} for {_meaning(path)}"
    return error("BC103", message, tree.value(path), help=help_)


def _empty(path: Path, tree: Tree) -> Diagnostic:
    shape, field = _field(path)
    needed = shape.model_fields[field].is_required()
    help_ = f"{'write one for' if needed else 'write one, or leave out'} {_meaning(path)}"
    return error("BC103", f"{_last(path)} has no value", tree.value(path), help=help_)


def _unknown_key(path: Path, tree: Tree) -> Diagnostic:
    key = str(path[-1])
    shape = shape_at(path[:-1])
    if shape is not None and key in shape.planned:
        return not_yet(key, tree.key(path))
    known = shape.model_fields if shape else ()
    planned = shape.planned if shape else ()
    where = f" in {_last(path[:-1])}" if len(path) > 1 else ""
    help_ = did_you_mean(key, known, "the keys here are", planned)
    return error("BC101", f"unknown key `{key}`{where}", tree.key(path), help=help_)


def not_yet(word: str, span: Span) -> Diagnostic:
    """The rejection of a construct that the language has and this version does not build."""
    help_ = "leave it out; docs/language.md says what is supported and what is planned"
    return error("BC301", f"{word}: not yet supported", span, help=help_)


def _missing(path: Path, tree: Tree) -> Diagnostic:
    key = str(path[-1])
    where = f" in {_last(path[:-1])}" if len(path) > 1 else ""
    help_ = f"add {_meaning(path)}"
    return error("BC102", f"`{key}` is missing{where}", tree.key(path[:-1]), help=help_)


def _word(path: Path, detail: ErrorDetails, tree: Tree) -> Diagnostic:
    """A value that is none of the words of its field."""
    shape, field = _field(path)
    value = detail["input"]
    info = shape.model_fields[field]
    words = _literals(info.annotation)
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    listed = extra.get("planned")
    words_to_come = [str(word) for word in listed] if isinstance(listed, list) else []
    if isinstance(value, str) and value in words_to_come:
        return not_yet(value, tree.value(path))
    if field == "facts" and value in _VALUED_FACTS:
        help_ = f"write it as a key of its own: `{value}: [...]`"
        message = f"`{value}` is a fact with a value, not one of `facts`"
        return error("BC105", message, tree.value(path), help=help_)
    if isinstance(value, bool):
        value = str(value).lower()  # as it is written
    shown = f"`{value}`" if isinstance(value, str | int | float) else _python_type(value)
    message = f"{_last(path)} cannot be {shown}"
    help_ = did_you_mean(str(value), map(str, words), "it can be", words_to_come)
    return error("BC105", message, tree.value(path), help=help_)


_VALUED_FACTS = {"read_local", "read_whole", "params", "state", "streams"}


def _literals(annotation: Any) -> list[object]:
    """Every literal inside an annotation."""
    args = get_args(annotation)
    if not args:
        return [] if annotation is None or isinstance(annotation, type) else [annotation]
    return [word for arg in args for word in _literals(arg)]


def _field(path: Path) -> tuple[type[Any], str]:
    """The model and field that the value at `path` belongs to."""
    for end in range(len(path), 0, -1):
        shape = shape_at(path[: end - 1])
        if shape is not None and path[end - 1] in shape.model_fields:
            return shape, str(path[end - 1])
    raise KeyError(path)


def _meaning(path: Path) -> str:
    """What belongs at `path`: its field and the field's description."""
    shape, field = _field(path)
    return f"`{field}`: {shape.model_fields[field].description}"


def _last(path: Path) -> str:
    """How a message names the value at `path`."""
    return f"`{'.'.join(map(str, path))}`"


def _number(limit: object) -> str:
    if isinstance(limit, float) and limit.is_integer():
        return str(int(limit))
    return str(limit)


def _length(detail: ErrorDetails) -> tuple[str, str]:
    """What is wrong with the number of entries or characters, and the beginning of the help."""
    context = detail.get("ctx", {})
    if "max_length" in context:
        most = context["max_length"]
        return f"at most {most} entries are allowed", f"write at most {most} entries for"
    return "at least one entry is needed", "write at least one entry for"


def _python_type(value: object) -> str:
    if value is None:
        return "empty"
    return _PYTHON_TYPES.get(type(value), str(value)[:40])
