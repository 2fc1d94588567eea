"""A tree checked against the schema, with pydantic's errors brought back to lines and columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from boundaryc.language.diagnostics import BoundarycError, Diagnostic, error
from boundaryc.language.layer_shapes import CaptureShape
from boundaryc.language.names import did_you_mean
from boundaryc.language.planned import SHIPPED, Gates
from boundaryc.language.reader import MAX_ERRORS, Path, Tree
from boundaryc.language.schema import StackShape, plain_path, shape_at
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


def check_shape(tree: Tree, source: str, text: str, gates: Gates = SHIPPED) -> StackShape:
    """The document as typed shapes.

    Raises BoundarycError with every unknown key, missing key, wrong value and construct that
    `gates` close, in file order; in the last nothing else is looked at. Another version of the
    language is reported alone, since its keys may differ.
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
    closed = dict(_closed_uses(data, (), gates))
    found_all = {not_yet(word, _closed_span(path, word, tree)) for path, word in closed.items()}
    shape: StackShape | None = None
    try:
        shape = StackShape.model_validate(data)
    except ValidationError as problem:
        for detail in problem.errors(include_url=False)[:MAX_ERRORS]:
            path = plain_path(tuple(detail["loc"]))
            if not any(path[:end] in closed for end in range(1, len(path) + 1)):
                found_all.add(_diagnostic(detail, path, tree, gates))
    if found_all or shape is None:
        raise BoundarycError(sorted(found_all, key=_place)[:MAX_ERRORS], {source: text})
    return shape


def _closed_uses(value: object, path: Path, gates: Gates) -> Iterator[tuple[Path, str]]:
    """Where in the document a construct is that is not built, and its word; nothing inside one."""
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from _closed_uses(part, (*path, index), gates)
    if not isinstance(value, dict):
        return
    shape = shape_at(path)
    for key, part in value.items():
        if shape is not None and gates.key(shape.word(), key):
            yield (*path, key), key
            continue
        words = list(_closed_words(shape.word(), key, part, (*path, key), gates)) if shape else []
        yield from words
        if not words:
            yield from _closed_uses(part, (*path, key), gates)


def _closed_words(
    shape: str, key: str, value: object, path: Path, gates: Gates
) -> Iterator[tuple[Path, str]]:
    """Words that are not built: the value itself, elements of it, or its keys."""
    words: list[tuple[Path, object]] = [(path, value)]
    if isinstance(value, list):
        words = [((*path, index), word) for index, word in enumerate(value)]
    elif isinstance(value, dict):
        words = [((*path, word), word) for word in value]
    for place, word in words:
        if isinstance(word, str) and gates.word(shape, key, word):
            yield place, word


def _closed_span(path: Path, word: str, tree: Tree) -> Span:
    """A key where it is the key that is not built, else the value."""
    return tree.key(path) if path[-1] == word else tree.value(path)


def _place(item: Diagnostic) -> tuple[Any, ...]:
    assert item.span is not None
    return (item.span, item.code, item.message)


def _diagnostic(detail: ErrorDetails, path: Path, tree: Tree, gates: Gates) -> Diagnostic:
    kind = detail["type"]
    if kind == "extra_forbidden":
        return _unknown_key(path, tree, gates)
    if kind == "missing":
        return _missing(path, tree)
    if kind == "literal_error":
        return _word(path, detail, tree, gates)
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
    expected = _TYPES.get(kind) or detail.get("ctx", {}).get("what", "something else")
    message = f"{_last(path)} must be {expected}, not {_python_type(detail['input'])}"
    help_ = f"write {expected} for {_meaning(path)}"
    if kind == "model_type" and shape_at(path) is CaptureShape:
        help_ = "a number alone does not say which side of the layer: write {after: [2]} or before"
    return error("BC103", message, tree.value(path), help=help_)


def _empty(path: Path, tree: Tree) -> Diagnostic:
    shape, field = _field(path)
    needed = shape.model_fields[field].is_required()
    help_ = f"{'write one for' if needed else 'write one, or leave out'} {_meaning(path)}"
    return error("BC103", f"{_last(path)} has no value", tree.value(path), help=help_)


_OF_MODELS = {
    "residual_multiplier": "the factor is each stage's: write `update: {scaled_add: 0.5}` there",
    "embedding_multiplier": "leave it out: the model multiplies embeddings in front of the stack",
    "logits_scaling": "leave it out: the model scales logits behind the stack",
}
"""Keys of model configurations whose meaning has another place; no spelling is near to it."""


def _unknown_key(path: Path, tree: Tree, gates: Gates) -> Diagnostic:
    key = str(path[-1])
    shape = shape_at(path[:-1])
    planned = gates.keys(shape.word()) if shape else ()
    known = [name for name in (shape.model_fields if shape else ()) if name not in planned]
    where = f" in {_last(path[:-1])}" if len(path) > 1 else ""
    help_ = _OF_MODELS.get(key) or did_you_mean(key, known, "the keys here are", planned)
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


def _word(path: Path, detail: ErrorDetails, tree: Tree, gates: Gates) -> Diagnostic:
    """A value that is none of the words of its field."""
    shape, field = _field(path)
    value = detail["input"]
    info = shape.model_fields[field]
    planned = gates.words(shape.word(), field)
    words = [word for word in _literals(info.annotation) if word not in planned]
    if field == "facts" and value in _VALUED_FACTS:
        help_ = f"write it as a key of its own: `{value}: [...]`"
        message = f"`{value}` is a fact with a value, not one of `facts`"
        return error("BC105", message, tree.value(path), help=help_)
    if isinstance(value, bool):
        value = str(value).lower()  # as it is written
    shown = f"`{value}`" if isinstance(value, str | int | float) else _python_type(value)
    message = f"{_last(path)} cannot be {shown}"
    help_ = did_you_mean(str(value), map(str, words), "it can be", planned)
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
