"""How results are written: where, in which format, and whether in colour."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from boundaryc.language import BoundarycError, Diagnostic

FORMATS = ("full", "concise", "json", "github")
"""The values of --output-format; `boundaryc.language.renderers` has one renderer for each."""

VERSION = 1
"""Of every JSON document; changes when a reader would have to change."""


MAX_ANNOTATIONS = 10
"""GitHub shows no more of one step."""


@dataclass(frozen=True, slots=True)
class Style:
    """What --output-format and --quiet ask for.

    ``json`` and ``github`` are read by programs, on standard output. With ``json`` that is one
    document, whatever happens.
    """

    format: str = "full"
    quiet: bool = False

    @property
    def json(self) -> bool:
        """Whether standard output is one JSON document."""
        return self.format == "json"

    def say(self, text: str) -> None:
        """Tells people on standard error; not with --quiet."""
        if not self.quiet:
            click.echo(text, err=True)

    def result(self, text: str) -> None:
        """One line of the result, for people; not where the result is a JSON document."""
        if not self.json:
            click.echo(text)

    def document(self, kind: str, **content: Any) -> None:
        """The result as a JSON document, if that is the format."""
        if self.json:
            click.echo(json.dumps({"version": VERSION, "kind": kind, **content}, indent=1))

    def diagnostics(
        self, items: Iterable[Diagnostic], sources: Mapping[str, str], *, result: bool = False
    ) -> None:
        """Writes diagnostics: on standard error unless a program reads them or they are the result.

        Nothing is written for none, unless the format is a document.
        """
        from boundaryc.language import render

        here = result or self.format in ("json", "github")
        stream = sys.stdout if here else sys.stderr
        text = render(items, sources, self.format, color=colored(stream))
        if text:
            click.echo(text, err=not here)

    def errors(self, problem: BoundarycError) -> None:
        """Writes what is wrong in the user's files."""
        self.diagnostics(problem.diagnostics, problem.sources)

    def failure(self, message: str) -> None:
        """Writes why we could not run as asked; with --quiet too."""
        self.document("error", message=message, report="")
        click.echo(f"error: {message}", err=True)


def annotation(level: str, title: str, message: str, file: str = "", line: int = 0) -> str:
    """A workflow command that GitHub shows beside a file, at a line of it if one is given."""
    where = f"file={_escaped(file, ':,')}," if file else ""
    where += f"line={line}," if file and line else ""
    return f"::{level} {where}title={_escaped(title, ':,')}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    for char in "%\r\n" + more:
        text = text.replace(char, f"%{ord(char):02X}")
    return text


def colored(stream: TextIO) -> bool:
    """Whether to write colours: only to a terminal that has them and whose user wants them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style() -> Style:
    """What the current command was asked for."""
    return Style(**click.get_current_context().ensure_object(dict))


def remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keeps an option for `style`; options that are read first survive a mistake in the others."""
    known = context.ensure_object(dict)
    if parameter.name == "quiet":
        known["quiet"] = value
    elif parameter.name == "json":
        known.update({"format": "json"} if value else {})
    elif known.get("format") != "json":  # --json came first
        known["format"] = value
