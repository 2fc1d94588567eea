"""What `test_gloo_ranks` runs on real ranks: the cells of a proof, one process a rank."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from boundaryc.runtime.members import split_evenly
from boundaryc.runtime.pipeline import PayloadTensor
from boundaryc.verify.cells import Cell
from boundaryc.verify.fixture import Place
from boundaryc.verify.meddling import MeddlingProgram
from boundaryc.verify.modules import import_package
from boundaryc.verify.pipeline import batch_facts
from boundaryc.verify.ranks import RankProgram
from boundaryc.verify.run import Prover
from boundaryc.verify.scene import Held
from boundaryc.verify.world import SimulatedGroups
from tests.runtime.ranks import RecordingGroups, groups
from tests.verify.subjects import compiled


class _Packer(pickle.Pickler):
    """Pickles plans, whose mappings cannot be changed."""

    def reducer_override(self, one: object) -> Any:
        """How one object is made again."""
        return (_frozen, (dict(one),)) if isinstance(one, MappingProxyType) else NotImplemented


def _frozen(mapping: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(mapping)


def packed(text: str) -> bytes:
    """A stack that is compiled once for all ranks."""
    with io.BytesIO() as buffer:
        _Packer(buffer).dump(compiled(text))
        return buffer.getvalue()


@cache
def _prover(stack: bytes) -> Prover:
    plan, files = pickle.loads(stack)
    return Prover(plan, import_package(files, "sample"))


def forwards(
    rank: int, stack: bytes, cells: Sequence[tuple[Cell, int | None]]
) -> list[tuple[float, list[str]]]:
    """The largest error of each cell and its collectives; MismatchError where a value is wrong.

    ``stack`` is what `packed` returns. With a seed the model uses outputs between stages.
    """
    found = []
    for cell, deeds in cells:
        scene: Any = _prover(stack).scene(cell, deeds)
        groups = RecordingGroups()
        program = RankProgram if deeds is None else MeddlingProgram
        error = program(scene, cast(SimulatedGroups, groups)).forward()
        found.append((error, groups.log))
    return found


class WholeProgram(RankProgram):
    """A forward that is compared and kept: what every stage saw, its residual, and the output."""

    def __init__(self, scene: Any, groups: SimulatedGroups) -> None:
        super().__init__(scene, groups)
        self.kept: dict[str, Tensor] = {}

    def _compare(self, what: str, value: Tensor, held: Held, expected: Tensor) -> None:
        super()._compare(what, value, held, expected)
        self.kept[what] = value[held.positions].clone()


class StageProgram(WholeProgram):
    """The parts of a forward that one rank of a pipeline runs, on real ranks.

    Two sets of ranks run the layers between cuts in turns, so that one forward has any number of
    cuts: what crosses one is sent by torch.distributed to the rank with the same number.
    """

    def forward(self) -> float:
        """Runs this rank's layers."""
        walk, cuts = self.scene.subject.plan.graph.walk, self.scene.cell.cuts
        ranks = self.scene.topology.spec.tp
        own, self._peer = dist.get_rank() // ranks, (dist.get_rank() + ranks) % (2 * ranks)
        for number, (first, stop) in enumerate(pairwise([0, *cuts, len(walk)])):
            if number % 2 == own:
                hidden = self._layers(range(first, stop), self._begin(first))
                self._leave(hidden, stop)
        return self.error

    def _begin(self, first: int) -> Any:
        """What the layers from ``first`` on start with."""
        if first == 0:
            self.stack.start(self.batch)
            return self._embed()
        self.stack = self._pipeline.stack(first)
        self.batch = self.stack.batch(**batch_facts(self.scene.cell))
        told = self.stack.payload(self.batch, incoming=True)
        received = {one.name: self._received(one) for one in told}
        return self.stack.from_pp(received, self.batch)

    def _leave(self, hidden: Any, stop: int) -> None:
        """Hands what the layers before ``stop`` left to other ranks, or ends the stack."""
        if stop == len(self.scene.subject.plan.graph.walk):
            self._end(hidden)
            return
        told = self.stack.payload(self.batch, incoming=False)
        sent = self.stack.to_pp(hidden, self.batch)
        assert [(one.name, self._shape(one, one.rows)) for one in told] == [
            (name, tensor.shape) for name, tensor in sent.items()
        ]
        for tensor in sent.values():
            _send(self._part(tensor), self._peer)

    def _layers(self, layers: range, hidden: Any) -> Any:
        for index in layers:
            layer = self._bind(index)
            for edge in self.scene.subject.plan.graph.walk[index]:
                hidden = self._stage(Place(index, edge.consumer), edge, layer, hidden)
        return hidden

    def _sizes(self, rows: int) -> tuple[Any, tuple[int, ...]]:
        """The group over which complete payloads are sliced, and the rows of each slice."""
        mesh = self.stack.mesh
        axes = tuple(name for name, _, axis in mesh.atoms if axis == "attn_tp")
        group = groups(mesh.size).collective(mesh, axes)
        sliced = self.scene.subject.plan.stack.pipeline == "complete" and group.size > 1
        return group, split_evenly(rows, group.size) if sliced else (rows,)

    def _part(self, tensor: Tensor) -> Tensor:
        """What this rank sends of a tensor: a slice of it where the payload is complete."""
        group, sizes = self._sizes(tensor.shape[0])
        return tensor if len(sizes) == 1 else tensor.split(list(sizes))[group.rank]

    def _shape(self, part: PayloadTensor, rows: int) -> tuple[int, ...]:
        width = self.scene.subject.fixture.width
        return (rows, *(width if size is None else size for size in part.inner))

    def _received(self, part: PayloadTensor) -> Tensor:
        group, sizes = self._sizes(part.rows)
        own = sizes[0] if len(sizes) == 1 else sizes[group.rank]
        tensor = torch.empty(self._shape(part, own), dtype=torch.float64)
        if tensor.numel():
            dist.recv(tensor, self._peer)
        if len(sizes) == 1:
            return tensor
        whole: Tensor = group.all_gather(tensor, sizes)
        return whole


def _send(tensor: Tensor, target: int) -> None:
    if tensor.numel():
        dist.send(tensor.contiguous(), target)


@dataclass(frozen=True, slots=True)
class Compared:
    """A cut forward on one rank beside the uncut one: the largest error of both, and their bits.

    ``every`` names what the uncut one kept, ``own`` what this rank's layers kept of that, and
    ``differing`` what of it is not equal bit for bit.
    """

    error: float
    every: frozenset[str]
    own: frozenset[str]
    differing: tuple[str, ...]


def stages(rank: int, stack: bytes, cells: Sequence[Cell]) -> list[Compared]:
    """Runs cells cut, in turns with the other ranks, and uncut, on either set of ranks alone."""
    uncut: dict[Cell, WholeProgram] = {}
    found = []
    for cell in cells:
        scene: Any = _prover(stack).scene(cell, None)
        provider = cast(SimulatedGroups, groups(scene.topology.spec.tp))
        alone = replace(cell, cuts=())
        if alone not in uncut:
            uncut[alone] = WholeProgram(_prover(stack).scene(alone, None), provider)
            uncut[alone].forward()
        cut, whole = StageProgram(scene, provider), uncut[alone].kept
        error = max(cut.forward(), uncut[alone].error)
        differing = tuple(
            what for what, value in cut.kept.items() if not torch.equal(value, whole[what])
        )
        found.append(Compared(error, frozenset(whole), frozenset(cut.kept), differing))
    return found
