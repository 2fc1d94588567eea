"""What docstrings of generated functions say: a sentence, a contract, and what is sent."""

from __future__ import annotations

from collections.abc import Sequence

from boundaryc.emit.calls import Script
from boundaryc.emit.how import Collective
from boundaryc.emit.layout_text import wrapped
from boundaryc.plan.state import NO_RESIDUAL, Phase, State
from boundaryc.plan.transitions import Goal
from boundaryc.topology import Mesh

SUMMARY = 92
"""How long the first line of a docstring may be, beside its indentation and quotes."""
NEXT = "{next}"
"""Stands in a docstring for what comes next; functions that differ only there are one."""


def summary(title: str, script: Script) -> tuple[str, ...]:
    """The first line of a docstring and an empty one; see `_told` for a long list of steps."""
    return (f"{title}: {', '.join(script.summary)}.", "")


def contract(mesh: Mesh, start: State, goal: Goal) -> list[str]:
    """The lines `in` and `out` of a docstring, in columns."""
    owed = f", owes {mesh.label(start.owes)}" if start.owes else ""
    joined = " and the residual is in it" if start.joined else ""
    came = f"{rows(mesh, start.rows, start.by_token)}{owed}{joined}"
    if start.phase is Phase.STREAM:
        came = "the written residual"
    goes = rows(mesh, goal.rows, goal.by_token)
    if goal.phase is Phase.STREAM:
        goes = "the written residual"
    width = max(len(came), len(goes)) + 4
    held = "no residual yet"
    if start.residual != NO_RESIDUAL:
        held = f"residual {rows(mesh, start.residual)}"
    left = f"residual {rows(mesh, goal.residual)}"
    return [f"in   {came:<{width}}{held}", f"out  {goes:<{width}}{left}"]


def rows(mesh: Mesh, mask: int, by_token: bool = False) -> str:
    """Which rows, in the words of a contract."""
    return f"rows {mesh.words(mask)}{' in token order' * by_token}"


def collectives(script: Script) -> list[str]:
    """What a function sends, in order, each with its reason."""
    return sent(script.collectives)


def sent(found: Sequence[Collective]) -> list[str]:
    """The same of its collectives."""
    if not found:
        return ["collectives: none"]
    lines = ["collectives:"]
    width = max(len(collective.text) for collective in found)
    for collective in found:
        first = f"  {collective.text:<{width}}  "
        lines.extend(wrapped(first, collective.why, indent=4))
    return lines


def lying(mesh: Mesh, mask: int) -> str:
    """Which rows, in a sentence."""
    return "all rows" if not mask else f"rows {mesh.words(mask)}"


def told(line: str, following: str) -> tuple[str, ...]:
    """The first line of a docstring; what comes after its colon moves below it where it is long."""
    whole = line.replace(NEXT, following)
    if len(whole) <= SUMMARY:
        return (whole,)
    title, _, what = whole.removesuffix(".").partition(": ")
    head, to, target = title.rpartition(" to ")
    if to and (not what or len(f"{title}.") > SUMMARY):
        rest = f"To {target}: {what}." if what else f"To {target}."
        return (f"{head.rstrip(',')}.", "", *wrapped("", rest, indent=4))
    below = wrapped("", f"{what[:1].upper()}{what[1:]}.", indent=4) if what else ()
    return (f"{title}.", *([""] if below else []), *below)
