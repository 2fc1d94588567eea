"""Imports generated packages from texts, without touching sys.path or the disk's layout.

Verification runs exactly the texts it is given: those on disk, those just rendered, or those with
a seeded fault. Every import gets a package name of its own, so that two versions never mix.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import linecache
import sys
from collections.abc import Mapping, Sequence
from importlib.util import spec_from_loader
from itertools import count
from types import ModuleType

_serial = count()


def import_package(files: Mapping[str, str], name: str) -> ModuleType:
    """Imports a package from its files, relative path to text, and returns its root module."""
    root = f"_boundaryc_verify_{name}_{next(_serial)}"
    finder = _Finder(root, files)
    sys.meta_path.insert(0, finder)
    return importlib.import_module(root)


def forget(package: ModuleType) -> None:
    """Drops an imported package again."""
    root = package.__name__
    for name in [name for name in sys.modules if name == root or name.startswith(f"{root}.")]:
        del sys.modules[name]
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if not (isinstance(finder, _Finder) and finder.root == root)
    ]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads the modules of one package from texts."""

    def __init__(self, root: str, files: Mapping[str, str]) -> None:
        self.root = root
        self._files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of this package."""
        file = self._file(fullname)
        if file is None:
            return None
        is_package = file.endswith("__init__.py")
        return spec_from_loader(fullname, self, origin=file, is_package=is_package)

    def get_source(self, fullname: str) -> str:
        """The text of a module."""
        file = self._file(fullname)
        if file is None:
            raise ImportError(fullname)
        return self._files[file]

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        """The compiled module; its file name is the path inside the package."""
        file = self._file(fullname)
        assert file is not None
        source = self._files[file]
        shown = f"<{self.root}>/{file}"
        linecache.cache[shown] = (len(source), None, source.splitlines(keepends=True), shown)
        return compile(source, shown, "exec")

    def _file(self, fullname: str) -> str | None:
        if fullname != self.root and not fullname.startswith(f"{self.root}."):
            return None
        inner = fullname[len(self.root) + 1 :].replace(".", "/")
        for candidate in (f"{inner}/__init__.py" if inner else "__init__.py", f"{inner}.py"):
            if candidate in self._files:
                return candidate
        return None
