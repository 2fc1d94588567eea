"""What `boundaryc diff` found, as GitHub shows it beside the lines of the stack files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from boundaryc.cli.output import MAX_ANNOTATIONS, annotation

if TYPE_CHECKING:
    from boundaryc.language import Stack
    from boundaryc.report.deployment import Source
    from boundaryc.report.diff.model import Change, Differences, StackChange


def annotated(found: Differences, new: Mapping[str, Source], level: str) -> Iterator[str]:
    """Changes that break callers at ``level``, then the others as notices.

    Each at its line of the ``new`` side, where it is still there. GitHub shows ten of a level.
    """
    for left_out in islice(found.skipped, MAX_ANNOTATIONS):
        text = f"{left_out.source} is not compared: {left_out.why}"
        yield annotation("notice", "boundaryc diff", text)
    for shown, kind in ((_breaking, level), (_others, "notice")):
        every = (
            annotation(kind, f"boundaryc diff: {one.stack}", text, *_place(new, one.stack, path))
            for one in found.stacks
            for text, path in shown(one)
        )
        yield from islice(every, MAX_ANNOTATIONS)


def _breaking(stack: StackChange) -> Iterator[tuple[str, str]]:
    """What breaks callers, in words, and its path in the file."""
    for one in stack.changes:
        if one.breaks:
            yield f"{one.what}: {one.breaks}", _path(one)
    for cut, why in {each.boundary: each.breaks for each in stack.payloads}.items():
        yield f"changed payload of a cut at {cut}: {why}", "pipeline"


def _others(stack: StackChange) -> Iterator[tuple[str, str]]:
    for one in stack.changes:
        if not one.breaks:
            said = f"{one.before or 'nothing'} -> {one.after or 'nothing'}"
            yield f"{one.what}: {said}", _path(one)
    edges = list(dict.fromkeys(one.boundary for one in stack.boundaries))
    if edges:
        yield f"other operations run at {'; '.join(edges)}", "stages"


def _path(change: Change) -> str:
    """Where a file says what has changed."""
    from boundaryc.report.diff.facts import ITEMS

    if change.of in ITEMS:
        return f"{ITEMS[change.of]}.{change.name}"
    return {"setting": change.name, "variant": "variants"}.get(change.of, change.of)


def _place(new: Mapping[str, Source], name: str, path: str) -> tuple[str, int]:
    """The file and the line; no file where the stack is gone."""
    if name not in new:
        return "", 0
    stack: Stack = new[name].stack
    span = stack.span(path) or stack.span("stack")
    return stack.source.partition(":")[2] or stack.source, span.start.line if span else 0
