"""Files that are derived from the code: schemas, pages of docs/, snapshots of the renderers.

`python -m tests.language.derived` writes them; the tests compare them with what would be written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from boundaryc.emit.diagnose import planned
from boundaryc.language import CODES, FORMATS, BoundarycError, Diagnostic, load, loads, render
from boundaryc.language.explain import Explanation, base, complete, explanation
from boundaryc.language.json_schema import SCHEMAS, schema_text
from boundaryc.language.lint import lint
from boundaryc.language.lint_config import lint_config
from boundaryc.report.schemas import RESULTS, result_schema_text
from boundaryc.scaffold.config import parse_config
from boundaryc.scaffold.start import started
from tests.language.keys_page import keys_page

ROOT = Path(__file__).parents[2]
COMMAND = "python -m tests.language.derived"
NAME = "stack.yaml"

Found = tuple[Diagnostic, ...]

HEAD = """\
# Diagnostics

Each code, with an example that is refused or reported, what is printed for it, and an example that
is fine. `boundaryc explain CODE` prints one of these. A code never changes its meaning. The
hundreds digit says which phase speaks: 0 reading, 1 shape, 2 meaning, 3 not built yet, 4 planning,
6 lint.

Examples stand for the same keys of this file, of which they are the first lines:

"""


def found_in(text: str) -> Found:
    """What loading and planning `text` ends with, or what lint says where they succeed."""
    try:
        stack = loads(text, NAME)
        planned(stack, {NAME: text})
    except BoundarycError as caught:
        return caught.diagnostics
    return lint(stack, text)


def _in_folder(name: str, write: Callable[[Path], object]) -> tuple[Found, str]:
    """The diagnostics of a file that is not only text, under its name alone; and its text."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path)
        try:
            load(path)
        except BoundarycError as caught:
            spans = [d.span and d.span._replace(file=name) for d in caught.diagnostics]
            found = tuple(
                dataclasses.replace(d, span=span, message=d.message.replace(str(path), name))
                for d, span in zip(caught.diagnostics, spans, strict=True)
            )
            return found, next(iter(caught.sources.values()), "")
    return (), ""


def _from_python() -> tuple[Found, str]:
    text = base()
    stack = dataclasses.replace(loads(text, NAME), variants=("context_parallel",))
    try:
        planned(stack, {NAME: text})
    except BoundarycError as caught:
        return caught.diagnostics, text
    return (), text


def _from_config() -> tuple[Found, str]:
    text = complete(explanation("BC607").fails)
    return lint_config(loads(text, NAME), {"residual_multiplier": 0.22}), text


def _not_json() -> tuple[Found, str]:
    text = explanation("BC013").fails
    try:
        parse_config(text, "config.json")
    except BoundarycError as caught:
        return caught.diagnostics, text
    return (), text


def _skeleton() -> tuple[Found, str]:
    found = started(parse_config(explanation("BC608").fails, "config.json"), (), (), NAME)
    return found.findings, found.text


NOT_YAML: dict[str, tuple[str, Callable[[], tuple[Found, str]]]] = {
    "BC009": ("missing.yaml", lambda: _in_folder("missing.yaml", lambda path: None)),
    "BC010": (
        "latin.yaml",
        lambda: _in_folder("latin.yaml", lambda path: path.write_bytes(b"stack: d\xe9mo\n")),
    ),
    "BC011": (
        "huge.yaml",
        lambda: _in_folder("huge.yaml", lambda path: path.write_bytes(b"#" * 10_000_000)),
    ),
    "BC012": (
        "long.yaml",
        lambda: _in_folder("long.yaml", lambda path: path.write_text("stack: " + "x" * 20_000)),
    ),
    "BC013": ("config.json", _not_json),
    "BC403": (NAME, _from_python),
    "BC607": (NAME, _from_config),
    "BC608": (NAME, _skeleton),
}
"""How the failing examples come about that are not the text of a file: its name, and what runs."""


@cache
def failing(parts: Explanation) -> tuple[Found, dict[str, str]]:
    """What the failing example of a code gives, and the sources to render it with."""
    if parts.code in NOT_YAML:
        name, run = NOT_YAML[parts.code]
        found, text = run()
        return found, {name: text} if text else {}
    text = parts.fails if parts.whole else complete(parts.fails)
    return found_in(text), {NAME: text}


def reference() -> str:
    """docs/diagnostics.md."""
    blocks = [f"{HEAD}```yaml\n{base()}```\n"]
    for code in CODES:
        parts = explanation(code)
        found, sources = failing(parts)
        shown = render(found, sources)
        blocks.append(
            f"## {code}: {parts.title}\n\n{parts.story}\n\n"
            f"```{parts.kind}\n{parts.fails}```\n\n```text\n{shown}\n```\n\n"
            f"Fine:\n\n```{parts.working}\n{parts.works}```\n"
        )
    return "\n".join(blocks)


SAMPLE = ("BC601", "BC605", "BC101", "BC206", "BC009")
"""What the snapshots of the renderers show: each severity, two places, no place."""


def snapshot(format: str, *, color: bool = False) -> str:  # noqa: A002 - as in render
    """A few diagnostics in one format."""
    items: list[Diagnostic] = []
    sources: dict[str, str] = {}
    for code in SAMPLE:
        found, texts = failing(explanation(code))
        name = f"{code.lower()}.yaml"
        items += [_renamed(item, name) for item in found]
        sources |= dict.fromkeys([name], "".join(texts.values()))
    return render(items, sources, format, color=color) + "\n"


def _renamed(item: Diagnostic, name: str) -> Diagnostic:
    """A diagnostic as if its file had another name."""
    labels = tuple(
        dataclasses.replace(label, span=label.span._replace(file=name)) for label in item.labels
    )
    span = item.span._replace(file=name) if item.span else None
    return dataclasses.replace(item, span=span, labels=labels)


def _derived() -> Iterator[tuple[str, Callable[[], str]]]:
    for name in SCHEMAS:
        yield f"schemas/{name}.schema.json", partial(schema_text, name)
    for kind in RESULTS:
        yield f"schemas/{kind}.schema.json", partial(result_schema_text, kind)
    yield "docs/diagnostics.md", reference
    yield "docs/keys.md", keys_page
    for name in FORMATS:
        yield f"tests/fixtures/language/rendered/{name}.txt", partial(snapshot, name)
    colored = partial(snapshot, "full", color=True)
    yield "tests/fixtures/language/rendered/full_in_color.txt", colored


DERIVED = dict(_derived())
"""What writes each derived file, by its path in the repository."""


if __name__ == "__main__":
    for name, write in DERIVED.items():
        target = ROOT / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(write(), encoding="utf-8", newline="\n")
