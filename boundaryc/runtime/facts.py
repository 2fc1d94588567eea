"""The facts of one batch: what every rank knows of it, checked once.

They decide which collectives run, so all ranks must state the same ones. Nothing here depends on
the rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

from boundaryc.runtime.shards import ContextParallel

Padding = Literal["sum_len", "max_len", "unpadded"]
Mode = Literal["prefill", "decode"]
Embeddings = Literal["complete", "partial"]

ORDINARY = "ordinary"
CONTEXT_PARALLEL = "context_parallel"
INPUT_SCATTERED = "input_scattered"
SEQUENCE_PARALLEL = "sequence_parallel"


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What all ranks know of one batch; see `Stack.batch`. Raises ValueError naming a wrong fact.

    ``rows_per_dp`` are the real rows of each of ``groups`` attention DP groups.
    """

    rows_per_dp: tuple[int, ...]
    padding: Padding
    mode: Mode
    sequence_parallel: bool
    cp: ContextParallel | None
    input_scattered: bool
    embeddings: Embeddings

    def __post_init__(self) -> None:
        _check_choice("padding", self.padding, get_args(Padding))
        _check_choice("mode", self.mode, get_args(Mode))
        _check_choice("embeddings", self.embeddings, get_args(Embeddings))
        _check_switch("sequence_parallel", self.sequence_parallel)
        _check_switch("input_scattered", self.input_scattered)
        if self.cp is not None:
            self._check_requests(self.cp)
        self._check_agreement()

    def variant(self, shards: int) -> str:
        """The batch variant where attention is cut over ``shards`` context-parallel ranks.

        A batch whose requests do not give every rank of their group a row runs on ordinary rows, as
        does decoding, in which every rank holds all rows anyway.
        """
        if self.sequence_parallel:
            return SEQUENCE_PARALLEL
        if self.input_scattered:
            return INPUT_SCATTERED
        if self.cp is not None and self.mode == "prefill" and self.cp.serves(shards):
            return CONTEXT_PARALLEL
        return ORDINARY

    def stated(self) -> dict[str, object]:
        """The facts by name."""
        return {fact.name: getattr(self, fact.name) for fact in fields(self)}

    def _check_requests(self, cp: ContextParallel) -> None:
        if not isinstance(cp, ContextParallel):
            raise ValueError(f"cp is {cp!r}; it must be a ContextParallel or None")
        totals = tuple(sum(lengths) for lengths in cp.requests)
        if totals != self.rows_per_dp:
            raise ValueError(
                f"cp.requests add up to {totals} rows; rows_per_dp is {self.rows_per_dp}"
            )

    def _check_agreement(self) -> None:
        given = [
            name
            for name, is_given in (
                ("cp", self.cp is not None),
                ("input_scattered", self.input_scattered),
                ("sequence_parallel", self.sequence_parallel),
            )
            if is_given
        ]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} contradict each other: a batch is one of them")


def checked_rows(rows_per_dp: Sequence[int], groups: int) -> tuple[int, ...]:
    """The row counts of ``groups`` attention DP groups. ValueError where they are none."""
    if not isinstance(rows_per_dp, Iterable):
        raise ValueError(
            f"rows_per_dp is {rows_per_dp!r}; it must be a list with the rows of each of {groups} "
            "attention DP group(s)"
        )
    rows = tuple(rows_per_dp)
    if len(rows) != groups:
        raise ValueError(
            f"rows_per_dp has {len(rows)} entries; this topology has {groups} attention DP group(s)"
        )
    if any(isinstance(count, bool) or not isinstance(count, int) for count in rows):
        raise ValueError(f"rows_per_dp holds row counts, not {rows!r}")
    if any(count < 0 for count in rows):
        raise ValueError(f"rows_per_dp holds a negative row count: {rows!r}")
    return rows


def _check_choice(fact: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{fact} is {value!r}; it must be one of {', '.join(choices)}")


def _check_switch(fact: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{fact} is {value!r}; it must be True or False")
