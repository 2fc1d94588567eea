"""Text to a tree of values in which every key and every value knows its place.

The C parser of PyYAML gives events; the tree is composed and scalars are resolved here, because
PyYAML's own composer keeps the last of two equal keys, expands aliases without limit, recurses
without limit and reads scalars by YAML 1.1 (`on` is true, `010` is 8). Scalars follow the core
schema of YAML 1.2. Tags, anchors and aliases are refused: the language has no use for them, and
without them a small file cannot stand for a large one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import yaml

from boundaryc.language.diagnostics import BoundarycError, Diagnostic, Label, error
from boundaryc.language.spans import Position, Span, split_lines

MAX_CHARACTERS = 1_000_000
MAX_DEPTH = 32
MAX_SCALAR = 10_000
MAX_NODES = 100_000
MAX_ERRORS = 100
MAX_DIGITS = 18

# the stubs of yaml know too little of its events and marks, which therefore are Any here
Scalar = str | int | float | bool | None
Path = tuple[str | int, ...]

_NULL = re.compile(r"(?:null|Null|NULL|~|)\Z")
_TRUE = re.compile(r"(?:true|True|TRUE)\Z")
_FALSE = re.compile(r"(?:false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?[0-9]+\Z")
_OCTAL = re.compile(r"0o[0-7]+\Z")
_HEX = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_SPECIAL = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Node(NamedTuple):
    """A value and its place. A mapping's entries are `(span of the key, value)` by key."""

    span: Span
    value: Scalar | list[Node] | dict[str, tuple[Span, Node]]

    def plain(self) -> object:
        """The value without places: dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, (_, node) in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


class Tree:
    """A whole document, and where in it each path is."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self._keys: dict[Path, Span] = {}
        self._nodes: dict[Path, Node] = {(): root}
        self._index((), root)

    def _index(self, path: Path, node: Node) -> None:
        if isinstance(node.value, dict):
            for key, (span, child) in node.value.items():
                self._keys[(*path, key)] = span
                self._nodes[(*path, key)] = child
                self._index((*path, key), child)
        elif isinstance(node.value, list):
            for number, child in enumerate(node.value):
                self._nodes[(*path, number)] = child
                self._index((*path, number), child)

    def key(self, path: Path) -> Span:
        """The key at `path`; for an element of a list, the element; nearest one above if absent."""
        while path and path not in self._keys and path not in self._nodes:
            path = path[:-1]
        return self._keys.get(path) or self._nodes[path].span

    def value(self, path: Path) -> Span:
        """The value at `path`; for a mapping or list that has a key, the key that names it."""
        node = self._nodes.get(path)
        if node is None or (isinstance(node.value, dict | list) and path in self._keys):
            return self.key(path)
        return node.span

    def has(self, path: Path) -> bool:
        """Whether the document has anything at `path`."""
        return path in self._nodes

    def written(self) -> Mapping[str, object]:
        """The value of each node, without places, by its path joined with dots."""
        return {
            ".".join(map(str, path)): node.plain() for path, node in self._nodes.items() if path
        }

    def spans(self) -> Mapping[str, Span]:
        """The place of each node by its path joined with dots."""
        paths = (path for path in self._nodes if path)
        return {".".join(map(str, path)): self.value(path) for path in paths}


class _StopReadingError(Exception):
    """Reading cannot go on; the diagnostic has been recorded."""


def read(text: str, source: str) -> Tree:
    """The document in `text`, which is called `source` in messages.

    Raises BoundarycError with every error of this phase that does not hide the rest.
    """
    composer = _Composer(source)
    root: Node | None = None
    try:
        composer.check_text(text)
        root = composer.document(text)
    except _StopReadingError:
        pass
    if composer.errors or root is None:
        raise BoundarycError(composer.errors, {source: text})
    return Tree(root)


