"""Reduction policies: which optional scatters of an FFN's output a plan may use.

A policy removes candidates and adds none. It acts on the sum of an exit-scoped FFN only; sums of
attention and sums inside the experts are not its business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scatter:
    """Which reduce-scatters a sum may end in.

    ``uneven`` allows axes that the batch cuts unevenly. ``by_size`` is the variable-size form on
    every batch; it is tried before the fixed-size one wherever both are allowed.
    """

    even: bool
    uneven: bool
    by_size: bool


UNRESTRICTED = Scatter(even=True, uneven=True, by_size=False)

POLICIES: Mapping[str, Scatter] = {
    "ar": Scatter(even=False, uneven=False, by_size=False),
    "rs": Scatter(even=True, uneven=False, by_size=False),
    "rsv": Scatter(even=True, uneven=True, by_size=True),
    "rs+rsv": Scatter(even=True, uneven=True, by_size=True),
}

_NONE, _EQUAL = POLICIES["ar"], POLICIES["rs"]
_EQUAL_SIZES = {"ar": _NONE, "rs": _EQUAL, "rsv": _NONE, "rs+rsv": _EQUAL}


def permitted(policy: str | None, *, variable: bool) -> Scatter:
    """The scatters that ``policy`` permits; None is a sum that obeys no policy.

    Without ``variable`` groups scatter equal sizes only, which leaves nothing of ``rsv``.
    """
    if variable:
        return UNRESTRICTED if policy is None else POLICIES[policy]
    return _EQUAL if policy is None else _EQUAL_SIZES[policy]
