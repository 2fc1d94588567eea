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
            yield Change("changed", OF, name, was, now, _breaks(was, now))


def _owner(name: str) -> str | None:
    """The class of a method, which is told with it."""
    return name.rpartition(".")[0] or None


def _breaks(before: str, after: str) -> str:
    """Why another signature breaks callers; empty where it only takes more than it must be given.

    What engines may install kernels for is still what it was, under a name of its own.
    """
    old, returned = _parameters(before)
    new, returns = _parameters(after.replace("Fusing", ""))
    kept = all(new.get(name) == said for name, said in old.items())
    more = all(optional for name, (_, optional) in new.items() if name not in old)
    return "" if kept and more and returned == returns else "what uses it fails"


def _parameters(signature: str) -> tuple[dict[str, tuple[str, bool]], str]:
    """The parameters by name, with their type and whether they have a default; what is returned."""
    function = ast.parse(f"def it{signature}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    defaults: list[object] = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
    found = {
        one.arg: (ast.unparse(one.annotation) if one.annotation else "", default is not None)
        for one, default in zip(
            [*plain, *given.kwonlyargs], [*defaults, *given.kw_defaults], strict=True
        )
    }
    return found, ast.unparse(function.returns) if function.returns else ""


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
