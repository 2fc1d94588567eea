"""Reduction policies: which optional scatters of an FFN's output a plan may use.

A policy removes candidates and adds none. It acts on the sum of an exit-scoped FFN only; sums of
attention and sums inside the experts are not its business.
"""

from __future__ import annotations

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

POLICIES = {
    "ar": Scatter(even=False, uneven=False, by_size=False),
    "rs": Scatter(even=True, uneven=False, by_size=False),
    "rsv": Scatter(even=True, uneven=True, by_size=True),
    "rs+rsv": Scatter(even=True, uneven=True, by_size=True),
}
