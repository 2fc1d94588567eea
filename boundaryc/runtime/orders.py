"""Two orders of the rows that are whole over attention CP ranks: by shard and by token.

In shard order they are what a gather over the shards delivers: shard after shard, each with its
pads at its end. In token order the real tokens of a DP group come first, in sequence, then its
pads: what a scan over the sequence needs.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Order:
    """The permutation between the two orders of one batch, for rows that this rank holds.

    ``to_tokens`` None: the orders are the same, and nothing is moved. Otherwise int64 [rows] on the
    CPU: for every row in token order its place in shard order. Copies on other devices are kept.
    """

    __slots__ = ("_indexes", "_own")

    def __init__(self, to_tokens: Tensor | None = None) -> None:
        self._own = to_tokens
        self._indexes: dict[torch.device, tuple[Tensor, Tensor]] = {}
        if to_tokens is not None:
            self._indexes[to_tokens.device] = (to_tokens, torch.argsort(to_tokens))

    @property
    def identity(self) -> bool:
        """Whether the two orders are the same."""
        return self._own is None

    def to_tokens(self, x: Tensor) -> Tensor:
        """Rows ``x`` [rows, ...] from shard order to token order: new storage."""
        return x if self._own is None else x.index_select(0, self._on(x.device)[0])

    def to_shards(self, x: Tensor) -> Tensor:
        """Rows ``x`` [rows, ...] from token order to shard order: new storage."""
        return x if self._own is None else x.index_select(0, self._on(x.device)[1])

    def places_to_tokens(self, device: torch.device) -> Tensor:
        """For every row in token order its place in shard order: int64 [rows] on ``device``."""
        return self._on(device)[0]

    def places_to_shards(self, device: torch.device) -> Tensor:
        """For every row in shard order its place in token order, where these are two orders."""
        return self._on(device)[1]

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        known = self._indexes.get(device)
        if known is None:
            assert self._own is not None
            forth, back = self._indexes[self._own.device]
            known = self._indexes[device] = (forth.to(device), back.to(device))
        return known


IDENTITY = Order()
"""Where no shards interleave tokens."""


def by_token(keys: Tensor) -> Order:
    """The order that sorts rows by ``keys`` [rows], equal ones staying as they are."""
    return Order(torch.argsort(keys, stable=True))
