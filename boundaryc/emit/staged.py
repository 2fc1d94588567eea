"""What a commit would have: compares what is published with git's index.

A file that `compile` wrote and nobody added is fresh on the disk and missing in the commit.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from boundaryc.emit.freshness import Finding, Report, State
from boundaryc.emit.publish import PublishError

if TYPE_CHECKING:
    from boundaryc.emit.build import Build
    from boundaryc.emit.freshness import Recognised

_WHERE = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX")
"""What git tells a hook, as seen from the top of the work tree."""


def unstaged(report: Report, stacks: Sequence[Build | Recognised], out: Path) -> Report:
    """The report, with a finding for each file that git's index does not have as it is here.

    That is of the stack files too. What is wrong for another reason is not told twice. PublishError
    where git cannot be asked.
    """
    known = {finding.path for finding in report.findings}
    found = [
        Finding(State.UNSTAGED, path, by_hand=True)
        for path in _missing(dict.fromkeys(_files(stacks, out)), out)
        if path not in known
    ]
    return replace(report, findings=(*report.findings, *found))


def _files(stacks: Iterable[Build | Recognised], out: Path) -> Iterator[str]:
    """The stack files and what they compile to, relative to ``out``."""
    for stack in stacks:
        yield Path(os.path.relpath(stack.source.absolute(), out.absolute())).as_posix()
        for name in stack.names:
            yield f"{stack.name}/{name}"


def _missing(paths: Iterable[str], out: Path) -> Iterator[str]:
    """Those of ``paths`` that exist and that the index has otherwise or not at all."""
    outside = {name: value for name, value in os.environ.items() if name not in _WHERE}
    top = Path(_git("rev-parse", "--show-toplevel", cwd=out, env=outside).rstrip("\n"))
    # At the top the variables that a hook is given mean what git means by them.
    known = {*_names("ls-files", "-z", "--cached", cwd=top)}
    known -= {*_names("ls-files", "-z", "--modified", cwd=top)}
    real = out.resolve()
    for path in paths:
        place = Path(os.path.normpath(real / path))
        inside = place.is_relative_to(top)
        if place.exists() and not (inside and place.relative_to(top).as_posix() in known):
            yield path


def _names(*words: str, cwd: Path) -> Iterator[str]:
    return filter(None, _git(*words, cwd=cwd).split("\0"))


def _git(*words: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=cwd, env=env, capture_output=True, check=False)
    except OSError as problem:
        raise PublishError(f"git cannot be run, which --staged asks: {problem}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise PublishError(f"git cannot say what is staged: {said[-1] if said else words[0]}")
    return done.stdout.decode("utf-8", errors="surrogateescape")
