"""How diagnostics are written down: one module per format, all of the same diagnostics.

`full` shows the source, `concise` takes one line each, `json` is for programs and `github` for the
annotations of a workflow. None of them looks at the terminal or the environment: the caller says
whether to colour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from boundaryc.language.diagnostics import Diagnostic
from boundaryc.language.renderers import concise, full, github, json

Renderer = Callable[[tuple[Diagnostic, ...], Mapping[str, str], bool], str]

_RENDERERS: Mapping[str, Renderer] = MappingProxyType(
    {
        "full": full.render,
        "concise": concise.render,
        "json": json.render,
        "github": github.render,
    }
)

FORMATS = tuple(_RENDERERS)
"""The names of the formats, the default first."""


def render(
    diagnostics: Iterable[Diagnostic],
    sources: Mapping[str, str],
    format: str = "full",  # noqa: A002 - the word of the option
    *,
    color: bool = False,
) -> str:
    """The diagnostics as text in one of `FORMATS`, without a final newline.

    `sources` maps the file names in the spans to their text; a file that is not in it is named
    without its lines. Empty for no diagnostics, except that `json` is always a document.
    Raises KeyError for an unknown format.
    """
    return _RENDERERS[format](tuple(diagnostics), sources, color)
