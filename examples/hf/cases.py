"""One run of a cut model: its topology, its batch, and how the stack is driven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from boundaryc.runtime import ContextParallel
from boundaryc.topology.contracts import INPUT_SCATTERED, SEQUENCE_PARALLEL
from examples.hf.reference import LENGTHS

Requests = tuple[tuple[int, ...], ...]
"""The sequences of every attention-DP group."""

Entry = Literal["complete", "partial"]

PLACEMENTS = ("even", "uneven", "last", "one")
ENTRIES: tuple[Entry, ...] = ("complete", "partial")


@dataclass(frozen=True, slots=True)
class Case:
    """What one run is for.

    edition    which of the stack's compiled editions, see `examples.hf.editions`
    placement  where sequences are, see `requests`
    split      how context-parallel shards get their rows: "zigzag" or "interleaved"
    entry      "complete", or "partial" where the embeddings are cut over attention TP
    cuts       layers before which the stack goes on elsewhere
    halves     two-batch overlap, with FFNs in "exits" or "alone"
    """

    topology: str
    edition: str
    variant: str
    policy: str
    padding: str
    placement: str
    mode: str = "prefill"
    split: Literal["", "zigzag", "interleaved"] = ""
    entry: Entry = "complete"
    cuts: tuple[int, ...] = ()
    halves: Literal["", "exits", "alone"] = ""

    def __str__(self) -> str:
        cuts = f"cut {','.join(map(str, self.cuts))}" if self.cuts else ""
        words = (
            *(self.topology, self.edition, self.variant, self.policy, self.padding),
            *(self.placement, self.mode, self.split, self.entry, cuts, self.halves),
        )
        return " ".join(word for word in words if word)


def requests(placement: str, groups: int, *, longer: bool = False) -> Requests:
    """The sequences of each attention-DP group.

    "even" gives all of them the same, "uneven" other numbers of tokens and every fourth group none,
    "last" leaves all groups empty but the last one, and "one" has one token. Where ``longer``
    sequences are asked for each has some tokens for each of 8 context-parallel shards.
    """
    short, more, third = ((5, 6, 5) if longer else (0, 1, 3))[:3]
    empty: Requests = ((),) * (groups - 1)
    if placement == "even":
        return ((short,),) * groups
    if placement == "last":
        return (*empty, (more, short))
    if placement == "one":
        return ((4,), *empty)
    if groups == 1:
        return ((short, more, third),)
    kinds = ((short, more), (third,), (more,) if longer else (7, 4), ())
    found = [kinds[index % 4] for index in range(groups)]
    return (*found[:-1], ()) if groups < 4 else tuple(found)


def facts(case: Case, sequences: Requests) -> dict[str, Any]:
    """What ``stack.batch`` is told on all ranks."""
    told: dict[str, Any] = {
        "rows_per_dp": [sum(LENGTHS[one] for one in group) for group in sequences],
        "padding": case.padding,
        "mode": case.mode,
    }
    if case.variant == SEQUENCE_PARALLEL:
        told["sequence_parallel"] = True
    if case.variant == INPUT_SCATTERED:
        told["input_scattered"] = True
    if case.entry == "partial":
        told["embeddings"] = "partial"
    if case.split:
        lengths = tuple(tuple(LENGTHS[one] for one in group) for group in sequences)
        told["cp"] = ContextParallel(split=case.split, requests=lengths)
    return told
