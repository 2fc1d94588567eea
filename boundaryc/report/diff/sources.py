"""What is compared: stack files, folders of them, and both as they are in a git revision."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from boundaryc.language import BoundarycError, Stack
from boundaryc.language.files import read_bytes, read_text
from boundaryc.language.loader import loads
from boundaryc.report.deployment import AskedError, Source
from boundaryc.report.diff.model import Skipped

_IS_STACK = re.compile(rb"^(?:\xef\xbb\xbf)?boundaryc\s*:", re.M)
"""What tells a stack file from other YAML in a folder."""

_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Version:
    """One side of a comparison: how it was asked for, and its stacks by name, drafts too.

    ``main`` are the stacks of each file, by its path in what was asked for, that of the file before
    its drafts; ``wrong`` are the files that were left out, likewise.
    """

    label: str
    stacks: Mapping[str, Source]
    files: Mapping[str, tuple[str, ...]]
    wrong: Mapping[str, Skipped]

    @property
    def main(self) -> tuple[str, ...]:
        """The stacks of files, without their drafts."""
        return tuple(names[0] for names in self.files.values())

    def without(self, paths: Iterable[str]) -> Version:
        """All but the stacks of some files."""
        gone = {name for path in paths for name in self.files.get(path, ())}
        stacks = {name: one for name, one in self.stacks.items() if name not in gone}
        files = {path: names for path, names in self.files.items() if names[0] not in gone}
        return replace(self, stacks=stacks, files=files)


def versions(old: str, new: str, *, skips: bool = False) -> tuple[Version, Version]:
    """Both sides; with ``skips`` without the files that are wrong in ``old``, on either side.

    Each is a file, a folder, ``REVISION:PATH``, or a revision, which then means the path of the
    other side, or all of the repository, in which there may be no stack on one side. Raises
    BoundarycError for what is wrong in a file, and AskedError.
    """
    before, after = _version(old, new, skips=skips), _version(new, old)
    after = after.without(before.wrong)
    if not (before.stacks or after.stacks or before.wrong):
        raise AskedError(f"{old} and {new}: there is no stack file in either")
    return before, after


def _version(asked: str, other: str, *, skips: bool = False) -> Version:
    path = Path(asked)
    if path.is_file():
        texts = {str(path): read_text(path)}
    elif path.is_dir():
        texts = dict(_in_folder(path))
    else:
        spec, folder = _spec(asked, other)
        texts = dict(_in_revision(asked, spec, folder))
        if spec == f"{asked}:":  # all of a repository
            return _read(asked, texts, spec, skips=skips)
        return _read(asked, _some(asked, texts), spec, skips=skips)
    return _read(asked, _some(asked, texts), str(path), skips=skips)


def _some(asked: str, texts: Mapping[str, str]) -> Mapping[str, str]:
    if not texts:
        raise AskedError(f"{asked}: there is no stack file in it")
    return texts


def _read(asked: str, texts: Mapping[str, str], top: str, *, skips: bool) -> Version:
    """The stacks of files, all of which are below ``top`` or that itself."""
    found: dict[str, Source] = {}
    files: dict[str, tuple[str, ...]] = {}
    wrong: dict[str, Skipped] = {}
    for name, text in texts.items():
        path = name.removeprefix(top).lstrip("/")
        try:
            stack = loads(text, name)
        except BoundarycError as problem:
            if not skips:
                raise
            wrong[path] = skipped(name, problem)
            continue
        files[path] = tuple(one.name for one in stack.family)
        for one in stack.family:
            _add(found, one, text, name)
    return Version(asked, found, files, wrong)


def skipped(source: str, problem: BoundarycError) -> Skipped:
    """That a stack is not compared, with the first thing that is wrong in it."""
    first = problem.diagnostics[0]
    return Skipped(source, f"{first.code}: {first.message}")


def _add(found: dict[str, Source], stack: Stack, text: str, name: str) -> None:
    other = found.get(stack.name)
    if other is not None:
        raise AskedError(f"{other.stack.source} and {name} are both the stack `{stack.name}`")
    found[stack.name] = Source(stack, text)


def _in_folder(folder: Path) -> Iterator[tuple[str, str]]:
    """The stack files in a folder and below, hidden folders left out."""
    for path in sorted(folder.rglob("*")):
        wanted = _may_be_one(path.relative_to(folder).as_posix()) and path.is_file()
        if wanted and _IS_STACK.search(read_bytes(path)):
            yield str(path), read_text(path)


def _may_be_one(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return path.endswith(_SUFFIXES) and not any(part.startswith(".") for part in parts)


def _spec(asked: str, other: str) -> tuple[str, Path]:
    """What git calls this side, and the folder in which it knows it."""
    if ":" in asked:
        return asked, Path()
    if Path(other).exists():
        folder = Path(other).resolve()
        folder = folder if folder.is_dir() else folder.parent
        top = Path(_git(folder, asked, "rev-parse", "--show-toplevel").strip())
        inside = Path(other).resolve().relative_to(top.resolve()).as_posix()
        return f"{asked}:{'' if inside == '.' else inside}", folder
    return f"{asked}:{other.partition(':')[2] if ':' in other else ''}", Path()


def _in_revision(asked: str, spec: str, folder: Path) -> Iterator[tuple[str, str]]:
    """The stack files of ``REVISION:PATH``: of a file that one, of a folder all below it."""
    if spec.startswith("-"):
        raise AskedError(f"{asked} is no file, folder or git revision")
    kind = _git(folder, asked, "cat-file", "-t", spec).strip()
    if kind == "blob":
        yield spec, _git(folder, spec, "cat-file", "blob", spec)
        return
    listing = _git(folder, spec, "ls-tree", "-r", "-z", "--full-tree", spec)
    for entry in filter(None, listing.split("\0")):
        about, _, path = entry.partition("\t")
        if about.split()[1] == "blob" and _may_be_one(path):
            name = f"{spec}{'' if spec.endswith((':', '/')) else '/'}{path}"
            found = _bytes(folder, name, "cat-file", "blob", about.split()[2])
            if _IS_STACK.search(found):
                yield name, _text(name, found)


def _git(folder: Path, what: str, *words: str) -> str:
    """What git says, as text."""
    return _text(what, _bytes(folder, what, *words))


def _bytes(folder: Path, what: str, *words: str) -> bytes:
    """What git says. Raises AskedError where there is no git, or nothing that is called so."""
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, check=False)
    except OSError as problem:
        raise AskedError(f"{what}: git cannot be run: {problem}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
        why = f" ({said[-1]})" if said else ""
        raise AskedError(f"{what} is no file, folder or git revision{why}")
    return done.stdout


def _text(what: str, found: bytes) -> str:
    try:
        return found.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise AskedError(f"{what} is not UTF-8") from None
