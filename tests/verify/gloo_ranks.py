"""What `test_gloo_ranks` runs on real ranks: the cells of a proof, one process a rank."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from boundaryc.runtime.members import split_evenly
from boundaryc.runtime.pipeline import PayloadTensor
from boundaryc.verify.cells import Cell
from boundaryc.verify.fixture import Place
from boundaryc.verify.meddling import MeddlingProgram
from boundaryc.verify.pipeline import batch_facts
from boundaryc.verify.ranks import RankProgram
from boundaryc.verify.run import Prover
from boundaryc.verify.world import SimulatedGroups
from tests.runtime.ranks import RecordingGroups, groups
from tests.verify.subjects import prover


@cache
def _prover(text: str) -> Prover:
    return prover(text)


def forwards(
    rank: int, text: str, cells: Sequence[tuple[Cell, int | None]]
) -> list[tuple[float, list[str]]]:
    """The largest error of each cell and its collectives; MismatchError where a value is wrong.

    With a seed the model uses outputs between stages.
    """
    found = []
    for cell, deeds in cells:
        scene: Any = _prover(text).scene(cell, deeds)
        groups = RecordingGroups()
        program = RankProgram if deeds is None else MeddlingProgram
        error = program(scene, cast(SimulatedGroups, groups)).forward()
        found.append((error, groups.log))
    return found


class StageProgram(RankProgram):
    """The part of a forward that one rank of a two-stage pipeline runs, on real ranks."""

    def forward(self) -> float:
        """Runs this rank's layers; what crosses the cut is sent by torch.distributed."""
        walk, (cut,) = self.scene.subject.plan.graph.walk, self.scene.cell.cuts
        ranks = self.scene.topology.spec.tp
        if dist.get_rank() < ranks:
            self.stack.start(self.batch)
            hidden = self._layers(range(cut), self._embed())
            told = self.stack.payload(self.batch, incoming=False)
            sent = self.stack.to_pp(hidden, self.batch)
            assert [(one.name, self._shape(one, one.rows)) for one in told] == [
                (name, tensor.shape) for name, tensor in sent.items()
            ]
            for tensor in sent.values():
                _send(self._part(tensor), dist.get_rank() + ranks)
            return self.error
        self.stack = self._pipeline.stack(cut)
        self.batch = self.stack.batch(**batch_facts(self.scene.cell))
        received = {
            one.name: self._received(one, dist.get_rank() - ranks)
            for one in self.stack.payload(self.batch, incoming=True)
        }
        hidden = self.stack.from_pp(received, self.batch)
        self._end(self._layers(range(cut, len(walk)), hidden))
        return self.error

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

    def _received(self, part: PayloadTensor, source: int) -> Tensor:
        group, sizes = self._sizes(part.rows)
        own = sizes[0] if len(sizes) == 1 else sizes[group.rank]
        tensor = torch.empty(self._shape(part, own), dtype=torch.float64)
        if tensor.numel():
            dist.recv(tensor, source)
        if len(sizes) == 1:
            return tensor
        whole: Tensor = group.all_gather(tensor, sizes)
        return whole


def _send(tensor: Tensor, target: int) -> None:
    if tensor.numel():
        dist.send(tensor.contiguous(), target)


def stages(rank: int, text: str, cells: Sequence[Cell]) -> list[float]:
    """The largest error of each cell on this rank, which runs one half of a cut stack."""
    found = []
    for cell in cells:
        scene: Any = _prover(text).scene(cell, None)
        provider = groups(scene.topology.spec.tp)
        found.append(StageProgram(scene, cast(SimulatedGroups, provider)).forward())
    return found
