"""The layout of the package is the pipeline: imports go one way only."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "boundaryc"

PIPELINE = (("language",), ("graph",), ("topology", "operations"), ("plan",), ("emit",))
"""Left to right; a module imports what stands in its own place or further left."""

READS_EVERYTHING = {"report", "scaffold", "verify", "api", "cli", "__init__", "__main__"}


def part_of(path: Path) -> str:
    """The part of boundaryc that a file belongs to: a folder or a module's name."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path: Path) -> Iterator[str]:
    """The absolute names of all modules that a file imports, inside functions too."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            yield module
            if module == "boundaryc":  # `from boundaryc import plan`
                names = (alias.name for alias in node.names)
                yield from (f"boundaryc.{name}" for name in names if name != "__version__")


def parts_imported(path: Path) -> set[str]:
    """The parts of boundaryc that a file imports."""
    names = (name.split(".") for name in imports(path))
    return {name[1] for name in names if name[0] == "boundaryc" and len(name) > 1}


def place(part: str) -> int | None:
    """How far right in the pipeline a part stands; None for those outside it."""
    return next((index for index, parts in enumerate(PIPELINE) if part in parts), None)


def wrong_imports(path: Path) -> set[str]:
    """The parts that a file of the pipeline may not import but does."""
    own = place(part_of(path))
    if own is None:
        return set()
    allowed = {part for parts in PIPELINE[: own + 1] for part in parts}
    return parts_imported(path) - allowed


MODULES = sorted(PACKAGE.rglob("*.py"))
RUNTIME = [path for path in MODULES if part_of(path) == "runtime"]
ENGINES = [path for path in MODULES if part_of(path) == "engines"]


def test_every_part_has_a_place() -> None:
    """A new folder of boundaryc must be given its place here."""
    known = (
        {part for parts in PIPELINE for part in parts} | READS_EVERYTHING | {"runtime", "engines"}
    )

    assert {part_of(path) for path in MODULES} <= known


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_imports_to_its_right(path: Path) -> None:
    """The order is language -> graph -> topology, operations -> plan -> emit."""
    assert wrong_imports(path) == set()


@pytest.mark.parametrize("path", RUNTIME, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_runtime_needs_torch_only(path: Path) -> None:
    """What generated code imports drags in neither the compiler nor its dependencies."""
    outside = {name for name in imports(path) if not name.startswith("boundaryc.runtime")}

    assert {name.split(".")[0] for name in outside} <= {*sys.stdlib_module_names, "torch"}


@pytest.mark.parametrize("path", ENGINES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_engines_are_imported_late(path: Path) -> None:
    """An adapter is imported with torch and the runtime; its engine's modules inside functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    early = {name.split(".")[0] for name in imports(path)} - {"boundaryc", *sys.stdlib_module_names}
    late = {
        node.module.split(".")[0]
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and node.module
    }

    assert early - late <= {"torch"}
    assert parts_imported(path) <= {"runtime", "engines"}


def test_a_wrong_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check sees plain, relative and nested imports."""
    module = tmp_path / "boundaryc" / "plan" / "search.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        "from boundaryc import emit\nfrom ..report import cost\n"
        "def f():\n    import boundaryc.verify.oracle\n    from boundaryc.graph import build\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "boundaryc")

    assert wrong_imports(module) == {"emit", "report", "verify"}
