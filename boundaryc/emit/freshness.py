"""Compares what is published with what would be published now, in both directions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from boundaryc.emit.build import Build
from boundaryc.emit.manifest import NAME, read_manifest
from boundaryc.emit.tree import Tree


class State(Enum):
    """What is wrong with a published file."""

    STALE = "stale"
    EDITED = "edited by hand"
    MISSING = "missing"
    ORPHANED = "orphaned"


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


def compare(builds: Sequence[Build], out: Path) -> Report:
    """Compares what the sources compile to with the output folder."""
    findings: list[Finding] = []
    for build in builds:
        findings += _compare(build, out)
    findings += _abandoned(builds, out)
    compared = sum(len(build.output.files) for build in builds)
    return Report(tuple(findings), compared)


def _compare(build: Build, out: Path) -> Iterable[Finding]:
    stack, files = build.output.stack, build.output.files
    tree = Tree.at(out / stack)
    for name, text in files.items():
        path = f"{stack}/{name}"
        if not (tree.folder / name).exists():
            yield Finding(State.MISSING, path, _diff(path, "", text))
            continue
        found = tree.text(name)
        if found != text:
            state = State.STALE if tree.untouched(name) else State.EDITED
            yield Finding(state, path, _diff(path, found or "", text))
    for name in tree.names():
        if name not in files and tree.ours(name):
            by_hand = not tree.disposable(name)
            yield Finding(State.ORPHANED, f"{stack}/{name}", by_hand=by_hand)


def _abandoned(builds: Sequence[Build], out: Path) -> Iterable[Finding]:
    """Whole stacks whose source is gone, or makes another stack now."""
    made = {build.output.stack for build in builds}
    sources = {build.source.resolve() for build in builds}
    for folder, path in published(out):
        if folder.name in made or path is None:
            continue
        if path.resolve() in sources or not path.exists():
            by_hand = path.resolve() not in sources
            tree = Tree.at(folder)
            for name in tree.names():
                if tree.ours(name):
                    yield Finding(State.ORPHANED, f"{folder.name}/{name}", by_hand=by_hand)


def published(out: Path) -> list[tuple[Path, Path | None]]:
    """The folders of ``out`` that hold a stack, each with its source if the manifest names one."""
    found: list[tuple[Path, Path | None]] = []
    for manifest in sorted(out.glob(f"*/{NAME}")):
        recorded = read_manifest(manifest.parent)
        if recorded is not None and not manifest.parent.name.startswith("."):
            found.append((manifest.parent, out / recorded.path if recorded.path else None))
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
