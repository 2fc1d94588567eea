"""Layers as runs, so that a deep stack is written down as briefly as a shallow one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """A sequence of names that is repeated ``count`` times."""

    names: tuple[str, ...]
    count: int


def runs(names: Sequence[str], longest: int = 64) -> tuple[Run, ...]:
    """The names as runs whose periods have at most ``longest`` names.

    At each place the period that covers the most is taken, the shortest of equals.

    >>> runs("abbb"), runs("xababab")
    ((Run(names=('a',), count=1), Run(names=('b',), count=3)), (Run(names=('x',), count=1), \
Run(names=('a', 'b'), count=3)))
    """
    found: list[Run] = []
    at = 0
    while at < len(names):
        best = Run((names[at],), _repeats(names, at, 1))
        for period in range(2, min(longest, (len(names) - at) // 2) + 1):
            count = _repeats(names, at, period)
            if count > 1 and count * period > best.count * len(best.names):
                best = Run(tuple(names[at : at + period]), count)
        found.append(best)
        at += best.count * len(best.names)
    return tuple(found)


def _repeats(names: Sequence[str], at: int, period: int) -> int:
    """How often the ``period`` names at ``at`` follow each other."""
    end = at
    while end + period < len(names) and names[end + period] == names[at + (end - at) % period]:
        end += 1
    return (end - at) // period + 1
