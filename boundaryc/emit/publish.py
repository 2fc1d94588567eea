"""Puts compiled files where they belong: all of them or none.

The new trees are built beside the old ones; unchanged and foreign files enter them as hard links,
so they keep their inode and time. Only when all are built are they put in place, each in one step:
the two folders exchange their names. Where the system cannot do that, the old folder is renamed
away first, and for that moment there is neither. Whenever the process ends, each folder is whole,
and the next run cleans up. A file is only ever deleted if it is in our previous manifest, carries
our header and is untouched. If nothing changed, nothing is touched at all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boundaryc.emit.exchange import exchange
from boundaryc.emit.lock import locked
from boundaryc.emit.manifest import NAME
from boundaryc.emit.tree import CACHE, Tree

if TYPE_CHECKING:
    from boundaryc.emit.output import Output


class PublishError(Exception):
    """Output cannot be written as asked; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Published:
    """What publishing one stack did, as file names inside its folder.

    ``kept`` are files that nothing generates any more and that stay because they were edited, or
    because no manifest says that they are ours. ``edited`` are those of the written ones in which
    somebody's changes are replaced.
    """

    stack: str
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    edited: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.stack}: {len(self.written)} written, {len(self.unchanged)} unchanged, "
            f"{len(self.removed)} removed"
        )


def publish(output: Output, out: Path) -> Published:
    """Makes ``out``/<stack> hold exactly ``output``, beside files that are not ours.

    Raises PublishError if that would overwrite a file that we did not write.
    """
    return publish_all([output], out)[0]


def retire(out: Path, stack: str) -> Published:
    """Removes a stack that its source no longer makes; edited and foreign files stay."""
    return publish_all([], out, retired=[stack])[0]


def publish_all(
    outputs: Sequence[Output], out: Path, retired: Iterable[str] = ()
) -> list[Published]:
    """Publishes several stacks and removes the ``retired`` ones; one result for each.

    No folder changes before the new content of all is complete on disk. Raises PublishError if a
    file would be overwritten that we did not write, OSError with the system's reason.
    """
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        _recover(out)
        changes = _changes(outputs, out, retired)
        needed = [change for change in changes if change.needed]
        try:
            for change in needed:
                change.places.stage(change.tree, change.files, change.done.removed)
            for change in needed:
                change.places.swap()
        finally:
            for change in needed:
                _remove(change.places.new)
    return [change.done for change in changes]


def preview(outputs: Sequence[Output], out: Path, retired: Iterable[str] = ()) -> list[Published]:
    """What `publish_all` would do; writes nothing. Raises PublishError as it does."""
    with locked(out, shared=True):
        return [change.done for change in _changes(outputs, out, retired)]


@dataclass(frozen=True, slots=True)
class _Change:
    """What is to become of one stack's folder: the files to write, and the result."""

    places: _Places
    tree: Tree
    files: Mapping[str, str]
    done: Published

    @property
    def needed(self) -> bool:
        return bool(self.done.written or self.done.removed)


def _changes(outputs: Iterable[Output], out: Path, retired: Iterable[str]) -> list[_Change]:
    wanted = {output.stack: output.files for output in outputs}
    wanted |= {stack: {} for stack in retired}
    return [_change(_Places(out, stack), files) for stack, files in wanted.items()]


def _change(places: _Places, files: Mapping[str, str]) -> _Change:
    tree = Tree.at(places.target)
    same = {name: None for name, text in files.items() if tree.text(name) == text}
    written = {name: text for name, text in files.items() if name not in same}
    gone = [name for name in tree.names() if name not in files and tree.ours(name)]
    removed = [name for name in gone if tree.disposable(name)]
    kept = [name for name in gone if name not in removed]
    edited = [name for name in written if tree.edited(name)]
    done = Published(
        places.stack, tuple(written), tuple(same), tuple(removed), tuple(kept), tuple(edited)
    )
    change = _Change(places, tree, written, done)
    if change.needed:
        _refuse(tree, written)
    return change


def _refuse(tree: Tree, written: Iterable[str]) -> None:
    """Stops before anything of somebody else's is overwritten."""
    if tree.folder.is_symlink():
        raise PublishError(f"{tree.folder} is a link; put a folder in its place, or nothing")
    if tree.folder.exists() and not tree.folder.is_dir():
        raise PublishError(f"{tree.folder} is not a folder; move it away")
    for folder in sorted(_folders(written)):
        path = tree.folder / folder
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise PublishError(f"{path} is not a folder; move it away")
    for name in written:
        there = os.path.lexists(f"{tree.folder}/{name}")
        if there and not tree.ours(name) and not _adopted(tree, name):
            raise PublishError(f"{tree.folder / name} was not written by boundaryc; move it away")


