"""What `boundaryc init` did, as it is printed for programs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from boundaryc.scaffold.start import Started

SCHEMA = "stack.schema.json"
"""Where the first line of the file says that the schema is, beside the file."""


@dataclass(frozen=True, slots=True)
class Left:
    """Something left to the author of the file: its code, line, what it is, and what to do."""

    code: str
    line: int | None
    message: str
    help: str


@dataclass(frozen=True, slots=True)
class Written:
    """The stack file that was written.

    ``family`` is the known one, None where there is none or no config was given. ``left`` is what
    is not known of the model, and what its config says and the file does not. ``next`` are the
    commands that come next, ``schema`` is the one that gives editors what the first line names.
    """

    file: str
    stack: str
    family: str | None
    topologies: tuple[str, ...]
    variants: tuple[str, ...]
    left: tuple[Left, ...]
    next: tuple[str, ...]
    schema: str


def written(found: Started, path: Path) -> Written:
    """What was written to ``path``."""
    left: list[Left] = []
    for one in found.findings:
        line = one.span.start.line if one.span else None
        left.append(Left(one.code, line, one.message, one.help))
        own = (mark for mark in one.labels if mark.span.file == str(path))
        left += [Left(one.code, mark.span.start.line, mark.text, one.help) for mark in own]
    stack = found.stack
    return Written(
        file=str(path),
        stack=stack.name,
        family=found.family,
        topologies=tuple(spec.name for spec in stack.topologies),
        variants=stack.variants,
        left=tuple(left),
        next=(f"boundaryc compile {shlex.quote(str(path))}",),
        schema=f"boundaryc schema stack > {shlex.quote(str(path.parent / SCHEMA))}",
    )
