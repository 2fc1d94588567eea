"""Puts compiled files where they belong: all of them or none.

The new tree is built beside the old one; unchanged and foreign files enter it as hard links, so
they keep their inode and time. Then the old folder is renamed away and the new one into its place.
Whenever the process ends, one of the two folders is complete, and the next run finishes what was
begun: a missing folder is renamed back, a leftover one is removed. A file is only ever deleted if
it is in our previous manifest, carries our header and is untouched. If nothing changed, nothing is
touched at all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from boundaryc.emit.manifest import NAME
from boundaryc.emit.output import Output
from boundaryc.emit.tree import CACHE, Tree


class PublishError(Exception):
    """Output cannot be written as asked; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Published:
    """What publishing one stack did, as file names inside its folder.

    ``kept`` are files that nothing generates any more and that stay because they were edited.
    """

    stack: str
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.stack}: {len(self.written)} written, {len(self.unchanged)} unchanged, "
            f"{len(self.removed)} removed"
        )


def publish(output: Output, out: Path) -> Published:
    """Makes ``out``/<stack> hold exactly ``output``, beside files that are not ours.

    Raises PublishError if that would overwrite a file that we did not write.
    """
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        places = _Places(out, output.stack)
        places.recover()
        tree = Tree.at(places.target)
        _refuse(tree, output)
        same = [name for name, text in output.files.items() if tree.text(name) == text]
        written = [name for name in output.files if name not in same]
        gone = [name for name in tree.names() if tree.ours(name) and name not in output.files]
        removed = [name for name in gone if tree.disposable(name)]
        if written or removed:
            places.stage(tree, {name: output.files[name] for name in written}, removed)
            places.swap()
    kept = [name for name in gone if name not in removed]
    return Published(output.stack, tuple(written), tuple(same), tuple(removed), tuple(kept))


def retire(out: Path, stack: str) -> Published:
    """Removes a stack that its source no longer makes; edited and foreign files stay."""
    with _alone(out):
        places = _Places(out, stack)
        places.recover()
        tree = Tree.at(places.target)
        ours = [name for name in tree.names() if tree.ours(name)]
        removed = [name for name in ours if tree.disposable(name)]
        places.stage(tree, {}, removed)
        places.swap()
    kept = tuple(name for name in ours if name not in removed)
    return Published(stack, (), (), tuple(removed), kept)


def _refuse(tree: Tree, output: Output) -> None:
    """Stops before anything of somebody else's is overwritten."""
    if tree.folder.is_symlink() or (tree.folder.exists() and not tree.folder.is_dir()):
        raise PublishError(f"{tree.folder} is not a folder; move it away")
    for name, text in output.files.items():
        path = tree.folder / name
        if not path.exists() and not path.is_symlink():
            continue
        if tree.ours(name) or tree.text(name) == text or _adopted(tree, name):
            continue
        raise PublishError(f"{path} was not written by boundaryc; move it away")


def _adopted(tree: Tree, name: str) -> bool:
    """Whether a file without a header is ours although the manifest was lost."""
    siblings = (tree.folder / name).parent / "__init__.py"
    here = siblings.relative_to(tree.folder).as_posix()
    return name.endswith(".json") and tree.recorded is None and tree.ours(here)


@dataclass(frozen=True, slots=True)
class _Places:
    """The folder of a stack, and the two beside it that exist only while it is replaced."""

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
        if self.new.exists():
            shutil.rmtree(self.new)
        if self.old.exists() and not self.target.exists():
            self.old.rename(self.target)
        if self.old.exists():
            self._discard()

    def stage(self, tree: Tree, written: dict[str, str], removed: list[str]) -> None:
        """Builds the new tree beside the old one."""
        self.new.mkdir()
        for name, text in written.items():
            path = self.new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        for name in tree.names():
            if name not in written and name not in removed:
                _link(tree.folder / name, self.new / name)
        for cache in sorted(tree.folder.rglob(CACHE)):
            inside = cache.relative_to(tree.folder)
            modules = any((self.new / inside.parent).glob("*.py"))
            if modules and cache.is_dir() and not cache.is_symlink():
                shutil.copytree(cache, self.new / inside, copy_function=_link_file)

    def swap(self) -> None:
        """Puts the new tree in the place of the old one; an empty one leaves no folder."""
        if self.target.exists():
            self.target.rename(self.old)
        try:
            if any(self.new.iterdir()):
                self.new.rename(self.target)
            else:
                self.new.rmdir()
        except BaseException:
            if self.old.exists():
                self.old.rename(self.target)
            raise
        if self.old.exists():
            self._discard()

    def _discard(self) -> None:
        """Removes the old tree; what only it has and we did not write moves to the new one."""
        tree = Tree.at(self.old)
        for name in list(tree.names()):
            if name == NAME or (self.target / name).exists() or tree.disposable(name):
                continue
            _link(self.old / name, self.target / name)
        shutil.rmtree(self.old)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    _link_file(str(source), str(target))


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target, follow_symlinks=False)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds a folder for one publisher at a time, where the system can lock folders."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
