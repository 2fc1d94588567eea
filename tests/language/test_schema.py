"""The published JSON Schemas: complete, without what editors stumble over, and true."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from boundaryc.language import loads
from boundaryc.language.explain import base, complete, explanation
from boundaryc.language.json_schema import SCHEMAS, diagnostics_schema, schema, schema_text
from boundaryc.language.planned import PLANNED
from boundaryc.language.reader import read
from boundaryc.language.renderers import render
from tests.language.derived import NOT_YAML, ROOT, SAMPLE, failing
from tests.language.json_check import problems
from tests.language.test_invalid import CASES, FIXTURES, Case, _edited, _places

EXAMPLES = sorted((ROOT / "examples").glob("*/stack.yaml"))


def _wrong(text: str) -> list[str]:
    """What the schema of stack files has against `text`, whose keys are strings as in JSON."""
    return list(problems(read(text, "m.yaml").root.plain(), schema(), schema()))


def _fields(value: Any) -> Iterator[dict[str, Any]]:
    """Every property of every object of a schema."""
    if isinstance(value, dict):
        yield from value.get("properties", {}).values()
        for part in value.values():
            yield from _fields(part)
    elif isinstance(value, list):
        for part in value:
            yield from _fields(part)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_field_has_a_description(name: str) -> None:
    """And nothing is an alternative with null, which hides it in editors."""
    found = list(_fields(SCHEMAS[name]()))
    assert len(found) > 10
    assert all(field.get("description") for field in found)
    assert "anyOf" not in schema_text(name)


def test_no_leftovers_of_the_models() -> None:
    """No class names, no made-up titles, nothing that is not supported yet."""
    text = schema_text("stack")
    assert "Shape" not in text
    assert "null" not in text
    assert not {key for field in _fields(schema()) for key in field} & {"title", "anyOf"}
    for name in [place for places in PLANNED.values() for place in places]:
        shape, _, key = name.partition(".")
        key, _, word = key.partition("=")
        part = {part["title"].lower(): part for part in schema()["$defs"].values()}.get(shape)
        part = schema() if shape == "stack" else part
        assert part is None or word or key not in part["properties"]
        assert not word or not part or word not in json.dumps(part["properties"].get(key))


def test_every_definition_is_used() -> None:
    """What only a construct that is not offered needs is not there either."""
    found = schema()
    used = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(found)))
    assert used == set(found["$defs"])


def test_built_constructs_are_offered() -> None:
    """Every field has a description, and its file satisfies the schema."""
    full = schema()
    assert all(field.get("description") for field in _fields(full))
    assert "anyOf" not in json.dumps(full)
    assert {"Capture", "Draft", "Quantize", "Scale", "ScaledAdd"} <= set(full["$defs"])
    data = read((FIXTURES / "constructs.yaml").read_text(encoding="utf-8"), "m").root.plain()
    assert list(problems(data, full, full)) == []
    for path, value in [
        (("captures", "eagle3"), [2, 20]),
        (("captures", "eagle3", "after"), []),
        (("captures", "eagle3", "after", 0), "2"),
        (("stages", "mlp", "transform", "scale"), 0),
        (("stages", "mlp", "update"), {"scale": 2}),
        (("stages", "mlp", "additive"), {"bias": "rank1"}),
        (("drafts", "nextn", "entry"), "whole"),
    ]:
        wrong = json.loads(json.dumps(data))
        place = wrong
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value
        assert list(problems(wrong, full, full)), path


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_examples_satisfy_the_schema_and_name_it(path: Any) -> None:
    """An editor that opens an example finds the schema and has nothing to say."""
    text = path.read_text(encoding="utf-8")
    assert _wrong(text) == []
    first = text.splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    named = path.parent / first.partition("=")[2]
    assert named.resolve() == ROOT / "schemas" / "stack.schema.json"


@pytest.mark.parametrize("code", sorted(set(SAMPLE) | {"BC205", "BC402", "BC601"}))
def test_valid_texts_satisfy_the_schema(code: str) -> None:
    """The fixed examples, and failing ones whose mistake is beyond a schema."""
    assert _wrong(complete(explanation(code).works) if code != "BC009" else base()) == []


BEYOND = {
    "fraction for a whole number": "64.0 is an integer to JSON Schema",
    "no default": "which layers lack stages follows from `count`",
    "no count": "which keys go together in `layers` is meaning",
    "pattern without stages": "which keys go together in `layers` is meaning",
    "long number": "the reader stops at numbers that long",
}
"""Shape errors that the schema does not express, and why."""

SHAPE = [case for case in CASES if set(case.codes.split()) & {f"BC10{i}" for i in range(1, 7)}]


@pytest.mark.parametrize("case", SHAPE, ids=lambda case: case.title)
def test_shape_errors_are_refused(case: Case) -> None:
    """What the compiler calls a wrong shape, an editor underlines."""
    text, _ = _places(_edited(case.edits))
    if case.title == "long number":
        return
    assert bool(_wrong(text)) == (case.title not in BEYOND)


def test_every_exception_is_a_case() -> None:
    """The list of what a schema cannot say does not outlive its reasons."""
    assert set(BEYOND) <= {case.title for case in SHAPE}
    assert len(SHAPE) > 40


def test_defaults_of_the_schema_are_those_of_the_language() -> None:
    """Writing each default out changes nothing."""
    for name, field in schema()["properties"].items():
        if "default" in field:
            assert loads(f"{base()}{name}: {json.dumps(field['default'])}\n") == loads(base())


def test_printed_diagnostics_satisfy_their_schema() -> None:
    """Those with a place and without, with labels, of every severity; and none at all."""
    for code in (*SAMPLE, *NOT_YAML):
        found, sources = failing(explanation(code))
        document = json.loads(render(found, sources, "json"))
        assert list(problems(document, diagnostics_schema(), diagnostics_schema())) == []
    empty = json.loads(render([], {}, "json"))
    assert list(problems(empty, diagnostics_schema(), diagnostics_schema())) == []
    assert list(problems({**empty, "version": 2}, diagnostics_schema(), diagnostics_schema()))


def test_the_checker_refuses_unknown_keywords() -> None:
    """A keyword that it does not know would go unchecked."""
    with pytest.raises(KeyError):
        list(problems(1, {"multipleOf": 2}, {}))
    assert list(problems(True, {"type": "integer"}, {})) == ["type: integer"]
    assert list(problems([1, 1], {"uniqueItems": True}, {}))
    assert not list(problems("a", {"minimum": 3}, {}))
