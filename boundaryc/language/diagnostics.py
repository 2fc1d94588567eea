"""The one form in which boundaryc tells a user that something is wrong.

How it is written down is the business of `boundaryc.language.renderers`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from boundaryc.language.spans import Span

MAX_TEXT = 400
"""Characters of a message or help; what a file quotes may be longer, and is cut."""


class Severity(enum.Enum):
    """How bad it is. Only an `ERROR` stops a compilation."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Label:
    """A second place that belongs to a diagnostic, and what it has to do with it."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    `code` is a key of `boundaryc.language.codes.CODES`. `span` is the place to change, None when no
    line of a file is to blame. `labels` are further places; one with the same span as `span` gives
    the text beside the caret. `help` says what to do, in one sentence.
    """

    code: str
    severity: Severity
    message: str
    span: Span | None = None
    labels: tuple[Label, ...] = ()
    help: str = ""


class BoundarycError(Exception):
    """Errors in what the user wrote: at least one `Diagnostic`, all of one phase.

    `sources` maps the file names in the spans to their text, so that `str()` can show the lines.
    """

    def __init__(
        self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None
    ) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        self.sources: Mapping[str, str] = dict(sources or {})
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        from boundaryc.language.renderers import render

        return render(self.diagnostics, self.sources)


def error(
    code: str,
    message: str,
    span: Span | None = None,
    *,
    help: str,  # noqa: A002 - the word users see
    labels: Iterable[Label] = (),
) -> Diagnostic:
    """An error; `help` is required because an error without a remedy is half an error."""
    return Diagnostic(code, Severity.ERROR, _cut(message), span, tuple(labels), _cut(help))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
