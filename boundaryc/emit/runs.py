"""Layers as runs, so that a deep stack is written down as briefly as a shallow one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache


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
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    known = tuple(numbers)
    return tuple(
        Run(tuple(known[number] for number in period), count)
        for period, count in _periods(tuple(numbers[name] for name in names), longest)
    )


@cache
def _periods(numbers: tuple[int, ...], longest: int) -> tuple[tuple[tuple[int, ...], int], ...]:
    """The same of numbers: most topologies and policies of a stack share one pattern."""
    found: list[tuple[tuple[int, ...], int]] = []
    at = 0
    while at < len(numbers):
        best, times = 1, _repeats(numbers, at, 1)
        for period in range(2, min(longest, (len(numbers) - at) // 2) + 1):
            count = _repeats(numbers, at, period)
            if count > 1 and count * period > times * best:
                best, times = period, count
        found.append((numbers[at : at + best], times))
        at += best * times
    return tuple(found)


def _repeats(numbers: Sequence[int], at: int, period: int) -> int:
    """How often the ``period`` numbers at ``at`` follow each other."""
    end = at
    while (
        end + period < len(numbers) and numbers[end + period] == numbers[at + (end - at) % period]
    ):
        end += 1
    return (end - at) // period + 1


def consecutive(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Ascending numbers as ranges that include both ends.

    >>> consecutive((0, 1, 2, 5))
    ((0, 2), (5, 5))
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)
