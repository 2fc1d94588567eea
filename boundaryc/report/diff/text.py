"""`boundaryc diff` for people."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from boundaryc.report.diff.model import (
    BoundaryChange,
    Change,
    Differences,
    PayloadChange,
    Place,
    Ran,
    StackChange,
)
from boundaryc.report.text import number, wrapped


def lines(found: Differences, width: int, *, breaking: bool = False) -> Iterator[str]:
    """What differs in meaning, line by line; ``width`` is that of the terminal, 0 for none.

    ``breaking``: only what breaks callers.
    """
    for stack in found.stacks:
        if not breaking:
            yield from _stack(stack, width)
            yield ""
            continue
        for what, why in stack.breaking():
            yield from wrapped(f"{stack.stack}: {what}: breaks callers: {why}", width)
    for one in found.skipped:
        yield from wrapped(f"not compared: {one.source} is no valid stack file: {one.why}", width)
    if not breaking:
        yield from wrapped(_summary(found), width)


def _summary(found: Differences) -> str:
    differ, all_ = len(found.stacks), len(found.compared)
    if not differ:
        return f"{_count(all_, 'stack')} compared: no difference in meaning"
    breaks = _count(found.breaking, "change")
    return (
        f"{_count(all_, 'stack')} compared: {differ} differ{'s' * (differ == 1)}; "
        f"{breaks} break{'s' * (found.breaking == 1)} callers"
    )


def _count(number_: int, what: str) -> str:
    return f"{number_} {what}{'s' * (number_ != 1)}"


def _stack(stack: StackChange, width: int) -> Iterator[str]:
    yield stack.stack
    for one in stack.changes:
        yield from _change(one, width)
    for name, several in groupby(stack.boundaries, lambda one: one.boundary):
        yield from wrapped(f"boundary {name}", width, "  ")
        for boundary in several:
            yield from _boundary(boundary, width)
    for name, cuts in groupby(stack.payloads, lambda one: one.boundary):
        yield from wrapped(f"payload of a cut at {name}", width, "  ")
        for payload in cuts:
            yield from _payload(payload, width)
        yield from wrapped(f"breaks callers: {payload.breaks}", width, "    ")
    if stack.files:
        added = sum(one.added for one in stack.files)
        removed = sum(one.removed for one in stack.files)
        text = f"generated code: {_count(len(stack.files), 'module')}, +{added} -{removed} lines"
        yield from wrapped(text, width, "  ")


def _change(one: Change, width: int) -> Iterator[str]:
    if one.kind == "renamed":
        yield from wrapped(f"renamed {one.of}: {one.before} -> {one.after}", width, "  ")
    elif one.kind == "changed" and one.of == "entry point":
        yield from wrapped(one.what, width, "  ")
        yield from wrapped(f"before: {one.before}", width, "    ")
        yield from wrapped(f"after: {one.after}", width, "    ")
    elif one.kind == "changed":
        said = f"{one.before or 'nothing'} -> {one.after or 'nothing'}"
        yield from wrapped(f"{one.what}: {said}", width, "  ")
    else:
        said = one.before or one.after
        yield from wrapped(f"{one.what}{': ' if said else ''}{said}", width, "  ")
    if one.breaks:
        yield from wrapped(f"breaks callers: {one.breaks}", width, "    ")


def _boundary(one: BoundaryChange, width: int) -> Iterator[str]:
    if one.before is not None and one.before == one.after:
        yield from wrapped(f"runs: {_steps(one.before)}", width, "    ")
    else:
        yield from wrapped(f"before: {_steps(one.before)}", width, "    ")
        yield from wrapped(f"after: {_steps(one.after)}", width, "    ")
    yield from _places(one.places, width)


def _steps(ran: Ran | None) -> str:
    if ran is None:
        return "no such boundary"
    return ", ".join(ran.steps) or "nothing"


def _payload(one: PayloadChange, width: int) -> Iterator[str]:
    yield from wrapped(f"before: {', '.join(one.before)}", width, "    ")
    yield from wrapped(f"after: {', '.join(one.after)}", width, "    ")
    yield from _places(one.places, width)


def _places(places: tuple[Place, ...], width: int) -> Iterator[str]:
    """Where that is so; topologies that differ in bytes alone in one sentence."""
    groups: dict[tuple[object, ...], list[Place]] = {}
    for place in places:
        groups.setdefault((place.variant, place.policies, place.when), []).append(place)
    for some in groups.values():
        first = some[0]
        names = ", ".join(first.policies)
        policies = f"polic{'ies' if len(first.policies) > 1 else 'y'} {names}" if names else ""
        head = ", ".join(filter(None, [first.variant, policies, first.when]))
        sized = any((one.bytes_before, one.bytes_after) != (None, None) for one in some)
        tail = "; bytes a token and rank" if sized else ""
        text = ", ".join(one.topology + _bytes(one) for one in some)
        yield from wrapped(f"{head}: {text}{tail}", width, "      ")


def _bytes(place: Place) -> str:
    both = [one for one in (place.bytes_before, place.bytes_after) if one is not None]
    words = dict.fromkeys(number(one) for one in both)
    return f" {' -> '.join(words)}" if words else ""
