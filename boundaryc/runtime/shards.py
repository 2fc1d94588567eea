"""Context parallelism: which tokens of its DP group each attention CP rank holds.

Tokens are numbered inside their DP group, requests one after the other. A *shard* is what one
attention CP rank holds: its real rows in the order given here, then its pad rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, get_args

import torch
from torch import Tensor

Split = Literal["zigzag", "interleaved"]


@dataclass(frozen=True, slots=True)
class ContextParallel:
    """How the tokens of a batch are cut over attention CP ranks.

    ``requests`` holds, for each attention DP group, the lengths of its requests in order. "zigzag"
    cuts each request into twice as many balanced chunks as there are ranks and gives rank p the
    chunks p and, counted from the end, p again; so that causal attention is balanced.
    "interleaved" gives token i of the group to rank i modulo the ranks. ValueError for an unknown
    split, and for lengths that are none.
    """

    split: Split
    requests: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise ValueError(
                f"cp.split is {self.split!r}; it must be one of {', '.join(get_args(Split))}"
            )
        requests = tuple(tuple(lengths) for lengths in self.requests)
        for length in (length for lengths in requests for length in lengths):
            if isinstance(length, bool) or not isinstance(length, int) or length < 0:
                raise ValueError(f"cp.requests holds {length!r}, which is no length of a request")
        object.__setattr__(self, "requests", requests)

    def serves(self, parts: int) -> bool:
        """Whether every request gives each of ``parts`` ranks a row, and there is one at all.

        DP groups without requests stay empty on all their ranks.
        """
        if parts < 2:
            return False
        least = 2 * parts if self.split == "zigzag" else parts
        lengths = [length for lengths in self.requests for length in lengths]
        return bool(lengths) and min(lengths) >= least

    def sizes(self, group: int, parts: int) -> tuple[int, ...]:
        """Real rows of each of ``parts`` shards of one DP group."""
        if self.split == "interleaved":
            total = sum(self.requests[group])
            return tuple(len(range(part, total, parts)) for part in range(parts))
        cuts = [_chunks(length, 2 * parts) for length in self.requests[group]]
        return tuple(sum(cut[part] + cut[-1 - part] for cut in cuts) for part in range(parts))

    def tokens(self, group: int, parts: int) -> tuple[Tensor, ...]:
        """The tokens in each of ``parts`` shards of one DP group: int64 [real rows], on the CPU."""
        if self.split == "interleaved":
            total = sum(self.requests[group])
            return tuple(torch.arange(part, max(total, part), parts) for part in range(parts))
        held: list[list[Tensor]] = [[torch.arange(0)] for _ in range(parts)]
        first = 0
        for length in self.requests[group]:
            ends = (0, *accumulate(_chunks(length, 2 * parts)))
            for part in range(parts):
                for chunk in (part, 2 * parts - 1 - part):
                    held[part].append(torch.arange(first + ends[chunk], first + ends[chunk + 1]))
            first += length
        return tuple(torch.cat(ranges) for ranges in held)


@dataclass(frozen=True, slots=True)
class Sharding:
    """The shards of one batch: ``padded`` has their rows, pads included, by DP group and rank."""

    cp: ContextParallel
    padded: tuple[tuple[int, ...], ...]
    _tokens: dict[int, tuple[Tensor, ...]] = field(default_factory=dict, repr=False)

    def tokens(self, group: int) -> tuple[Tensor, ...]:
        """As `ContextParallel.tokens`, computed once."""
        known = self._tokens.get(group)
        if known is None:
            known = self._tokens[group] = self.cp.tokens(group, len(self.padded[group]))
        return known


def shard_rows(
    cp: ContextParallel, groups: int, parts: int, *, multiple: int, padding: str
) -> Sharding:
    """Pads the shards of a batch.

    "sum_len" rounds each up to ``multiple``, "max_len" pads all shards of all groups to the largest
    so rounded, "unpadded" keeps them. Interleaved shards of a group have equal rows once padded.
    """
    real = tuple(cp.sizes(group, parts) for group in range(groups))
    if padding == "unpadded":
        return Sharding(cp, real)
    rounded = tuple(tuple(-(-rows // multiple) * multiple for rows in shards) for shards in real)
    if padding == "max_len":
        return Sharding(cp, ((max(map(max, rounded)),) * parts,) * groups)
    if cp.split == "interleaved":
        return Sharding(cp, tuple((max(shards),) * parts for shards in rounded))
    return Sharding(cp, rounded)


def _chunks(length: int, parts: int) -> tuple[int, ...]:
    each, longer = divmod(length, parts)
    return tuple(each + (index < longer) for index in range(parts))
