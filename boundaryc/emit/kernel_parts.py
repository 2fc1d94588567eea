"""Modules of kernels: one where it is short enough, else one for each kernel with its launch.

What is divided is the text of the whole, statement by statement, so that a kernel is the same
either way.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from boundaryc.emit.layout_text import bracketed, bracketed_import, local_imports
from boundaryc.emit.parts import LONGEST
from boundaryc.emit.render import render
from boundaryc.emit.views import Lines, ModuleView

HEADER = 5
"""Lines that a file has above its text."""
ALL, COEFFICIENTS = "all", "coefficients"
"""The parts that are of no kernel: what all are written with, and what a read computes first."""
OF_COEFFICIENTS = ("_share", "_balanced", "_project", "_maps", "_PROJECT", "_MAPS", "_coefficients")
TITLES = {
    ALL: "What all of these kernels are written with.",
    COEFFICIENTS: "The coefficients of a read: projections of each row, and what is made of them.",
}


@dataclass(frozen=True, slots=True)
class _Statement:
    """A function or a constant: its lines in the whole, its part, and the names that it uses."""

    name: str
    part: str
    first: int
    last: int
    uses: frozenset[str]


def kernel_files(module: str, text: str, kernels: Collection[str]) -> dict[str, str]:
    """The files of ``module``, which has the functions ``kernels`` and as a whole is ``text``.

    Divided, it has the same functions still: they are imported from their parts.
    """
    if HEADER + len(text.splitlines()) <= LONGEST:
        return {f"{module}.py": text}
    whole, parts = ast.parse(text), _parts(kernels)
    statements = tuple(_statements(whole, parts))
    home = {one.name: f"{module}_of_{one.part}" for one in statements}
    titles = TITLES | {parts[name]: f"`{name}` and its launch." for name in kernels}
    names = bracketed("__all__ = [", [f'"{name}"' for name in sorted(kernels)], "]")
    imports = (*local_imports({name: home[name] for name in kernels}), "", *names)
    doc = tuple((ast.get_docstring(whole) or "").splitlines())
    views = {module: ModuleView(doc, imports, ())}
    for part in dict.fromkeys(one.part for one in statements):
        own = [one for one in statements if one.part == part]
        uses = frozenset(name for one in own for name in one.uses)
        local = {name: at for name, at in home.items() if at != f"{module}_of_{part}"}
        beside = local_imports({name: at for name, at in local.items() if name in uses})
        sections = [*_outside(whole, uses), *([beside] if beside else []), _remark(text, uses)]
        lines = [line for section in sections if section for line in ("", *section)]
        doc = (titles[part], "", f"See `{module}.py`.")
        views[f"{module}_of_{part}"] = ModuleView(doc, tuple(lines[1:]), _blocks(text, own))
    return {f"{name}.py": render("module.py.jinja", view) for name, view in views.items()}


def _parts(kernels: Iterable[str]) -> dict[str, str]:
    """The part of every name that belongs to one kernel, or to coefficients."""
    found = dict.fromkeys(OF_COEFFICIENTS, COEFFICIENTS)
    for name in kernels:
        functions = (name, f"_{name}", f"_made_by_{name}")
        constants = (f"_{name.upper()}", f"_{name.upper()}_OPERATOR")
        found |= dict.fromkeys((*functions, *constants), name.removeprefix("hyper_"))
    return found


def _statements(whole: ast.Module, parts: Mapping[str, str]) -> Iterator[_Statement]:
    for node in whole.body:
        match node:
            case ast.FunctionDef(name=name):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            case ast.Assign(targets=[ast.Name(id=name)]):
                first = node.lineno
            case _:
                continue
        last = node.end_lineno or first
        yield _Statement(name, parts.get(name, ALL), first, last, frozenset(_used(node)))


def _used(node: ast.stmt) -> set[str]:
    """The names that a statement may find in its module, which are not those of parameters."""
    found = _names(node)
    if isinstance(node, ast.FunctionDef):
        found -= {one.arg for one in node.args.args}
        found |= {name for default in node.args.defaults for name in _names(default)}
    return found


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _blocks(text: str, own: Iterable[_Statement]) -> tuple[Lines, ...]:
    """The lines of statements; those that stand together in the whole still do."""
    lines, blocks, before = text.splitlines(), list[Lines](), 0
    for one in own:
        found = tuple(lines[one.first - 1 : one.last])
        if blocks and one.first == before + 1:
            blocks[-1] += found
        else:
            blocks.append(found)
        before = one.last
    return tuple(blocks)


def _outside(whole: ast.Module, uses: Collection[str]) -> list[Lines]:
    """The imports of the whole that are used, in the sections in which they stand there."""
    sections: list[Lines] = []
    before = 0
    for node in whole.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or node.col_offset:
            continue
        if node.lineno > before + 1:
            sections.append(())
        before = node.end_lineno or node.lineno
        found = [one for one in node.names if (one.asname or one.name) in uses]
        if isinstance(node, ast.ImportFrom) and found:
            names = [one.name for one in found]
            sections[-1] += bracketed_import(node.module or "", names)
        elif found:
            sections[-1] += (ast.unparse(node),)
    return sections


def _remark(text: str, uses: Collection[str]) -> Lines:
    """What is said of all kernels above them, where there is one."""
    head = text.partition("\n\n\n")[0].splitlines()
    return tuple(line for line in head if line.startswith("#")) if "tl" in uses else ()
