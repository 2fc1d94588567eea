"""A group provider that counts what really goes through its collectives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from torch import Tensor

from boundaryc.runtime import Collective, GroupProvider, Mesh


@dataclass(slots=True)
class Traffic:
    """What one rank's collectives did: how often each kind ran, and the bytes the rank received.

    Bytes are those of the ring algorithms, which no algorithm undercuts.
    """

    calls: Counter[str] = field(default_factory=Counter)
    bytes: float = 0

    def add(self, kind: str, received: float) -> None:
        """Counts one collective."""
        self.calls[kind] += 1
        self.bytes += received


class CountingCollective:
    """A collective that reports to `traffic`."""

    def __init__(self, inner: Collective, traffic: Traffic) -> None:
        self.inner, self.traffic = inner, traffic
        self.rank, self.size = inner.rank, inner.size

    def all_reduce(self, x: Tensor) -> Tensor:
        """Sums over the group: a reduce-scatter and a gather of its parts."""
        self.traffic.add("all_reduce", 2 * x.nbytes * (self.size - 1) / self.size)
        return self.inner.all_reduce(x)

    def all_gather(self, x: Tensor, sizes: tuple[int, ...] | None = None) -> Tensor:
        """Receives the rows of all other members."""
        gathered = self.inner.all_gather(x, sizes)
        self.traffic.add("all_gather", gathered.nbytes - x.nbytes)
        return gathered

    def reduce_scatter(self, x: Tensor, sizes: tuple[int, ...] | None = None) -> Tensor:
        """Receives a partial sum of its own rows and passes on one of each other part."""
        sent = x.nbytes
        own = self.inner.reduce_scatter(x, sizes)
        self.traffic.add("reduce_scatter", sent - own.nbytes)
        return own


class CountingGroups:
    """Wraps a group provider; all its collectives report to one `traffic`."""

    def __init__(self, inner: GroupProvider) -> None:
        self.inner, self.rank, self.traffic = inner, inner.rank, Traffic()

    def collective(self, mesh: Mesh, axes: tuple[str, ...]) -> CountingCollective:
        """See `GroupProvider`."""
        return CountingCollective(self.inner.collective(mesh, axes), self.traffic)
