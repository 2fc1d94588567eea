"""The verbs of boundaryc as Python functions; the command line is a thin user of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from boundaryc.emit.origin import OUT
from boundaryc.language import Stack, load

if TYPE_CHECKING:
    from boundaryc.emit.build import Build
    from boundaryc.emit.freshness import Report
    from boundaryc.emit.publish import Published
    from boundaryc.plan.result import StackPlan

Source = str | PathLike[str]

__all__ = ["Compiled", "Source", "check", "compile", "load", "plan", "sources"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a compilation published, one entry per stack, and lines that its user should read."""

    published: tuple[Published, ...]
    notes: tuple[str, ...]


def plan(stack: Stack | Source) -> StackPlan:
    """The plan of a stack, given as such or as its file. Raises BoundarycError."""
    from boundaryc.emit.diagnose import planned

    if isinstance(stack, Stack):
        return planned(stack, {})
    path = Path(stack)
    loaded = load(path)
    return planned(loaded, {loaded.source: path.read_text(encoding="utf-8")})


def compile(  # noqa: A001 - our verb
    *sources: Source, out: Source = OUT
) -> Compiled:
    """Compiles stack files and publishes each under ``out``/<stack>.

    Everything is compiled before anything is written. Raises BoundarycError with what is wrong in
    the files, PublishError if the output cannot be written as asked.
    """
    from boundaryc.emit.freshness import published
    from boundaryc.emit.publish import publish, retire

    folder = Path(out)
    builds = _builds(sources, folder)
    made = {build.output.stack for build in builds}
    files = {build.source.resolve() for build in builds}
    done = [publish(build.output, folder) for build in builds]
    for old, source in published(folder):
        if old.name not in made and source is not None and source.resolve() in files:
            done.append(retire(folder, old.name))
    kept = [
        f"{one.stack}/{name} is no longer generated and was edited: it stays"
        for one in done
        for name in one.kept
    ]
    return Compiled(tuple(done), (*(note for build in builds for note in build.notes), *kept))


def check(*sources: Source, out: Source = OUT) -> Report:
    """Compares what stack files compile to with what is published under ``out``; writes nothing.

    Raises BoundarycError with what is wrong in the files.
    """
    from boundaryc.emit.freshness import compare

    folder = Path(out)
    return compare(_builds(sources, folder), folder)


def sources(out: Source = OUT) -> list[Path]:
    """The stack files to use where none are named.

    Those from which the output folder was made; else ``stack.yaml`` in the current directory.
    """
    from boundaryc.emit.freshness import published

    known = [path for _, path in published(Path(out)) if path is not None and path.exists()]
    if known:
        return known
    return [path for path in (Path("stack.yaml"),) if path.exists()]


def _builds(sources: Iterable[Source], out: Path) -> list[Build]:
    from boundaryc.emit.build import build
    from boundaryc.emit.publish import PublishError

    builds = [build(Path(source), out) for source in dict.fromkeys(map(Path, sources))]
    seen: dict[str, Path] = {}
    for one in builds:
        other = seen.setdefault(one.output.stack, one.source)
        if other != one.source:
            raise PublishError(
                f"{other} and {one.source} are both the stack `{one.output.stack}`; rename one"
            )
    return builds
