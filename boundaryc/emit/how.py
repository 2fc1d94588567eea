"""How sums are completed, and the collectives of a script."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class How(Enum):
    """How a sum is completed; the value is the word that tells functions apart by it."""

    ALL_REDUCE = "ar"
    REDUCE_SCATTER = "rs"
    VARIABLE_REDUCE_SCATTER = "rsv"
    GATHER_SUM = "placed"
    QUANTIZED = "quantized"


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of a script: its text, like ``all_reduce(tp)``, and its reason."""

    text: str
    why: str
