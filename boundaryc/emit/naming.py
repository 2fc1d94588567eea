"""Telling names for functions that share one: the fewest traits that tell them apart.

Every draft of a function has traits in a fixed order (how its sum ends, where its output goes,
after which stage it runs ...). The draft that most batches use keeps the plain name; the others
add the words in which they differ from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

Traits = Mapping[str, str]
"""What distinguishes one draft, by kind of trait; values are words of an identifier or empty."""


def suffixes(drafts: Sequence[Traits]) -> tuple[str, ...]:
    """One suffix for each draft, all different, the first one empty.

    All drafts have the same kinds of traits, the most telling first. Drafts with equal traits are
    numbered, which only happens if two functions differ in nothing that has a name.

    >>> suffixes([{"how": "ar", "to": ""}, {"how": "rs", "to": ""}, {"how": "ar", "to": "to_x"}])
    ('', '_rs', '_to_x')
    """
    kinds = _telling(drafts)
    found: list[str] = []
    for draft in drafts:
        words = [draft[kind] for kind in kinds if draft[kind] != drafts[0][kind]]
        suffix = "".join(f"_{word or 'otherwise'}" for word in words)
        number, unique = 2, suffix
        while unique in found:
            unique, number = f"{suffix}_{number}", number + 1
        found.append(unique)
    return tuple(found)


def _telling(drafts: Sequence[Traits]) -> tuple[str, ...]:
    """The smallest set of kinds that tells all drafts apart; all kinds if none does."""
    kinds = tuple(drafts[0])
    for size in range(len(kinds) + 1):
        for some in combinations(kinds, size):
            if len({tuple(draft[kind] for kind in some) for draft in drafts}) == len(drafts):
                return some
    return kinds
