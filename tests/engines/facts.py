"""What there is to know of an installed package's interfaces, read without importing it.

Signatures are without annotations. It needs the standard library only. KeyError for what is no
longer there.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

Names = Mapping[str, Sequence[str]]
Attributes = Mapping[str, Mapping[str, Sequence[str]]]


def package_folder(package: str) -> Path:
    """Where an installed package is."""
    found = find_spec(package)
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(next(iter(found.submodule_search_locations)))


def write(package: str, facts: Callable[[Path], dict[str, object]]) -> None:
    """Prints the ``facts`` of an installed package's folder, with its version."""
    found = {"version": version(package), **facts(package_folder(package))}
    json.dump(found, sys.stdout, indent=2)
    sys.stdout.write("\n")


def interfaces(
    folder: Path, functions: Names, attributes: Attributes, assigned: Attributes
) -> dict[str, object]:
    """Signatures of functions and methods, and that attributes of classes are there.

    ``attributes`` are annotated ones, all of them where none is named; ``assigned`` those that a
    class's `__init__` assigns. Files are below ``folder``.
    """
    trees = {name: parsed(folder / name) for name in {*functions, *attributes, *assigned}}
    return {
        "functions": {
            f"{path}:{name}": _signature(trees[path], name)
            for path, names in functions.items()
            for name in names
        },
        "attributes": {
            f"{path}:{name}": _annotated(trees[path], name, wanted)
            for path, classes in attributes.items()
            for name, wanted in classes.items()
        },
        "assigned": {
            f"{path}:{name}": _assigned(trees[path], name, wanted)
            for path, classes in assigned.items()
            for name, wanted in classes.items()
        },
    }


def parsed(file: Path) -> ast.Module:
    """A module's tree."""
    return ast.parse(file.read_text("utf-8"))


def found(tree: ast.AST, name: str) -> ast.FunctionDef | ast.ClassDef:
    """A function, a class or a method of one."""
    for part in name.split("."):
        nodes = {
            node.name: node
            for node in ast.iter_child_nodes(tree)
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        tree = nodes[part]
    assert isinstance(tree, ast.FunctionDef | ast.ClassDef)
    return tree


def _signature(tree: ast.AST, name: str) -> str:
    node = found(tree, name)
    assert isinstance(node, ast.FunctionDef)
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return ast.unparse(node.args)


def _annotated(tree: ast.AST, name: str, wanted: Sequence[str]) -> Sequence[str]:
    known = [
        node.target.id
        for node in ast.iter_child_nodes(found(tree, name))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    missing = set(wanted) - set(known)
    if missing:
        raise KeyError(f"{name} has no {', '.join(sorted(missing))}")
    return wanted or known


def _assigned(tree: ast.AST, name: str, wanted: Sequence[str]) -> Sequence[str]:
    text = ast.unparse(found(tree, f"{name}.__init__"))
    missing = [one for one in wanted if f"self.{one} = " not in text]
    if missing:
        raise KeyError(f"{name} does not assign {', '.join(missing)}")
    return wanted
