"""What the compiler is: one hash over all sources and templates that decide what it writes.

Together with the hash of a stack's meaning it tells whether anything must be rendered again. The
versions of the libraries that the compiler uses are not in it; `check --full` is for those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from boundaryc.emit.render import templates_directory

PARTS = ("language", "graph", "topology", "operations", "plan", "emit")
"""The packages from a file's text to the text of its output."""

APART = frozenset(
    {
        "emit/freshness.py",
        "emit/exchange.py",
        "emit/lock.py",
        "emit/publish.py",
        "emit/staged.py",
        "emit/tree.py",
        "language/allow.py",
        "language/explain.py",
        "language/json_schema.py",
        "language/lint.py",
        "language/lint_config.py",
        "language/renderers/",
    }
)
"""What is in those packages and has no say in the output: files, and folders with a slash."""


@cache
def fingerprint() -> str:
    """The hash of this compiler, in hexadecimal; the same in a checkout and once installed."""
    return hashed(package_directory(), templates_directory())


def hashed(package: Path, templates: Path) -> str:
    """The hash over the sources below ``package`` and the templates; line ends do not matter."""
    total = hashlib.sha256()
    for name, path in inputs(package, templates):
        text = path.read_bytes().replace(b"\r\n", b"\n")
        total.update(f"{name}\0{hashlib.sha256(text).hexdigest()}\n".encode())
    return total.hexdigest()


def inputs(package: Path, templates: Path) -> Iterator[tuple[str, Path]]:
    """What is hashed, each file under a name that no machine changes, in the order of names."""
    found = {
        path.relative_to(package).as_posix(): path
        for part in PARTS
        for path in (package / part).rglob("*.py")
    }
    for name in sorted(found):
        if name not in APART and not any(name.startswith(part) for part in _FOLDERS):
            yield name, found[name]
    for path in sorted(templates.glob("*.jinja")):
        yield f"templates/{path.name}", path


_FOLDERS = tuple(name for name in APART if name.endswith("/"))


def package_directory() -> Path:
    """Where this package is."""
    return Path(__file__).resolve().parent.parent
