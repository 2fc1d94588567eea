"""Where generated files say they come from: the same words on every machine."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from boundaryc.emit.files import Origin, digest

if TYPE_CHECKING:
    from boundaryc.language import Stack

OUT = "generated"
"""Where output goes unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Place:
    """A source file and an output folder, and how they see each other.

    ``source`` and ``out`` are relative to the innermost folder that holds both, whatever the
    current directory is; with nothing but the root of the file system in common, the source is its
    mere name. ``back`` leads from the output folder to the source, None in that case.
    """

    source: str
    out: str
    back: str | None


def place(source: Path, out: Path) -> Place:
    """How ``source`` and ``out`` lie relative to each other."""
    file, folder = _absolute(source), _absolute(out)
    try:
        common = Path(os.path.commonpath([file.parent, folder.parent]))
    except ValueError:  # two drives
        return Place(file.name, folder.name, None)
    if common == Path(common.anchor):
        return Place(file.name, folder.name, None)
    return Place(
        file.relative_to(common).as_posix(),
        folder.relative_to(common).as_posix(),
        Path(os.path.relpath(file, folder)).as_posix(),
    )


def _absolute(path: Path) -> Path:
    """An absolute path without dots; links are not followed, they are part of how a tree looks."""
    return Path(os.path.normpath(path.absolute()))


def origin(stack: Stack, source: Path, out: Path) -> Origin:
    """What the headers of a stack's files say.

    Drafts have files of their own, which alone follow when one of them changes. Raises
    BoundarycError where source or output have names that no header can say.
    """
    from boundaryc.language import canonical
    from boundaryc.language.files import check_name

    found = place(source, out)
    for path in (found.source, found.out):
        check_name(path)  # what is named here are folders, too
    return Origin(
        found.source,
        command("compile", [found.source], found.out),
        digest(canonical(replace(stack, drafts=()))),
        found.back,
    )


def command(verb: str, sources: list[str], out: str) -> str:
    """The command line that compiles or checks ``sources``, without options that are defaults."""
    words = ["boundaryc", verb, *sources]
    if out != OUT:
        words += ["--out", out]
    return shlex.join(words)
