"""Renders views through the templates."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def templates_directory() -> Path:
    """Where the templates are: inside an installed package, else at the top of the checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_templates"
    return installed if installed.is_dir() else package.parent / "templates"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(templates_directory()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        auto_reload=False,  # or every use asks for a file's time
    )
    environment.filters["lines"] = _lines
    environment.filters["docstring"] = docstring
    return environment


def _lines(lines: tuple[str, ...], indent: int = 0) -> str:
    """Lines at a column, without a last line end; empty ones stay empty."""
    return "\n".join(" " * indent + line if line else "" for line in lines)


def docstring(lines: tuple[str, ...]) -> str:
    """Lines as a docstring at the left margin."""
    if len(lines) == 1:
        return f'"""{lines[0]}"""'
    return "\n".join((f'"""{lines[0]}', *lines[1:], '"""'))


def render(template: str, view: object) -> str:
    """The text of ``view`` in the layout of ``template``, which sees it as ``view``."""
    return _environment().get_template(template).render(view=view)
