"""What a seeded fault is, and the damaged copy of the sources that it makes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COPIED = ("boundaryc", "templates", "schemas", "examples")
"""What a damaged copy holds. Tests are those of the working tree."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One exact change of one file.

    ``does`` is what becomes wrong, in one sentence. ``seen_by`` are checks that must notice, the
    quickest first; others may.
    """

    name: str
    area: str
    does: str
    path: str
    old: str
    new: str
    seen_by: tuple[str, ...]

    def text(self, root: Path = ROOT) -> str:
        """The damaged file. LookupError where ``old`` is not there exactly once."""
        source = (root / self.path).read_text(encoding="utf-8")
        if source.count(self.old) != 1:
            raise LookupError(
                f"fault {self.name} does not apply: its text is {source.count(self.old)} times "
                f"in {self.path}"
            )
        return source.replace(self.old, self.new)


def damaged_copy(fault: Fault | None, folder: Path) -> None:
    """Copies the sources into ``folder``, with ``fault`` if there is one."""
    for name in COPIED:
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.md")
        )
    if fault is not None:
        (folder / fault.path).write_text(fault.text(), encoding="utf-8")
