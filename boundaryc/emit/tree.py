"""A stack's published folder: which of its files are ours, and whether anybody changed them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from boundaryc.emit.files import carries_header, intact
from boundaryc.emit.manifest import NAME, Recorded, read_manifest

CACHE = "__pycache__"


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder and the manifest that was published with it, if any."""

    folder: Path
    recorded: Recorded | None

    @classmethod
    def at(cls, folder: Path) -> Tree:
        """The tree in ``folder``, which need not exist."""
        return cls(folder, read_manifest(folder))

    def names(self) -> Iterator[str]:
        """Every file but Python's caches, relative to the folder, in a fixed order.

        A link is a file, wherever it leads.
        """
        top = str(self.folder)
        for folder, folders, files in os.walk(top):
            inside = f"{folder[len(top) + 1 :]}/".replace(os.sep, "/") if folder != top else ""
            links = [name for name in folders if os.path.islink(f"{folder}/{name}")]  # noqa: PTH114
            folders[:] = sorted(name for name in folders if name not in (CACHE, *links))
            for name in sorted([*files, *links]):
                yield f"{inside}{name}"

    def text(self, name: str) -> str | None:
        """The text of a file; None if there is none, or it is not text."""
        content = self._content(name)
        try:
            return None if content is None else content.decode("utf-8")
        except UnicodeDecodeError:
            return None

    def _content(self, name: str) -> bytes | None:
        # Thousands of files are read where nothing has changed: without a path object for each.
        path = f"{self.folder}/{name}"
        try:
            if not os.path.isfile(path):  # noqa: PTH113
                return None
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123
                return file.read()
        except OSError:
            return None

    def claims(self, name: str) -> bool:
        """Whether a file is in the manifest, or is the manifest."""
        return self.recorded is not None and (name == NAME or name in self.recorded.files)

    def ours(self, name: str) -> bool:
        """Whether we wrote a file of this name here: the manifest or the file's header says so."""
        return self.claims(name) or carries_header(self.text(name) or "")

    def recorded_as_is(self, name: str) -> bool:
        """Whether a file has the hash that the manifest gives for it."""
        content = self._content(name)
        return (
            content is not None
            and self.recorded is not None
            and self.recorded.files.get(name) == f"sha256:{hashlib.sha256(content).hexdigest()}"
        )

    def untouched(self, name: str) -> bool:
        """Whether a file is as it was published.

        Its header's hash of the rest must hold. A file that cannot have a header must be as a
        manifest that nobody changed says, and so must the manifest.
        """
        if name.endswith(".py"):
            return intact(self.text(name) or "")
        if self.recorded is None or not self.recorded.intact:
            return False
        return name == NAME or self.recorded_as_is(name)

    def edited(self, name: str) -> bool:
        """Whether somebody changed a file that we wrote, as far as it and the manifest can tell."""
        if not os.path.isfile(f"{self.folder}/{name}") or not self.ours(name):  # noqa: PTH113
            return False
        if name.endswith(".py"):
            return not self.untouched(name)
        known = self.recorded is not None and (self.recorded.intact or name == NAME)
        return known and not self.untouched(name)

    def disposable(self, name: str) -> bool:
        """Whether a file may be deleted: in our manifest, with our header, and untouched."""
        path = self.folder / name
        return self.claims(name) and not path.is_symlink() and self.untouched(name)
