"""The generated modules of two plans as text, without what changes with any change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import unified_diff

from boundaryc.emit.files import Origin, without_header
from boundaryc.emit.output import emit
from boundaryc.plan.result import StackPlan
from boundaryc.report.diff.model import FileChange, Kind

_HASH = re.compile(r'^    manifest_hash = "[^"]*"\n', re.M)
"""It names the whole tree, so it would differ wherever anything does."""


def file_changes(before: StackPlan | None, after: StackPlan | None) -> Iterator[FileChange]:
    """The modules that differ; all of them where one of the plans is none."""
    old, new = modules(before), modules(after)
    for path in sorted({*old, *new}):
        was, now = old.get(path, ""), new.get(path, "")
        if was == now:
            continue
        state: Kind = "changed" if was and now else "added" if now else "removed"
        names = (f"{path} (old)", f"{path} (new)")
        diff = tuple(unified_diff(was.splitlines(), now.splitlines(), *names, lineterm=""))
        added = sum(line.startswith("+") for line in diff[2:])
        removed = sum(line.startswith("-") for line in diff[2:])
        yield FileChange(path, state, added, removed, diff)


def modules(plan: StackPlan | None) -> dict[str, str]:
    """The text of every module of a package by its path, with neither header nor hash."""
    if plan is None:
        return {}
    output = emit(plan, Origin("stack.yaml", "boundaryc compile", ""))
    return {
        path: _HASH.sub("", without_header(text))
        for path, text in output.files.items()
        if path.endswith(".py")
    }
