"""A stack with a copy of the runtime beside its modules, which then need torch and nothing of ours.

The code is the same; only the lines that import the runtime differ, and stand where a linter wants
relative imports. The copy is part of the stack's output: its files have headers and hashes, and
`check` compares them like all others.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from boundaryc.emit.files import Origin, digest, with_header, without_header
from boundaryc.emit.manifest import NAME, VENDORED, sealed

if TYPE_CHECKING:
    from boundaryc.emit.output import Output

FOLDER = "runtime"
"""The copy, inside the stack's folder; no topology may be called so."""

RUNTIME = "boundaryc.runtime"

OPTION = "--vendor-runtime"

LICENSE = "# SPDX-License-Identifier: Apache-2.0\n"


def vendored_origin(origin: Origin) -> Origin:
    """The same, with a command that makes the copy too."""
    return replace(origin, command=f"{origin.command} {OPTION}")


def vendored(output: Output) -> Output:
    """The same stack, with a runtime of its own."""
    origin = vendored_origin(output.origin)
    files = {
        name: _localised(name, text, origin) for name, text in output.files.items() if name != NAME
    }
    files |= {
        f"{FOLDER}/{name}": with_header(origin, text) for name, text in runtime_texts().items()
    }
    files = dict(sorted(files.items()))
    document = json.loads(output.files[NAME]) | {
        "regenerate": origin.command,
        "files": {name: f"sha256:{digest(text)}" for name, text in files.items()},
        VENDORED: runtime_digest(),
    }
    files[NAME] = sealed(document)
    return replace(output, origin=origin, files=files)


def _localised(name: str, text: str, origin: Origin) -> str:
    if not name.endswith(".py"):
        return text
    dots = "." * (1 + name.count("/"))
    return with_header(origin, with_own_runtime(without_header(text), Place(dots, FOLDER)))


@cache
def runtime_texts() -> Mapping[str, str]:
    """The runtime's modules as they stand in a stack's folder, by file name, without headers."""
    return {
        name: LICENSE + with_own_runtime(text, Place(".", "")) for name, text in _sources().items()
    }


@cache
def _sources() -> Mapping[str, str]:
    # Not imported: the runtime imports torch, and compiling must not.
    folder = Path(__file__).resolve().parent.parent / FOLDER
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}


@cache
def runtime_digest() -> str:
    """The hash of the runtime that is copied; how it is copied is the compiler's."""
    lines = "\n".join(f"{name} {digest(text)}" for name, text in _sources().items())
    return f"sha256:{digest(lines)}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a module sees the copy: dots that lead to the folder it is in, and its name there.

    The name is empty for the modules of the copy itself.
    """

    dots: str
    name: str

    def of(self, module: str) -> str:
        """The runtime's ``module``, which is empty for the runtime itself."""
        return self.dots + ".".join(filter(None, [self.name, module]))


def with_own_runtime(text: str, place: Place) -> str:
    """A module's text, with the runtime imported from ``place``."""
    lines = text.splitlines()
    edits = [
        (first, last, new)
        for run in _runs(ast.parse(text))
        for first, last, new in _rewritten(run, lines, place)
    ]
    for first, last, new in sorted(edits, reverse=True):
        lines[first - 1 : last] = new
    return "\n".join(lines) + "\n" if lines else ""


Import = ast.Import | ast.ImportFrom


def _runs(tree: ast.Module) -> Iterator[Sequence[Import]]:
    """Imports that follow one another, wherever they stand."""
    for node in ast.walk(tree):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            run: list[Import] = []
            for child in body if isinstance(body, list) else ():
                if isinstance(child, Import):
                    run.append(child)
                elif run:
                    yield run
                    run = []
            if run:
                yield run


def _rewritten(
    run: Sequence[Import], lines: Sequence[str], place: Place
) -> Iterator[tuple[int, int, list[str]]]:
    """The lines that take the place of a run, with the first and the last that they replace."""
    if not any(map(_is_ours, run)):
        return
    sections: list[list[Import]] = [[run[0]]]
    for before, node in pairwise(run):
        if node.lineno > (before.end_lineno or 0) + 1:
            sections.append([])
        sections[-1].append(node)
    local = [node for node in run if _is_ours(node) or _level(node)]
    kept = [[node for node in section if node not in local] for section in sections]
    local.sort(key=lambda node: _order(_replaced(node, place)))
    blocks = [list(_texts(block, lines, place)) for block in (*kept, local) if block]
    made = [line for block in blocks for line in (*block, "")][:-1]
    last = run[-1].end_lineno or run[-1].lineno
    given = [line for line in lines[run[0].lineno - 1 : last] if line]
    assert len(given) == len([line for line in made if line]), "a comment between imports"
    yield run[0].lineno, last, made


def _is_ours(node: Import) -> bool:
    if not isinstance(node, ast.ImportFrom) or node.level:
        return False
    module = node.module or ""
    whole = module == "boundaryc" and [alias.name for alias in node.names] == [FOLDER]
    return whole or module == RUNTIME or module.startswith(f"{RUNTIME}.")


def _level(node: Import) -> int:
    return node.level if isinstance(node, ast.ImportFrom) else 0


def _replaced(node: Import, place: Place) -> str:
    """From where a node imports."""
    assert isinstance(node, ast.ImportFrom)
    if not _is_ours(node):
        return "." * node.level + (node.module or "")
    if node.module == "boundaryc":
        return place.dots
    return place.of((node.module or "").removeprefix(RUNTIME).removeprefix("."))


def _order(module: str) -> tuple[int, str]:
    """A linter's: what is further away first."""
    name = module.lstrip(".")
    return len(name) - len(module), name


def _texts(nodes: Iterable[Import], lines: Sequence[str], place: Place) -> Iterator[str]:
    for node in nodes:
        first, *more = lines[node.lineno - 1 : node.end_lineno]
        if _is_ours(node):
            assert isinstance(node, ast.ImportFrom)
            first = first.replace(f"from {node.module} ", f"from {_replaced(node, place)} ", 1)
        yield first
        yield from more
