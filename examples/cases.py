"""What the demo runs: on which topology, with which sequences on which rank, in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from examples.common.parallel import Parallel

ORDINARY, SEQUENCE_PARALLEL = "ordinary", "sequence_parallel"

PROMPTS = (5, 3, 7, 2)
"""Tokens of each sequence that the prefill runs."""
DECODED = (4, 3, 1, 4)
"""Tokens of each sequence that follow, one in a step; a sequence that has no more is gone."""
LENGTHS = [prompt + decoded for prompt, decoded in zip(PROMPTS, DECODED, strict=True)]

PLACEMENT = {
    1: ((0, 1, 2, 3),),
    2: ((0, 1, 3), (2,)),
    4: ((0, 2), (), (3,), (1,)),
}
"""The sequences of each attention-DP group, by the number of groups: uneven, and one of four groups
is empty. Of two groups the second runs out of sequences while the first still decodes."""

Step = list[list[tuple[int, list[int]]]]
"""For each attention-DP group, the new tokens of each of its sequences."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a model; `parallel` is rank 0's place in the topology."""

    stack: str
    topology: str
    attn_dp: int
    parallel: Parallel
    variant: str
    padding: str
    policy: str


@dataclass(frozen=True, slots=True)
class Result:
    """What one run showed.

    calls       collectives of one layer in the middle of the stack, by kind, in a prefill
    received    bytes that all ranks together received in boundaries, in all forwards
    tokens      real tokens of all forwards
    difference  the largest difference from the reference's logits, of all ranks and tokens
    """

    case: Case
    calls: dict[str, int]
    received: float
    tokens: int
    difference: float


def steps(attn_dp: int, sequences: list[list[int]]) -> Iterator[Step]:
    """The forwards of a run: one prefill, then decode steps until no sequence has tokens left."""
    groups = PLACEMENT[attn_dp]
    yield [[(own, sequences[own][: PROMPTS[own]]) for own in group] for group in groups]
    for offset in range(max(DECODED)):
        yield [
            [
                (own, [sequences[own][PROMPTS[own] + offset]])
                for own in group
                if offset < DECODED[own]
            ]
            for group in groups
        ]
