"""Compares two versions: the meaning of every stack first, then the text of its generated code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from boundaryc.emit.diagnose import planned
from boundaryc.language import BoundarycError, Stack
from boundaryc.plan.collector import uncollected
from boundaryc.plan.result import StackPlan
from boundaryc.report.deployment import Source
from boundaryc.report.diff import breaks
from boundaryc.report.diff.code import file_changes
from boundaryc.report.diff.declared import (
    declared_changes,
    few_rows_changes,
    renames,
    variant_changes,
    with_names,
)
from boundaryc.report.diff.entry_points import entry_point_changes
from boundaryc.report.diff.model import (
    BoundaryChange,
    Change,
    Differences,
    PayloadChange,
    StackChange,
)
from boundaryc.report.diff.payloads import payload_changes
from boundaryc.report.diff.ran import boundary_changes
from boundaryc.report.diff.sources import Version, skipped


def differences(old: Version, new: Version, *, code: bool, skips: bool = False) -> Differences:
    """What differs; with ``code`` the text of generated modules too.

    ``skips``: stacks without a plan in ``old`` are left out and told.

    Stacks are the same by name; where both sides are one file they are so whatever they are called.
    Raises BoundarycError where a stack has no plan.
    """
    with uncollected():
        left_out = list(old.wrong.values())
        found, names = [], []
        for was, now in _pairs(old, new):
            differ = was is None or now is None or _apart(was) != _apart(now)
            try:
                before = _planned(was) if differ and was is not None else None
            except BoundarycError as problem:
                if not skips:
                    raise
                left_out.append(skipped(was.stack.source if was else "", problem))
                continue
            one = now or was
            assert one is not None
            names.append(one.stack.name)
            if differ:
                found.append(_stack(was, before, now, code=code))
    breaking = sum(len(list(one.breaking())) for one in found)
    return Differences(old.label, new.label, tuple(names), breaking, tuple(found), tuple(left_out))


def _apart(source: Source) -> Stack:
    """A stack without its drafts, which are compared as stacks of their own."""
    return replace(source.stack, drafts=())


def _pairs(old: Version, new: Version) -> Iterator[tuple[Source | None, Source | None]]:
    """The stacks of both sides, in the order of the new one, then those that are gone."""
    as_old: dict[str, str] = {}
    if len(old.main) == len(new.main) == 1 and old.main != new.main:
        before, after = old.main[0], new.main[0]
        as_old = {name: before + name.removeprefix(after) for name in new.stacks}
    known = set()
    for name, source in new.stacks.items():
        known.add(as_old.get(name, name))
        yield old.stacks.get(as_old.get(name, name)), source
    for name, source in old.stacks.items():
        if name not in known:
            yield source, None


def _stack(
    was: Source | None, before: StackPlan | None, now: Source | None, *, code: bool
) -> StackChange:
    """How a stack differs, whose old version ``was`` has the plan ``before``."""
    after = None if now is None else _planned(now)
    changes = tuple(_changes(before, after))
    boundaries: tuple[BoundaryChange, ...] = ()
    payloads: tuple[PayloadChange, ...] = ()
    if was is not None and before is not None and after is not None:
        names = renames(before.stack, after.stack)
        as_now = (
            before if not names else _planned(Source(with_names(before.stack, names), was.text))
        )
        boundaries, payloads = boundary_changes(as_now, after), payload_changes(as_now, after)
    plan = after or before
    assert plan is not None
    return StackChange(
        stack=plan.stack.name,
        before=before.stack.name if before else "",
        after=after.stack.name if after else "",
        changes=changes,
        boundaries=boundaries,
        payloads=payloads,
        files=tuple(file_changes(before, after)) if code else (),
    )


def _planned(source: Source) -> StackPlan:
    return planned(_apart(source), {source.stack.source: source.text})


def _changes(before: StackPlan | None, after: StackPlan | None) -> Iterator[Change]:
    """What differs in declarations, variants and entry points."""
    if before is None or after is None:
        assert after or before
        one = after or before
        assert one is not None
        name = one.stack.name
        topologies = ", ".join(topology.spec.name for topology in one.topologies)
        if before is None:
            yield Change("added", "stack", name, "", f"on {topologies}")
        else:
            gone = breaks.removed("stack", name)
            yield Change("removed", "stack", name, f"on {topologies}", "", gone)
        return
    names = renames(before.stack, after.stack)
    for old, new in names.items():
        yield Change("renamed", "stage", new, old, new, breaks.renamed(old, new))
    yield from declared_changes(with_names(before.stack, names), after.stack)
    yield from few_rows_changes(before, after)
    yield from variant_changes(before, after)
    yield from entry_point_changes(before, after)
