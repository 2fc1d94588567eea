"""The verbs of boundaryc as Python functions; the command line is a thin user of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from boundaryc.emit.origin import OUT
from boundaryc.language import BoundarycError, Stack, load

if TYPE_CHECKING:
    from boundaryc.emit.build import Build
    from boundaryc.emit.freshness import Recognised, Report
    from boundaryc.emit.publish import Published
    from boundaryc.emit.reuse import Library
    from boundaryc.plan.result import StackPlan

Source = str | PathLike[str]

Watch = Callable[[int, int], None]
"""Is told how many stacks are done, and of how many, whenever that changes."""

__all__ = ["Compiled", "Source", "Watch", "check", "compile", "load", "plan", "sources"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a compilation published, one entry per stack, and lines that its user should read.

    ``warnings`` name the files whose changes by hand are gone, or would be.
    """

    published: tuple[Published, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def plan(stack: Stack | Source, *, draft: str | None = None) -> StackPlan:
    """The plan of a stack, given as such or as its file, or of its draft called ``draft``.

    Raises BoundarycError, and ValueError where there is no such draft.
    """
    from boundaryc.emit.diagnose import planned

    texts: dict[str, str] = {}
    if not isinstance(stack, Stack):
        path = Path(stack)
        stack = load(path)
        texts = {stack.source: path.read_text(encoding="utf-8")}
    return planned(stack if draft is None else _draft(stack, draft), texts)


def _draft(stack: Stack, name: str) -> Stack:
    known = {one.name.removeprefix(f"{stack.name}_"): one for one in stack.drafts}
    if name not in known:
        raise ValueError(
            f"{stack.name} has no draft {name!r}; there is {', '.join(known) or 'none'}"
        )
    return known[name]


def compile(  # noqa: A001 - our verb
    *sources: Source,
    out: Source = OUT,
    jobs: int = 1,
    dry_run: bool = False,
    replace: bool = False,
    full: bool = False,
    vendor: bool | None = None,
    watch: Watch | None = None,
) -> Compiled:
    """Compiles stack files and publishes each stack under ``out``/<stack>, drafts of it beside it.

    Everything is compiled before anything is written, in ``jobs`` processes if there is more than
    one file; with ``dry_run`` the result says what would be written. What another file that is
    still there was compiled to is only replaced with ``replace``. A stack is compiled only if its
    meaning, the compiler or a published file is not what its manifest records; with ``full``,
    always. With ``vendor`` each stack gets a copy of the runtime, and needs nothing of ours where
    it runs; None leaves that as it is published. Raises BoundarycError with what is wrong in all of
    the files, PublishError if the output cannot be written as asked.
    """
    from boundaryc.emit.publish import preview, publish_all
    from boundaryc.plan.collector import uncollected

    folder = Path(out)
    with uncollected():  # nor between two stacks: there is much that is remembered
        made = _made(_Maker(folder, full, vendor), sources, jobs, watch)
    builds = _rendered(made)
    if not replace:
        _claim(builds, folder)
    put = preview if dry_run else publish_all
    changed = put([build.output for build in builds], folder, _renamed(made, folder))
    done = _in_order(made, changed)
    kept = [
        f"{one.stack}/{name} is not generated any more; it stays because it was edited or is in "
        "no manifest"
        for one in done
        for name in one.kept
    ]
    replaced = [
        f"{(folder / one.stack / name).as_posix()} was edited by hand; what was compiled takes its "
        "place"
        for one in done
        for name in one.edited
    ]
    notes = (*(note for one in made for note in one.notes), *kept)
    return Compiled(tuple(done), notes, tuple(replaced))


def _claim(builds: Sequence[Build], out: Path) -> None:
    """Refuses to replace what another file, which is still there, was compiled to."""
    from boundaryc.emit.freshness import published
    from boundaryc.emit.publish import PublishError

    if not builds:
        return
    owners = {folder.name: path for folder, path in published(out) if path is not None}
    for build in builds:
        owner = owners.get(build.name)
        if owner is None or not owner.exists() or owner.samefile(build.source):
            continue
        raise PublishError(
            f"{out / build.name} was compiled from {owner}, which is still there; rename the stack "
            f"of {build.source}, give another --out, or --replace it"
        )


def check(
    *sources: Source,
    out: Source = OUT,
    full: bool = False,
    staged: bool = False,
    jobs: int = 1,
    watch: Watch | None = None,
) -> Report:
    """Compares what stack files compile to with what is published under ``out``; writes nothing.

    A stack is rendered only if its meaning, the compiler or a published file is not what its
    manifest records; with ``full``, always. With ``staged``, what git's index has otherwise, or not
    at all, is a finding too. Raises BoundarycError with what is wrong in all of the files, and
    PublishError where git cannot be asked.
    """
    from boundaryc.emit.freshness import compare
    from boundaryc.emit.staged import unstaged

    folder = Path(out)
    made = _made(_Maker(folder, full), sources, jobs, watch)
    report = compare(made, folder)
    return unstaged(report, made, folder) if staged else report


def sources(out: Source = OUT) -> list[Path]:
    """The stack files to use where none are named.

    Those from which the output folder was made; else ``stack.yaml`` in the current directory.
    """
    from boundaryc.emit.freshness import published

    known = [path for _, path in published(Path(out)) if path is not None and path.exists()]
    if known:
        return list(dict.fromkeys(known))  # drafts come from the file of their stack
    return [path for path in (Path("stack.yaml"),) if path.exists()]


Made = tuple["Build | Recognised", ...] | BoundarycError
"""What became of one source: an entry for each of its stacks."""


@dataclass(slots=True)
class _Maker:
    """Builds sources one after another, without ``full`` only those that are not recognised.

    What has been drafted for one of them serves the next.
    """

    out: Path
    full: bool
    vendor: bool | None = None
    library: Library | None = None

    def __call__(self, source: Path) -> Made:
        """What becomes of a source."""
        if self.full:
            return self._built(source, self.vendor)
        from boundaryc.emit.freshness import recognise
        from boundaryc.emit.manifest import keeps_runtime

        try:
            stacks = load(source).family
        except BoundarycError as problem:
            return problem
        own = keeps_runtime(self.out / stacks[0].name) if self.vendor is None else self.vendor
        found = (recognise(stack, source, self.out, vendor=own) for stack in stacks)
        known = [one for one in found if one is not None]
        return tuple(known) if len(known) == len(stacks) else self._built(source, own)

    def _built(self, source: Path, vendor: bool | None) -> Made:
        from boundaryc.emit.build import build, to_publish
        from boundaryc.emit.reuse import Library

        self.library = self.library or Library()
        try:
            return to_publish(build(source, self.out, self.library), self.out, vendor)
        except BoundarycError as problem:
            return problem


def _made(
    make: Callable[[Path], Made],
    sources: Iterable[Source],
    jobs: int,
    watch: Watch | None,
) -> list[Build | Recognised]:
    """One result for each stack of the sources, in order; raises the errors of all of them."""
    from boundaryc.emit.publish import PublishError

    paths = list(dict.fromkeys(map(Path, sources)))
    made: list[Build | Recognised] = []
    errors: list[BoundarycError] = []
    for count, found in enumerate(_mapped(make, paths, jobs), 1):
        if isinstance(found, BoundarycError):
            errors.append(found)
        else:
            made += found
        if watch is not None:
            watch(count, len(paths))
    if errors:
        texts = {name: text for error in errors for name, text in error.sources.items()}
        raise BoundarycError([item for error in errors for item in error.diagnostics], texts)
    seen: dict[str, Path] = {}
    for one in made:
        other = seen.setdefault(one.name, one.source)
        if other != one.source:
            raise PublishError(
                f"{other} and {one.source} are both the stack `{one.name}`; rename one"
            )
    return made


def _mapped(make: Callable[[Path], Made], paths: list[Path], jobs: int) -> Iterator[Made]:
    if jobs <= 1 or len(paths) <= 1:
        yield from map(make, paths)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")  # the same on every system
    with ProcessPoolExecutor(min(jobs, len(paths)), mp_context=context) as pool:
        yield from pool.map(partial(_sent, make), paths)


def _sent(make: Callable[[Path], Made], path: Path) -> Made:
    """What ``make`` gives, in a form that another process can be sent."""
    made = make(path)
    if isinstance(made, BoundarycError):
        return made
    return tuple(map(_without_proxies, made))


def _without_proxies(one: Build | Recognised) -> Build | Recognised:
    from boundaryc.emit.build import Build

    if not isinstance(one, Build):
        return one
    drafts = tuple(replace(draft, spans=dict(draft.spans)) for draft in one.stack.drafts)
    stack = replace(one.stack, spans=dict(one.stack.spans), drafts=drafts)
    return replace(one, stack=stack)


def _rendered(made: Iterable[Build | Recognised]) -> list[Build]:
    from boundaryc.emit.freshness import Recognised

    return [one for one in made if not isinstance(one, Recognised)]


def _in_order(made: Iterable[Build | Recognised], changed: Iterable[Published]) -> list[Published]:
    """What became of each stack, and then of those that are not made any more."""
    from boundaryc.emit.freshness import Recognised
    from boundaryc.emit.publish import Published

    found = {one.stack: one for one in changed}
    known: list[Published] = []
    for one in made:
        if isinstance(one, Recognised):
            known.append(Published(one.name, (), one.names, (), ()))
        else:
            known.append(found.pop(one.name))
    return [*known, *found.values()]


def _renamed(made: Iterable[Build | Recognised], out: Path) -> list[str]:
    """Published stacks that their sources do not make any more."""
    from boundaryc.emit.freshness import published

    names = {one.name for one in made}
    files = {one.source.resolve() for one in made}
    return [
        folder.name
        for folder, source in published(out)
        if folder.name not in names and source is not None and source.resolve() in files
    ]
