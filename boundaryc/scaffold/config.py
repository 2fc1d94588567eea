"""A model's `config.json`: what it says of the text model, and where."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from boundaryc.language.diagnostics import BoundarycError, Label, error
from boundaryc.language.files import read_text
from boundaryc.language.reader import line_and_column
from boundaryc.language.spans import Position, Span

TEXT = ("text_config", "llm_config", "language_config")
"""Under which key the config of a model of several modalities has that of its text model."""

_WHERE = "name the config.json that lies beside the model's weights"
_TOKEN = re.compile(r'(?P<string>"(?:[^"\\]|\\.)*")(?P<colon>\s*:)?|[{}\[\]]', re.S)
_PLACED = 2  # keys of the file, and of the mappings in it


@dataclass(frozen=True, slots=True)
class Config:
    """What a `config.json` says.

    ``values`` are the keys of the text model: those of the file, or of the mapping in it that is
    the text model's; ``places`` is where these keys are. ``whole`` is the file. ``source`` names it
    in messages, ``text`` is what was read.
    """

    source: str
    text: str
    whole: Mapping[str, object]
    values: Mapping[str, object]
    places: Mapping[str, Span]

    @property
    def model_types(self) -> tuple[str, ...]:
        """What the file calls the text model and the model, the first first."""
        said = (self.values.get("model_type"), self.whole.get("model_type"))
        return tuple(dict.fromkeys(one for one in said if isinstance(one, str)))

    def place(self, key: str) -> Span:
        """Where a key of the text model is; the start of the file for one that it has not."""
        return self.places.get(key, _start(self.source))


def read_config(path: Path) -> Config:
    """The config in a file. Raises BoundarycError if it cannot be read or is no JSON object."""
    return parse_config(read_text(path), str(path))


def parse_config(text: str, source: str) -> Config:
    """The config written in ``text``, which is called ``source`` in messages.

    Raises BoundarycError for what is not JSON (BC013) or nests too deeply (BC008), for a document
    that is no object (BC103) and for a key that the file or the text model has twice (BC004).
    """
    whole = _object(text, source)
    places = _places(text, source)
    inner = next((key for key in TEXT if isinstance(whole.get(key), dict)), None)
    values = whole if inner is None else whole[inner]
    assert isinstance(values, dict)
    prefix = () if inner is None else (inner,)
    own = {key: places[(*prefix, key)] for key in values if (*prefix, key) in places}
    return Config(source, text, whole, values, own)


def _object(text: str, source: str) -> dict[str, object]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as problem:
        line, column = line_and_column(text[: problem.pos])
        span = Span(source, Position(line, column), Position(line, column + 1))
        found = error("BC013", f"this is not JSON: {problem.msg}", span, help=_WHERE)
    except RecursionError:
        help_ = "no config of a model does"
        found = error("BC008", "the JSON is nested too deeply", _start(source), help=help_)
    except ValueError as problem:  # a number of thousands of digits
        found = error("BC013", f"this JSON cannot be read: {problem}", _start(source), help=_WHERE)
    else:
        if isinstance(whole, dict):
            return whole
        message = f"a config is an object in braces, and this is {_kind(whole)}"
        found = error("BC103", message, _start(source), help=_WHERE)
    raise BoundarycError([found], {source: text})


def _places(text: str, source: str) -> dict[tuple[str, ...], Span]:
    """Where each key of the file and of its mappings is. Raises BoundarycError for one twice."""
    places: dict[tuple[str, ...], Span] = {}
    for path, first, length in _keys(text):
        if len(path) > _PLACED or "" in path:
            continue
        line, column = line_and_column(text[:first])
        span = Span(source, Position(line, column), Position(line, column + length))
        if path in places:
            message = f"the key `{path[-1]}` appears twice"
            labels = [Label(places[path], "first here")]
            found = error("BC004", message, span, help="keep one of the two", labels=labels)
            raise BoundarycError([found], {source: text})
        places[path] = span
    return places


def _keys(text: str) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Each key of valid JSON: the keys that lead to it, where it begins, and its length.

    What lies in a list has "" among them.
    """
    path: list[str] = []
    last = ""
    for token in _TOKEN.finditer(text):
        if token["colon"]:
            last = json.loads(token["string"], strict=False)
            yield (*path[1:], last), token.start(), len(token["string"])
        elif token[0] in ("{", "["):
            path.append(last)
            last = ""
        elif token[0] in ("}", "]"):
            path.pop()


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    return {str: "a text", bool: "true or false"}.get(
        type(value), "null" if value is None else "a number"
    )


def _start(source: str) -> Span:
    return Span(source, Position(1, 1), Position(1, 2))
