"""Compares what is published with what would be published now, in both directions.

Nothing need be rendered for a stack whose manifest records the meaning and the compiler that we
have, as long as every file is as the manifest says.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from boundaryc.emit.lock import locked
from boundaryc.emit.manifest import NAME, VENDORED, by_another_compiler, inputs, read_manifest
from boundaryc.emit.notes import notes
from boundaryc.emit.origin import origin
from boundaryc.emit.tree import Tree

if TYPE_CHECKING:
    from boundaryc.emit.build import Build
    from boundaryc.language import Stack


class State(Enum):
    """What is wrong with a published file."""

    STALE = "stale"
    EDITED = "edited by hand"
    MISSING = "missing"
    ORPHANED = "orphaned"
    UNSTAGED = "not staged"


@dataclass(frozen=True, slots=True)
class Finding:
    """One file that is not as it should be.

    ``path`` is relative to the output folder. ``diff`` leads from what is there to what should be,
    empty for orphans. ``by_hand``: compiling does not put it right.
    """

    state: State
    path: str
    diff: tuple[str, ...] = ()
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The findings, and how many files were compared. Comparing none is a failure."""

    findings: tuple[Finding, ...]
    compared: int

    @property
    def fresh(self) -> bool:
        """Whether everything that was compared is as it should be, and something was."""
        return not self.findings and self.compared > 0


@dataclass(frozen=True, slots=True)
class Recognised:
    """A stack that is published as its manifest says, from what its source and compiler are now.

    ``names`` are its files, the manifest last; ``notes`` what its author should know about it.
    """

    source: Path
    name: str
    names: tuple[str, ...]
    notes: tuple[str, ...]


def recognise(stack: Stack, source: Path, out: Path, *, vendor: bool) -> Recognised | None:
    """Whether ``stack`` is published without a doubt; None if it must be rendered to tell.

    ``vendor``: with a runtime of its own.
    """
    with locked(out, shared=True):
        tree = Tree.at(out / stack.name)
        recorded = tree.recorded
        if recorded is None or not recorded.intact or not recorded.files:
            return None
        expected = _expected(stack, source, out, vendor=vendor)
        said = {key: recorded.said.get(key) for key in (*expected, "path")}
        if said != {"path": None} | expected:
            return None
        if not all(tree.recorded_as_is(name) for name in recorded.files):
            return None
        if any(not tree.claims(name) and tree.ours(name) for name in tree.names()):
            return None
    return Recognised(source, stack.name, (*sorted(recorded.files), NAME), notes(stack))


def _expected(stack: Stack, source: Path, out: Path, *, vendor: bool) -> dict[str, object]:
    """What the manifest of a fresh stack says of what it was made from."""
    found = origin(stack, source, out)
    if not vendor:
        return inputs(stack.name, found)
    from boundaryc.emit.vendor import runtime_digest, vendored_origin

    return inputs(stack.name, vendored_origin(found)) | {VENDORED: runtime_digest()}


def compare(stacks: Sequence[Build | Recognised], out: Path) -> Report:
    """Compares what the sources compile to with the output folder."""
    findings: list[Finding] = []
    compared = 0
    with locked(out, shared=True):
        for stack in stacks:
            if isinstance(stack, Recognised):
                compared += len(stack.names)
            else:
                findings += _compare(stack, out)
                compared += len(stack.output.files)
        findings += _abandoned(stacks, out)
    return Report(tuple(findings), compared)


def _compare(build: Build, out: Path) -> Iterable[Finding]:
    stack, files = build.name, build.output.files
    tree = Tree.at(out / stack)
    for name, text in files.items():
        path = f"{stack}/{name}"
        if not (tree.folder / name).exists():
            yield Finding(State.MISSING, path, _diff(path, "", text))
            continue
        found = tree.text(name)
        if name == NAME and found is not None and by_another_compiler(found, text):
            continue
        if found != text:
            state = State.STALE if tree.untouched(name) else State.EDITED
            yield Finding(state, path, _diff(path, found or "", text))
    for name in tree.names():
        if name not in files and tree.ours(name):
            by_hand = not tree.disposable(name)
            yield Finding(State.ORPHANED, f"{stack}/{name}", by_hand=by_hand)


def _abandoned(stacks: Sequence[Build | Recognised], out: Path) -> Iterable[Finding]:
    """Whole stacks whose source is gone, or makes another stack now."""
    made = {stack.name for stack in stacks}
    sources = {stack.source.resolve() for stack in stacks}
    for folder, path in published(out):
        if folder.name in made or path is None:
            continue
        if path.resolve() in sources or not path.exists():
            tree = Tree.at(folder)
            for name in tree.names():
                if tree.ours(name):
                    by_hand = path.resolve() not in sources or not tree.disposable(name)
                    yield Finding(State.ORPHANED, f"{folder.name}/{name}", by_hand=by_hand)


def published(out: Path) -> list[tuple[Path, Path | None]]:
    """The folders of ``out`` that hold a stack, each with its source if the manifest names one."""
    found: list[tuple[Path, Path | None]] = []
    for manifest in sorted(out.glob(f"*/{NAME}")):
        recorded = read_manifest(manifest.parent)
        if recorded is not None and not manifest.parent.name.startswith("."):
            # The path was made from names alone; a link in it must not be followed here either.
            path = Path(os.path.normpath(out / recorded.path)) if recorded.path else None
            found.append((manifest.parent, path))
    return found


def _diff(path: str, before: str, after: str) -> tuple[str, ...]:
    """From what is there to what should be there, as a unified diff."""
    lines = difflib.unified_diff(
        before.splitlines(),
        after.splitlines(),
        f"{path} (published)",
        f"{path} (compiled)",
        lineterm="",
    )
    return tuple(lines)
