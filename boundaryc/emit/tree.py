"""A stack's published folder: which of its files are ours, and whether anybody changed them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from boundaryc.emit.files import carries_header, digest, intact
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
        """Every file but Python's caches, relative to the folder, in a fixed order."""
        for folder, folders, files in os.walk(self.folder):
            folders[:] = sorted(name for name in folders if name != CACHE)
            for name in sorted(files):
                yield (Path(folder) / name).relative_to(self.folder).as_posix()

    def text(self, name: str) -> str | None:
        """The text of a file; None if there is none, or it is not text."""
        try:
            return (self.folder / name).read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def claims(self, name: str) -> bool:
        """Whether a file is in the manifest, or is the manifest."""
        return self.recorded is not None and (name == NAME or name in self.recorded.files)

    def ours(self, name: str) -> bool:
        """Whether we wrote a file of this name here: the manifest or the file's header says so."""
        return self.claims(name) or carries_header(self.text(name) or "")

    def untouched(self, name: str) -> bool:
        """Whether a file is as it was published.

        Its header's hash of the rest must hold, and for files that cannot have a header the
        manifest's hash.
        """
        text = self.text(name)
        if text is None:
            return False
        if name == NAME:
            return self.recorded is not None
        if name.endswith(".py"):
            return intact(text)
        return self.recorded is not None and (
            self.recorded.files.get(name) == f"sha256:{digest(text)}"
        )

    def disposable(self, name: str) -> bool:
        """Whether a file may be deleted: in our manifest, with our header, and untouched."""
        return self.claims(name) and self.untouched(name)
