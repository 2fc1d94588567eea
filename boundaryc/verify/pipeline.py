"""Pipeline cuts of one simulated rank: it runs every pipeline stage, one after the other.

The transport keeps its lane: each rank gives its payload to itself. Where the stack file says that
payloads are complete, each rank keeps a part of every tensor's rows and the whole is gathered over
attention TP, as engines do that send less.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from typing import Any

from torch import Tensor

from boundaryc import runtime
from boundaryc.runtime.members import split_evenly
from boundaryc.topology.contracts import CONTEXT_PARALLEL, INPUT_SCATTERED, SEQUENCE_PARALLEL
from boundaryc.verify.fusing import attach
from boundaryc.verify.scene import Cell, Scene
from boundaryc.verify.world import SimulatedGroups


class PayloadError(Exception):
    """A payload that is not what was said of it."""


def batch_facts(cell: Cell) -> dict[str, Any]:
    """The arguments of ``stack.batch`` for a cell."""
    facts: dict[str, Any] = {
        "rows_per_dp": list(cell.rows),
        "padding": cell.padding,
        "mode": cell.mode,
    }
    if cell.variant == SEQUENCE_PARALLEL:
        facts["sequence_parallel"] = True
    if cell.variant == INPUT_SCATTERED:
        facts |= {"input_scattered": True, "embeddings": cell.entry}
    if cell.variant == CONTEXT_PARALLEL and cell.split:
        requests = tuple((rows,) if rows else () for rows in cell.rows)
        facts["cp"] = runtime.ContextParallel(split=cell.split, requests=requests)
    return facts


class Pipeline:
    """The stacks of one rank, one for each run of layers between two cuts."""

    def __init__(self, scene: Scene, groups: SimulatedGroups) -> None:
        self._scene, self._groups = scene, groups
        layers = len(scene.subject.plan.stack.layers)
        bounds = [0, *scene.cell.cuts, layers]
        self._runs = {first: range(first, stop) for first, stop in pairwise(bounds)}

    def stack(self, first: int) -> Any:
        """The generated stack of the layers from ``first`` to the next cut."""
        cell, package = self._scene.cell, self._scene.subject.package
        layers = self._runs[first] if cell.cuts else None
        load = package.load
        if cell.many:
            load = _of_many(import_module(f"{package.__name__}.{cell.topology}").Stack)
        stack = load(cell.topology, self._groups, policy=cell.policy, layers=layers)
        return attach(stack, self._scene)

    def cross(self, first: int, stack: Any, batch: Any, hidden: Any) -> tuple[Any, Any, Any]:
        """The stack, the batch and the output with which layer ``first`` goes on."""
        form = batch.stream.form
        extended = form is runtime.Form.COMPLETED and self._scene.deeds is None  # by an extra
        untouched = form is runtime.Form.PLANNED or extended
        told = stack.payload(batch, incoming=False)
        sent = stack.to_pp(hidden, batch)
        if untouched and {(one.name, one.rows) for one in told} != _shapes(sent):
            raise PayloadError(f"{sorted(_shapes(sent))} crossed where {told} was announced")
        if self._scene.subject.plan.stack.pipeline == "complete":
            sent = {name: self._sliced(stack, tensor) for name, tensor in sent.items()}
        sent = {name: tensor.clone() for name, tensor in sent.items()}
        after = self.stack(first)
        batch = after.batch(**batch_facts(self._scene.cell))
        if told != after.payload(batch, incoming=True):
            raise PayloadError(f"{told} is sent before layer {first}, something else is expected")
        stages = self._scene.subject.plan.stack.layers[first]
        entered = getattr(after.layer(first), stages[0]) if stages else after
        return after, batch, entered.from_pp(sent, batch)

    def _sliced(self, stack: Any, tensor: Tensor) -> Tensor:
        """The tensor from parts of it that the ranks of one attention-TP group keep."""
        axes = tuple(name for name, _, axis in stack.mesh.atoms if axis == "attn_tp")
        if not axes:
            return tensor
        group = self._groups.collective(stack.mesh, axes)
        sizes = split_evenly(tensor.shape[0], group.size)
        return group.all_gather(tensor.split(list(sizes))[group.rank].contiguous(), sizes)


def _shapes(sent: dict[str, Tensor]) -> set[tuple[str, int]]:
    return {(name, tensor.shape[0]) for name, tensor in sent.items()}


def _of_many(generated: Any) -> Any:
    """``load`` of a stack that runs its plans of large batches on small ones."""
    columns = tuple(
        column if column.max_rows is None else replace(column, max_rows=-1)
        for column in generated.columns
    )
    stack = type("Stack", (generated,), {"columns": columns})
    return lambda topology, groups, **chosen: stack(groups, **chosen)