def _folders(names: Iterable[str]) -> set[str]:
    """Every folder inside a stack's that has one of these files, directly or in another one."""
    found: set[str] = set()
    for folder in {name.rpartition("/")[0] for name in names}:
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found


def _adopted(tree: Tree, name: str) -> bool:
    """Whether a file without a header is ours although the manifest was lost."""
    siblings = (tree.folder / name).parent / "__init__.py"
    here = siblings.relative_to(tree.folder).as_posix()
    return name.endswith(".json") and tree.recorded is None and tree.ours(here)


@dataclass(frozen=True, slots=True)
class _Places:
    """The folder of a stack, and the two beside it that exist only while it is replaced.

    ``new`` is incomplete, and nobody needs it. ``old`` is complete: what was replaced, or is about
    to replace.
    """

    out: Path
    stack: str

    @property
    def target(self) -> Path:
        return self.out / self.stack

    @property
    def new(self) -> Path:
        return self.out / f".{self.stack}.boundaryc-new"

    @property
    def old(self) -> Path:
        return self.out / f".{self.stack}.boundaryc-old"

    def recover(self) -> None:
        """Finishes or takes back what a run that was cut off had begun."""
        _remove(self.new)
        if self.old.exists() and not self.target.exists():
            self.old.rename(self.target)
        if self.old.exists():
            self._discard()

    def stage(self, tree: Tree, written: Mapping[str, str], removed: Sequence[str]) -> None:
        """Builds the new tree beside the old one."""
        for name in sorted({"", *_folders(written)}):
            (self.new / name).mkdir(parents=True, exist_ok=True)
        new = str(self.new)
        for name, text in written.items():  # thousands: without a path object for each
            with open(f"{new}/{name}", "wb") as file:  # noqa: PTH123
                file.write(text.encode())
        for name in tree.names():
            if name not in written and name not in removed:
                _link(tree.folder / name, self.new / name)
        _link_caches(tree.folder, self.new, written)
        for before, _, _ in os.walk(tree.folder):
            folder = self.new / Path(before).relative_to(tree.folder)
            if folder.is_dir():
                shutil.copymode(before, folder)

    def swap(self) -> None:
        """Puts the new tree in the place of the old one; an empty one leaves no folder."""
        if not any(self.new.iterdir()):
            self.target.rename(self.old)
            self._discard()
        elif not self.target.exists():
            self.new.rename(self.target)
        else:
            self.new.rename(self.old)
            if not exchange(self.old, self.target):
                self.old.rename(self.new)
                self._swap_in_two_steps()
            self._discard()

    def _swap_in_two_steps(self) -> None:
        self.target.rename(self.old)
        try:
            self.new.rename(self.target)
        except BaseException:
            self.old.rename(self.target)
            raise

    def _discard(self) -> None:
        """Removes the old tree, but not what others wrote into it after it was read."""
        tree, current = Tree.at(self.old), Tree.at(self.target)
        for name in list(tree.names()):
            if name == NAME or current.claims(name) or tree.disposable(name):
                continue
            late, path = self.old / name, self.target / name
            if not (os.path.lexists(path) and os.path.samestat(late.lstat(), path.lstat())):
                path.parent.mkdir(parents=True, exist_ok=True)
                late.replace(path)
        self.old.rename(self.new)  # which is not looked at when only a part of it is left
        _remove(self.new)


def _recover(out: Path) -> None:
    """Cleans up after every run that was cut off, whichever stack it was about."""
    for path in sorted(out.glob(".*.boundaryc-*")):
        _Places(out, path.name[1:].rpartition(".")[0]).recover()


def _link(source: Path, target: Path) -> None:
    """Gives a file a second name; a copy where the file system has no hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:  # somebody has just removed it
        return
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _link_caches(tree: Path, new: Path, written: Mapping[str, str]) -> None:
    """Takes Python's caches over, but of no module that is written.

    Python knows a stale cache by the time in seconds and the size, and neither need differ.
    """
    for cached in sorted(tree.rglob(f"{CACHE}/*.pyc")):
        inside = cached.relative_to(tree)
        module = inside.parent.parent / f"{inside.name.partition('.')[0]}.py"
        if module.as_posix() not in written and (new / module).exists():
            with contextlib.suppress(OSError):  # only a cache
                _link(cached, new / inside)


def _remove(folder: Path) -> None:
    """Removes a folder that is ours, if it exists, whatever its folders' modes are."""
    if not folder.exists():
        return
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(path).chmod(0o700)
    shutil.rmtree(folder)
