"""vLLM's coordinators on simulated ranks: its signatures, and sums that are checked.

What the adapter calls is bound to the signatures of `vllm_facts.json`, so that a call which vLLM
would refuse is refused here.
"""

from __future__ import annotations

import inspect
import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from boundaryc.engines.vllm import VllmGroups
from boundaryc.runtime import Mesh
from boundaryc.verify.world import SimulatedCollective, SimulatedGroups

FACTS: dict[str, Any] = json.loads(Path(__file__).with_name("vllm_facts.json").read_text("utf-8"))


@cache
def signature(name: str) -> inspect.Signature:
    """The signature of the one function of vLLM that ends with ``name``."""
    (found,) = (text for key, text in FACTS["functions"].items() if key.endswith(f":{name}"))
    scope: dict[str, Any] = {}
    exec(f"def function({found}): ...", scope)
    return inspect.signature(scope["function"])


class DeviceCommunicatorBase:
    """VLLM's base, by that name: it has the methods for unequal rows, and they raise."""

    def all_gatherv(self) -> None:
        """Not there."""
        raise NotImplementedError


class CpuCommunicator(DeviceCommunicatorBase):
    """As the base."""


class XpuCommunicator(DeviceCommunicatorBase):
    """Unequal rows without PyNccl."""

    def all_gatherv(self) -> None:
        """There."""


class CudaCommunicator(XpuCommunicator):
    """Unequal rows through PyNccl, which may be disabled."""

    def __init__(self, disabled: bool = False) -> None:
        self.pynccl_comm = SimpleNamespace(disabled=disabled)


class Coordinator:
    """A `GroupCoordinator` of a simulated group; ``calls`` are the methods that were called."""

    def __init__(
        self,
        group: SimulatedCollective,
        ranks: list[int],
        communicator: DeviceCommunicatorBase | None,
        *,
        device: str = "cuda",
    ) -> None:
        self.ranks, self.world_size, self.rank_in_group = ranks, group.size, group.rank
        self.rank, self.local_rank = ranks[group.rank], group.rank
        self.device_group = SimpleNamespace(group=group)
        self.device_communicator, self.device = communicator, torch.device(device)
        self.calls: list[str] = []
        self._group = group

    def _bound(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(name)
        given = signature(f"GroupCoordinator.{name}").bind(self, *args, **kwargs)
        given.apply_defaults()
        found = SimpleNamespace(**given.arguments)
        assert getattr(found, "dim", 0) == 0, "rows are dimension 0, and vLLM's default is the last"
        x = found.input_
        assert x.is_contiguous()
        assert x.numel() or name.endswith("v"), "no rows at all are no call"
        assert not (x.is_floating_point() and x.dtype.itemsize == 1)
        return found

    def _unequal(self, sizes: list[int]) -> tuple[int, ...]:
        assert isinstance(self.device_communicator, XpuCommunicator)
        assert not getattr(getattr(self.device_communicator, "pynccl_comm", None), "disabled", 0)
        return tuple(sizes)

    def all_reduce(self, *args: Any, **kwargs: Any) -> Tensor:
        """The sum."""
        return self._group.all_reduce(self._bound("all_reduce", *args, **kwargs).input_)

    def all_gather(self, *args: Any, **kwargs: Any) -> Tensor:
        """Equal rows."""
        return self._group.all_gather(self._bound("all_gather", *args, **kwargs).input_)

    def all_gatherv(self, *args: Any, **kwargs: Any) -> Tensor:
        """Unequal rows."""
        given = self._bound("all_gatherv", *args, **kwargs)
        return self._group.all_gather(given.input_, self._unequal(given.sizes))

    def reduce_scatter(self, *args: Any, **kwargs: Any) -> Tensor:
        """Equal rows."""
        return self._group.reduce_scatter(self._bound("reduce_scatter", *args, **kwargs).input_)

    def reduce_scatterv(self, *args: Any, **kwargs: Any) -> Tensor:
        """Unequal rows."""
        given = self._bound("reduce_scatterv", *args, **kwargs)
        return self._group.reduce_scatter(given.input_, self._unequal(given.sizes))


class Process:
    """VLLM's coordinators on one simulated rank of DP x PP x PCP x TP, in its order of ranks.

    The simulated ranks are those of the pipeline stage ``stage`` of ``pp``; ``created`` are the
    lists of ranks that a group was made of.
    """

    def __init__(
        self,
        groups: SimulatedGroups,
        sizes: dict[str, int],
        communicator: DeviceCommunicatorBase | None,
        *,
        pp: int = 1,
        stage: int = 0,
        first: int = 0,
    ) -> None:
        self._groups, self._communicator = groups, communicator
        self._sizes, self._pp, self._stage, self._first = sizes, pp, stage, first
        axes = {"dp": "attn_dp", "pcp": "attn_cp", "tp": "attn_tp"}
        self.mesh = Mesh(tuple((n, sizes[n], axes[n]) for n in axes if sizes[n] > 1))
        self.created: list[list[list[int]]] = []
        self.coordinators: dict[str, Any] = {
            name: self._made((name,) if sizes[name] > 1 else ()) for name in ("dp", "pcp", "tp")
        }
        self.coordinators["ep"] = self._made(self.mesh.names)
        self.coordinators["pp"] = SimpleNamespace(ranks=self._stages(), rank_in_group=stage)

    def provider(self) -> VllmGroups:
        """What a stack is loaded with."""
        return VllmGroups(self.coordinators, create=self.create)

    def create(self, ranks: list[list[int]], stage: Any) -> Coordinator:
        """In place of `create_group`: the one of ``ranks`` that this rank is in."""
        assert stage is self.coordinators["tp"]
        self.created.append(ranks)
        (own,) = (one for one in ranks if stage.rank in one)
        moved = {rank for rank in range(self.mesh.size) if self.world(rank) in own}
        differ = [self.mesh.coordinate(rank) for rank in moved]
        axes = tuple(
            name
            for at, name in enumerate(self.mesh.names)
            if len({coordinate[at] for coordinate in differ}) > 1
        )
        return self._made(axes)

    def world(self, rank: int) -> int:
        """A rank of the pipeline stage in the world."""
        inner = self._sizes["pcp"] * self._sizes["tp"]
        dp, rest = divmod(rank, inner)
        return self._first + (dp * self._pp + self._stage) * inner + rest

    def _stages(self) -> list[int]:
        own, inner = self.world(self._groups.rank), self._sizes["pcp"] * self._sizes["tp"]
        return [own + (one - self._stage) * inner for one in range(self._pp)]

    def _made(self, axes: tuple[str, ...]) -> Coordinator:
        members = self.mesh.members(self._groups.rank, axes)
        group = self._groups.collective(self.mesh, axes)
        return Coordinator(group, [self.world(one) for one in members], self._communicator)
