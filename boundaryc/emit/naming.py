"""Telling names for functions that share one: the fewest traits that tell them apart.

Every draft of a function has traits in a fixed order (where its output goes, how its sum ends,
after which stage it runs ...). The first draft keeps the plain name; the others add the words in
which they differ from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Traits = Mapping[str, str]
"""What distinguishes one draft, by kind of trait; values are words of an identifier."""


def suffixes(drafts: Sequence[Traits]) -> tuple[str, ...]:
    """One suffix for each draft, all different, the first one empty.

    All drafts have the same kinds of traits, the most telling first. Drafts with equal traits are
    numbered, which only happens if they differ in nothing that has a name.

    >>> suffixes([{"how": "ar", "to": "a"}, {"how": "rs", "to": "a"}, {"how": "ar", "to": "b"}])
    ('', '_rs', '_b')
    """
    if len(drafts) == 1:
        return ("",)
    kinds = _telling(drafts)
    found: list[str] = []
    for draft in drafts:
        words = [draft[kind] for kind in kinds if draft[kind] != drafts[0][kind]]
        suffix = "".join(f"_{word}" for word in words)
        number, unique = 2, suffix
        while unique in found:
            unique, number = f"{suffix}_{number}", number + 1
        found.append(unique)
    return tuple(found)


def _telling(drafts: Sequence[Traits]) -> tuple[str, ...]:
    """Kinds of traits that tell the drafts apart, none of which could be left out."""
    kinds: list[str] = []
    apart = 1
    for kind in drafts[0]:
        more = _apart(drafts, [*kinds, kind])
        if more > apart:
            kinds.append(kind)
            apart = more
    for kind in reversed(tuple(kinds)):
        fewer = [other for other in kinds if other != kind]
        if _apart(drafts, fewer) == apart:
            kinds = fewer
    return tuple(kinds)


def _apart(drafts: Sequence[Traits], kinds: Sequence[str]) -> int:
    """How many drafts these kinds of traits tell apart."""
    return len({tuple(draft[kind] for kind in kinds) for draft in drafts})
