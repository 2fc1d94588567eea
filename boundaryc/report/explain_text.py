"""`boundaryc explain STACK` for people."""

from __future__ import annotations

from collections.abc import Iterator

from boundaryc.report.explained import Crossing, Explained, Total, Way
from boundaryc.report.text import number, table, wrapped


def lines(found: Explained, width: int) -> Iterator[str]:
    """The answer, line by line; ``width`` is that of the terminal, 0 for none."""
    head = (
        f"{found.stack}, {found.what}: {found.topology} ({found.ranks} ranks), {found.variant} "
        f"batches, policy {found.policy}"
    )
    yield from wrapped(head, width)
    yield from _batch(found, width)
    yield ""
    for total in found.totals:
        yield from _total(total, width)
    if found.left:
        text = f"{found.left} follows behind the layer and counts in the next one."
        yield from wrapped(text, width)
    for crossing in found.crossings:
        yield ""
        yield from _crossing(crossing, width)


def _batch(found: Explained, width: int) -> Iterator[str]:
    batch = found.batch
    if batch is not None:
        tokens = ", ".join(map(str, batch.tokens))
        even = ", ".join(batch.even) or "no axis"
        text = (
            f"batch: {tokens} tokens by group, {batch.padding}, {batch.mode}: {number(batch.rows)} "
            f"rows with pads, cut evenly over {even}"
        )
        yield from wrapped(text, width)
    if found.few_rows is not None:
        text = f"few rows: up to {number(found.few_rows)} of all groups together, pads included"
        yield from wrapped(text, width)


def _total(total: Total, width: int) -> Iterator[str]:
    name = "collective" if total.collectives == 1 else "collectives"
    text = f"{total.collectives} {name}, {number(total.bytes_per_token)} bytes a token and rank"
    if total.bytes_per_rank is not None:
        text += f", {number(total.bytes_per_rank)} bytes a rank in this batch"
    text += f": {', '.join(total.sent)}" if total.sent else ""
    yield from wrapped(f"{total.when}: {text}" if total.when else text, width)


def _crossing(crossing: Crossing, width: int) -> Iterator[str]:
    yield from wrapped(f"{crossing.boundary}  ({crossing.place})", width)
    yield from wrapped(crossing.words, width, "  ")
    for way in crossing.ways:
        yield from _way(way, width)
    yield "  to change it:"
    rows = [
        (
            f"{one.file}:{one.line}" if one.line else f"{one.file} (not written)",
            one.path,
            one.effect,
        )
        for one in crossing.levers
    ]
    for where, path, effect in rows:
        yield from wrapped(f"{where}  {path}: {effect}", width, "    ")
    for one in {lever.line: lever for lever in crossing.levers if lever.line}.values():
        yield from wrapped(f"{one.line} | {one.text}", width, "      ")


def _way(way: Way, width: int) -> Iterator[str]:
    if way.when:
        yield from wrapped(f"{way.when}:", width, "  ")
    axes = [
        (
            one.axis,
            str(one.parts),
            one.before,
            one.after,
            f"{one.residual_before} -> {one.residual_after}",
        )
        for one in way.axes
    ]
    if axes:
        yield from table(("axis", "parts", "before", "after", "residual"), axes, width, "    ")
        yield ""
    works = [
        (
            one.operation,
            f"{one.group} ({one.ranks})" if one.group else "",
            number(one.bytes_per_token) if one.collectives else "",
            one.sizes,
            one.kernel,
        )
        for one in way.works
    ]
    head = ("operation", "group (ranks)", "bytes/token", "sizes", "kernel")
    yield from table(head, works, width, "    ")
    yield from wrapped(f"why: {way.why}", width, "    ")
    if way.next_best is not None:
        other = way.next_best
        sent = " + ".join(other.operations) or "nothing"
        text = (
            f"next best: {sent} ({other.collectives} collectives, {number(other.bytes_per_token)} "
            f"bytes a token): {other.verdict}"
        )
        yield from wrapped(text, width, "    ")
    if way.no_scatter:
        yield from wrapped(f"reduce-scatter: {way.no_scatter}", width, "    ")
