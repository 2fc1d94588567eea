"""`boundaryc report`: one page that holds everything it shows and asks nothing of any network."""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boundaryc.emit.publish import PublishError
from boundaryc.emit.render import templates_directory
from boundaryc.report.page_graph import Placed, placed
from boundaryc.report.page_model import Report

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

FOLDER = "report"
SCRIPTS = ("base", "graph", "plan", "code", "plot", "cost", "main")
"""The parts of the page's script, in the order in which they run."""
MARK = 'name="generator" content="boundaryc '
"""What tells our pages from others, near their beginning."""


@dataclass(frozen=True, slots=True)
class Page:
    """What the template is given. ``security`` is the page's policy: only its own parts run."""

    report: Report
    graph: Placed
    generator: str
    security: str
    style: Markup
    script: Markup
    data: Markup


def page(found: Report) -> str:
    """The page of a report, a function of it alone."""
    from markupsafe import Markup

    style, script = _text("style.css"), _script()
    # Neither may end its element early; both are ours, and a test looks.
    view = Page(
        report=found,
        graph=placed(found.graph),
        generator=f"boundaryc {found.boundaryc}",
        security=_security(style, script),
        style=Markup(style),
        script=Markup(script),
        data=_embedded(document(found)),
    )
    return _environment().get_template(f"{FOLDER}/page.html.jinja").render(view=view)


def document(found: Report) -> dict[str, Any]:
    """The report as `--json` prints it but for the version, and as the page embeds it."""
    return {"kind": "report", **asdict(found)}


def put(path: Path, text: str) -> None:
    """Writes a page, whole or not at all.

    Raises PublishError where a file is in the way that is no page of ours, and where it cannot be.
    """
    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace")[:1000]:
        raise PublishError(f"{path} is no report of boundaryc; remove it, or name another --output")
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(path)
    except OSError as problem:
        raise PublishError(f"{path} cannot be written: {problem.strerror}") from problem
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _embedded(value: object) -> Markup:
    """A value as JSON that no HTML parser can mistake for anything else."""
    from jinja2.utils import htmlsafe_json_dumps

    return htmlsafe_json_dumps(value, separators=(",", ":"))


def _security(style: str, script: str) -> str:
    return (
        f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _script() -> str:
    """All parts in one scope of their own."""
    parts = "\n".join(_text(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _text(name: str) -> str:
    return (templates_directory() / FOLDER / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(templates_directory()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
    )
