"""How exact a sum must be that travelled quantised, from the definition of its formats.

An int8 has 254 steps between the largest value of its block of 128 columns and the same below
zero, so that a number is off by at most half of one. An e4m3fn has 3 bits of mantissa: half of the
last is a sixteenth of the number itself, but at least 2^-10, of 448 for the block's largest value.
Each part of a sum may be off by that much; the sum of parts is no larger than they are together.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from boundaryc.verify.fixture import Place

GROUP = 128
STEPS = {"int8": (0.0, 1 / 254), "fp8": (1 / 16, 2.0**-10 / 448)}
"""The largest error by format: of a number itself, and of the largest one of its block."""
ROUNDING = 2.0**-18
"""Scales and sums are float32: a few of its roundings, of the largest number of a block."""

Group = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sums:
    """What the ranks of one run bring to sums that may travel quantised, and what they get."""

    tokens: int
    parts: dict[Place, dict[str, Tensor]] = field(default_factory=lambda: defaultdict(dict))
    results: dict[tuple[Place, Group], Tensor] = field(default_factory=dict)

    def bring(self, place: Place, name: str, value: Tensor, tokens: Tensor) -> None:
        """The part of the sum called ``name``: ``value`` is for ``tokens``, [width] for all."""
        known = self.parts[place].setdefault(name, value.new_zeros(self.tokens, value.shape[-1]))
        known[tokens] = value.abs()

    def bound(self, place: Place, form: str) -> Tensor:
        """By how much each number of the sum may be off, [tokens, width]."""
        relative, absolute = STEPS[form]
        total = torch.stack([*self.parts[place].values()])
        return relative * total.sum(0) + (absolute + ROUNDING) * _peaks(total).sum(0)

    def judge(
        self, place: Place, form: str, group: Group, value: Tensor, right: Tensor, tokens: Tensor
    ) -> str | None:
        """What is wrong with ``value``, which members of ``group`` have for ``tokens``.

        It must be near ``right`` and the same for all members, bit for bit.
        """
        error = (value - right).abs()
        allowed = self.bound(place, form)[tokens]
        if not bool((error <= allowed).all()):
            worst = float((error / allowed.clamp(min=1e-300)).nan_to_num(nan=torch.inf).max())
            return f"the sum is off by {worst:.3g} times what {form} may be"
        known = self.results.setdefault(
            (place, group), value.new_full((self.tokens, value.shape[-1]), torch.nan)
        )
        before = known[tokens]
        if not bool(((before == value) | before.isnan()).all()):
            return "members of a group have different sums"
        known[tokens] = value
        return None


def _peaks(x: Tensor) -> Tensor:
    """The largest number of each block of ``x`` in all places of it."""
    blocks = [part.amax(-1, keepdim=True).expand_as(part) for part in x.split(GROUP, -1)]
    return torch.cat(blocks, -1)