class _Composer:
    def __init__(self, source: str) -> None:
        self.source = source
        self.errors: list[Diagnostic] = []
        self.events: Iterator[Any] = iter(())
        self.nodes = 0

    def report(
        self,
        code: str,
        message: str,
        span: Span,
        help: str,  # noqa: A002
        labels: Iterable[Label] = (),
    ) -> None:
        self.errors.append(error(code, message, span, help=help, labels=labels))
        if len(self.errors) >= MAX_ERRORS:
            raise _StopReadingError

    def fatal(self, code: str, message: str, span: Span, help: str) -> None:  # noqa: A002
        self.report(code, message, span, help)
        raise _StopReadingError

    def at(self, line: int, column: int, length: int = 1) -> Span:
        return Span(self.source, Position(line, column), Position(line, column + length))

    def span(self, start: Any, end: Any) -> Span:
        first = Position(start.line + 1, start.column + 1)
        return Span(self.source, first, Position(end.line + 1, end.column + 1))

    def check_text(self, text: str) -> None:
        """Refuses what the parser would refuse without saying where."""
        if len(text) > MAX_CHARACTERS:
            self.fatal(
                "BC011",
                f"the file has {len(text)} characters; at most {MAX_CHARACTERS} are read",
                self.at(1, 1),
                "a stack of any depth fits in a few lines: use `layers` with `count` or `pattern`",
            )
        found = _UNREADABLE.search(text)
        if found:
            self.fatal(
                "BC001",
                f"the character U+{ord(found.group()):04X} is not allowed in YAML",
                self.at(*line_and_column(text[: found.start()])),
                "delete the character, or write it as an escape inside double quotes",
            )

    def document(self, text: str) -> Node | None:
        """The only document of `text`."""
        root: Node | None = None
        try:
            self.events = iter(yaml.parse(text, Loader=yaml.CSafeLoader))
            for event in self.events:
                if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                    self.fatal(
                        "BC003",
                        "a second YAML document starts here",
                        self.span(event.start_mark, event.end_mark),
                        "keep one stack per file",
                    )
                if isinstance(event, yaml.NodeEvent):
                    root = self.node(event, (), 0)
        except yaml.MarkedYAMLError as problem:
            self.syntax(problem, text)
        if root is None or root.value is None:
            help_ = "start with `boundaryc: 1` and `stack: name`; docs/language.md has an example"
            self.fatal("BC002", "the file has no content", self.at(1, 1), help_)
        return root

    def syntax(self, problem: yaml.MarkedYAMLError, text: str) -> None:
        mark = problem.problem_mark or problem.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        rows = split_lines(text)
        here = rows[line - 1][column - 1 : column] if line <= len(rows) else ""
        what = problem.problem or "syntax error"
        context = f" {problem.context}" if problem.context else ""
        help_ = "check the indentation, and that brackets and quotes are closed"
        if here == "\t":
            help_ = "indent with spaces: YAML does not allow tabs there"
        self.fatal("BC001", f"{what}{context}", self.at(line, column), help_)

    def node(self, event: Any, path: Path, depth: int) -> Node:
        span = self.span(event.start_mark, event.end_mark)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            help_ = "a stack of any depth fits in a few lines: use `layers` with `count`"
            self.fatal("BC011", f"the file has more than {MAX_NODES} values", span, help_)
        if depth > MAX_DEPTH:
            help_ = f"nothing in the language nests deeper than {MAX_DEPTH} levels"
            self.fatal("BC008", "this value is nested too deeply", span, help_)
        if event.anchor is not None:
            kind = "alias" if isinstance(event, yaml.AliasEvent) else "anchor"
            help_ = "write the value out in each place; the language has defaults instead"
            self.report("BC007", f"the {kind} `{event.anchor}` is not allowed", span, help_)
        if isinstance(event, yaml.AliasEvent):
            return Node(span, None)
        if event.tag is not None:
            help_ = "remove the tag; quote a scalar to make it a string"
            self.report("BC006", f"the tag `{event.tag}` is not allowed", span, help_)
        if isinstance(event, yaml.ScalarEvent):
            return Node(span, self.scalar(event, span))
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(event, path, depth)
        return self.mapping(event, path, depth)

    def sequence(self, start: Any, path: Path, depth: int) -> Node:
        items: list[Node] = []
        event = next(self.events)
        while not isinstance(event, yaml.SequenceEndEvent):
            items.append(self.node(event, (*path, len(items)), depth + 1))
            event = next(self.events)
        end = self.span(start.start_mark, event.end_mark)
        # a block collection ends where the next token starts, which would underline other lines
        if not start.flow_style and items:
            end = Span(end.file, end.start, items[-1].span.end)
        return Node(end, items)

    def mapping(self, start: Any, path: Path, depth: int) -> Node:
        entries: dict[str, tuple[Span, Node]] = {}
        last: Position | None = None
        event = next(self.events)
        while not isinstance(event, yaml.MappingEndEvent):
            key, key_span = self.key(event, path, depth)
            child = self.node(next(self.events), (*path, key), depth + 1)
            if child.span.start == child.span.end:  # nothing is written: blame the key
                child = Node(key_span, child.value)
            last = child.span.end
            if key in entries:
                self.duplicate(key, key_span, entries[key][0])
            else:
                entries[key] = (key_span, child)
            event = next(self.events)
        end = self.span(start.start_mark, event.end_mark)
        if not start.flow_style and last is not None:
            end = Span(end.file, end.start, last)
        return Node(end, entries)

    def duplicate(self, key: str, span: Span, first: Span) -> None:
        labels = [Label(first, "first here")]
        self.report("BC004", f"the key `{key}` appears twice", span, "keep one of the two", labels)

    def key(self, event: Any, path: Path, depth: int) -> tuple[str, Span]:
        """A key as a string. Only `layers.at` has numbers for keys, as a layer's index."""
        node = self.node(event, path, depth + 1)
        if isinstance(node.value, str):
            return node.value, node.span
        index = path[-2:] == ("layers", "at") and type(node.value) is int
        text = event.value if isinstance(event, yaml.ScalarEvent) else "?"
        if not index:
            shown = f"`{text}`" if isinstance(event, yaml.ScalarEvent) and text else "this key"
            help_ = "write the key as a word; quote it if it must look like a number"
            self.report("BC005", f"{shown} is not a string", node.span, help_)
        return text, node.span

    def scalar(self, event: Any, span: Span) -> Scalar:
        """A scalar by the core schema; quoted and block scalars are always strings."""
        text: str = event.value
        if len(text) > MAX_SCALAR:
            message = f"this text has {len(text)} characters; at most {MAX_SCALAR} are read"
            self.report("BC012", message, span, "shorten it; nothing in the language is that long")
            return text[:MAX_SCALAR]
        if event.style or event.tag is not None:  # a plain scalar has the style ""
            return text
        if len(text) > MAX_DIGITS and (_INT.match(text) or _OCTAL.match(text) or _HEX.match(text)):
            help_ = f"numbers have at most {MAX_DIGITS} characters"
            self.report("BC104", "this number is too long", span, help_)
            return 0
        return resolve(text)


def line_and_column(before: str) -> tuple[int, int]:
    """The line and column of the character that follows `before`, which starts the file."""
    rows = split_lines(before)
    return len(rows), len(rows[-1]) + 1


@lru_cache(maxsize=1024)
def resolve(text: str) -> Scalar:
    """What a plain scalar means by the core schema of YAML 1.2.

    >>> resolve("on"), resolve("010"), resolve("0x10"), resolve("1e-6"), resolve("~")
    ('on', 10, 16, 1e-06, None)
    """
    if _NULL.match(text):
        return None
    if _TRUE.match(text) or _FALSE.match(text):
        return text[0] in "tT"
    if _INT.match(text):
        return int(text)
    if _OCTAL.match(text):
        return int(text[2:], 8)
    if _HEX.match(text):
        return int(text[2:], 16)
    if _FLOAT.match(text):
        return float(text)
    if _SPECIAL.match(text):
        return float(text.replace(".", ""))
    return text
