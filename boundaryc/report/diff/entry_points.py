"""What callers of a generated package use: functions, constants, classes of layers, signatures."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from boundaryc.emit.render import render
from boundaryc.emit.stack_views import layers_view, stack_view
from boundaryc.plan.result import StackPlan
from boundaryc.report.diff import breaks
from boundaryc.report.diff.model import Change

OF = "entry point"


def entry_point_changes(before: StackPlan, after: StackPlan) -> Iterator[Change]:
    """The entry points that one of two packages lacks, or that take something else."""
    old, new = entry_points(before), entry_points(after)
    for name, was in old.items():
        if name not in new and _owner(name) in (None, *new):
            yield Change("removed", OF, name, was, "", breaks.removed(OF, name))
    for name, now in new.items():
        was = old.get(name, "")
        if name not in old and _owner(name) in (None, *old):
            yield Change("added", OF, name, "", now)
        elif name in old and was != now:
            yield Change("changed", OF, name, was, now, "what uses it fails")


def _owner(name: str) -> str | None:
    """The class of a method, which is told with it."""
    return name.rpartition(".")[0] or None


def entry_points(plan: StackPlan) -> dict[str, str]:
    """What the package and its ``layers.py`` offer: a name and its signature or type.

    They are read from the text of both modules, as a caller would.
    """
    package = ast.parse(render("stack.py.jinja", stack_view(plan)))
    layers = ast.parse(render("layers.py.jinja", layers_view(plan)))
    return dict([*_offered(package), *_offered(layers)])


def _offered(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, _signature(node)
        elif isinstance(node, ast.ClassDef):
            yield node.name, f"({', '.join(_attributes(node))})"
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                    yield f"{node.name}.{method.name}", _signature(method)


def _attributes(owner: ast.ClassDef) -> Iterator[str]:
    for node in owner.body:
        if isinstance(node, ast.AnnAssign):
            yield f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}"


def _signature(function: ast.FunctionDef) -> str:
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"({ast.unparse(function.args)}){returns}"
