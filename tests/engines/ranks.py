"""SGLang's coordinators on simulated ranks: its signatures, and sums that are checked.

What an adapter calls is bound to the signatures of `sglang_facts.json`, so that a call which SGLang
would refuse is refused here.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from boundaryc.engines import sglang
from boundaryc.runtime import Mesh
from boundaryc.verify.world import SimulatedCollective, SimulatedGroups, World

FACTS: dict[str, Any] = json.loads(Path(__file__).with_name("sglang_facts.json").read_text())


@cache
def signature(name: str) -> inspect.Signature:
    """The signature of the one function of SGLang that ends with ``name``."""
    (found,) = (text for key, text in FACTS["functions"].items() if key.endswith(f":{name}"))
    # Defaults that are names of SGLang stand for themselves.
    names: Any = SimpleNamespace(ALWAYS_PARTIAL=None, ATTN_TP=None)
    scope: dict[str, Any] = dict.fromkeys(("NORM_QUANT_READOUT", "NORM_READOUT", "PLAIN_ADD"))
    scope |= {"ProducerReduction": names, "SumGroup": names}
    exec(f"def function({found}): ...", scope)
    return inspect.signature(scope["function"])


def bound(name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The arguments of a call by name, defaults included. TypeError where SGLang has no such."""
    arguments = signature(name).bind(*args, **kwargs)
    arguments.apply_defaults()
    return arguments.arguments


class Coordinator:
    """A `GroupCoordinator` of a simulated group; ``calls`` are the methods that were called."""

    def __init__(
        self,
        group: SimulatedCollective,
        ranks: list[int],
        *,
        device: str = "cpu",
        pynccl: bool | None = False,
        calls: list[str] | None = None,
    ) -> None:
        self.ranks, self.world_size, self.rank_in_group = ranks, group.size, group.rank
        self.local_rank = group.rank
        self.device_group = self.cpu_group = SimpleNamespace(group=group)
        self.device = torch.device(device)
        self.pynccl_comm = None if pynccl is None else SimpleNamespace(available=pynccl)
        self.calls: list[str] = [] if calls is None else calls
        self._group = group

    def _bound(self, name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self.calls.append(name)
        return bound(f"GroupCoordinator.{name}", self, *args, **kwargs)

    def all_reduce(self, *args: Any, **kwargs: Any) -> Tensor:
        """The sum."""
        return self._group.all_reduce(self._bound("all_reduce", *args, **kwargs)["input_"])

    def all_gather(self, *args: Any, **kwargs: Any) -> Tensor:
        """Equal rows, of a dtype that every communicator of SGLang moves."""
        given = self._bound("all_gather", *args, **kwargs)
        x = given["input_"]
        assert given["dim"] == 0
        assert x.is_contiguous()
        assert not (x.is_floating_point() and x.dtype.itemsize == 1)
        return self._group.all_gather(x)

    def all_gatherv(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Unequal rows, in a list of one as SGLang returns them."""
        given = self._bound("all_gatherv", *args, **kwargs)
        assert self.pynccl_comm is not None
        assert self.pynccl_comm.available
        return [self._group.all_gather(given["input_"], tuple(given["sizes"]))]

    def reduce_scatter_tensor(self, *args: Any, **kwargs: Any) -> None:
        """Equal rows, into the output: an operator of accelerators."""
        given = self._bound("reduce_scatter_tensor", *args, **kwargs)
        assert self.device.type != "cpu"
        given["output"].copy_(self._group.reduce_scatter(given["input"]))

    def reduce_scatterv(self, *args: Any, **kwargs: Any) -> Tensor:
        """Unequal rows."""
        given = self._bound("reduce_scatterv", *args, **kwargs)
        assert self.pynccl_comm is not None
        assert self.pynccl_comm.available
        return self._group.reduce_scatter(given["input_"], tuple(given["sizes"]))


class Parallel:
    """SGLang's parallel context on one simulated rank of a stage: TP and attention TP groups.

    Other groups raise, as in SGLang where they were not made.
    """

    def __init__(
        self, groups: SimulatedGroups, ranks: int, attn_tp: int, *, first: int = 0, **about: Any
    ) -> None:
        self._groups, self._first, self._about = groups, first, about
        atoms = (("dp", ranks // attn_tp, "attn_dp"), ("tp", attn_tp, "attn_tp"))
        self._mesh = Mesh(tuple(atom for atom in atoms if atom[1] > 1))
        self.tp_group = self._made(self._mesh.names)
        if "tp" in self._mesh.names:
            whole = attn_tp == ranks
            self.attn_tp_group = self.tp_group if whole else self._made(("tp",))
        self.created: list[list[list[int]]] = []

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"parallel name {name!r} has not been written in this process")

    def create(self, ranks: list[list[int]], stage: Any, label: str) -> Coordinator:
        """In place of `sglang.create_group`."""
        assert stage is self.tp_group
        self.created.append(ranks)
        own = next(one for one in ranks if self._groups.rank + self._first in one)
        moved = [rank - self._first for rank in own]
        for name in self._mesh.names:
            if list(self._mesh.members(self._groups.rank, (name,))) == moved:
                return self._made((name,))
        raise AssertionError(f"no group {own}")

    def provider(self) -> sglang.SglangGroups:
        """What a stack is loaded with."""
        return sglang.SglangGroups(self, create=self.create)

    def _made(self, axes: tuple[str, ...]) -> Coordinator:
        group = self._groups.collective(self._mesh, axes)
        members = self._mesh.members(self._groups.rank, axes)
        return Coordinator(group, [self._first + one for one in members], **self._about)


def plain(process_group: Any) -> SimulatedCollective:
    """In place of `distributed.collective_of`."""
    group: SimulatedCollective = process_group.group
    return group


class Flags:
    """SGLang's forward flags, of which an exit decides one."""

    def __init__(self) -> None:
        self.mlp_reduce_scatter = False

    @contextmanager
    def scoped(self, **flags: bool) -> Any:
        """Sets a flag and restores it."""
        bound("ForwardFlags.scoped", self, **flags)
        before = dict(self.__dict__)
        assert set(flags) <= set(before)
        self.__dict__.update(flags)
        try:
            yield self
        finally:
            self.__dict__.update(before)


class RowParallel:
    """A `RowParallelLinear` of one rank: SGLang's rule for when it sums.

    ``weight`` [width, own columns]; ``bias`` [width] is on all ranks and added by the first.
    """

    def __init__(
        self,
        weight: Tensor,
        coordinator: Any,
        flags: Flags,
        *,
        reduce_results: bool = True,
        bias: Tensor | None = None,
        skip_bias_add: bool = False,
    ) -> None:
        self.weight, self.coordinator, self.flags = weight, coordinator, flags
        self.reduce_results, self.bias, self.skip_bias_add = reduce_results, bias, skip_bias_add

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """As SGLang's forward: the output, and the bias where it is handed back."""
        given = bound("RowParallelLinear.forward", self, *args, **kwargs)
        first = self.coordinator is None or self.coordinator.rank_in_group == 0
        adds = self.bias is not None and first and not self.skip_bias_add
        output = torch.nn.functional.linear(
            given["input_"], self.weight, self.bias if adds else None
        )
        sums = self.reduce_results and self.coordinator is not None
        if sums and not given["skip_all_reduce"] and not self.flags.mlp_reduce_scatter:
            output = self.coordinator.all_reduce(output)
        return output, self.bias if self.skip_bias_add else None


def on_ranks(ranks: int, program: Callable[[SimulatedGroups], Any]) -> tuple[list[Any], World[Any]]:
    """What ``program`` returns on each simulated rank, and their world."""
    world: World[Any] = World(ranks, poison=True)
    return world.run(program), world
