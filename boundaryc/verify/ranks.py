"""The model around the generated boundaries, as one simulated rank runs it."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from boundaryc import runtime
from boundaryc.graph.build import Edge
from boundaryc.plan.result import Boundary, StackPlan
from boundaryc.topology.contracts import CONTEXT_PARALLEL, INPUT_SCATTERED, SEQUENCE_PARALLEL
from boundaryc.topology.mesh import Mesh
from boundaryc.verify.batches import coordinates
from boundaryc.verify.fixture import Parameter, Place, mix
from boundaryc.verify.scene import PAD, TOLERANCE, Cell, Held, Scene
from boundaryc.verify.world import SimulatedGroups


class MismatchError(Exception):
    """A rank holds something else than the oracle says it must."""


class RankProgram:
    """One rank's forward: every input, every residual and the output are compared on the way."""

    def __init__(self, scene: Scene, groups: SimulatedGroups) -> None:
        self.scene, self.rank = scene, groups.rank
        self.stack = _load(scene, groups)
        self.batch = self.stack.batch(**batch_facts(scene.cell))
        self.error = 0.0

    def forward(self) -> float:
        """Runs the whole stack; returns the largest error. MismatchError where it is too large."""
        plan, batch = self.scene.subject.plan, self.batch
        self.stack.start(batch)
        hidden: Any = self._embed()
        for index, edges in enumerate(plan.graph.walk):
            layer = self._bind(index)
            for edge in edges:
                hidden = self._stage(Place(index, edge.consumer), edge, layer, hidden)
        hidden = self.stack.norm(hidden, batch, Parameter(self.scene.subject.fixture.final))
        rows = self.scene.boundaries[plan.graph.last].goal.rows
        held = self.scene.held(self.rank, rows)
        self._compare("the final norm", hidden, held, self.scene.reference.output)
        return self.error

    def _embed(self) -> Tensor:
        """The stack's input; a partial one is this rank's share of the columns."""
        start = self.scene.boundaries[self.scene.subject.plan.graph.walk[0][0]].start
        held = self.scene.held(self.rank, start.rows)
        width = self.scene.subject.fixture.width
        hidden = torch.full((held.count, width), PAD, dtype=torch.float64)
        hidden[held.positions] = self.scene.tokens[held.tokens]
        part, parts = _share(self.scene.topology.mesh, self.rank, start.owes)
        if parts > 1:
            own = torch.zeros_like(hidden)
            columns = slice(width * part // parts, width * (part + 1) // parts)
            own[:, columns] = hidden[:, columns]
            hidden = own
        return scattered(hidden)

    def _bind(self, index: int) -> Any:
        subject = self.scene.subject
        bound: dict[str, object] = {}
        for stage in subject.plan.stack.layers[index]:
            params = subject.fixture.weights[Place(index, stage)].params
            bound |= bind_arguments(subject.plan, stage, params)
        return self.stack.layer(index).bind(**bound)

    def _stage(self, place: Place, edge: Edge, layer: Any, hidden: Any) -> Any:
        boundary, goal = getattr(layer, place.stage), self.scene.boundaries[edge].goal
        reference = self.scene.reference
        x: Tensor = boundary.prepare(hidden, self.batch)
        held = self.scene.held(self.rank, goal.rows, by_token=goal.by_token)
        self._compare(f"{place}: input", x, held, reference.inputs[place])
        residual = self.batch.stream.residual
        rest = self.scene.held(self.rank, goal.residual)
        self._compare(f"{place}: residual", residual, rest, reference.residuals[place])
        stage = self.scene.subject.plan.stack.stage(place.stage)
        following = self._following(edge)
        if stage.kind == "attention":
            y = self._attend(place, x, held, following)
            _spoil(x, residual)
            return boundary.finish(y, self.batch)
        with boundary.exit(self.batch) as exit_:
            y = exit_.reduce_output(self._feed_forward(place, x, following))
        _spoil(x, residual)
        return exit_.finish(y)

    def _feed_forward(self, place: Place, x: Tensor, following: Boundary) -> Tensor:
        """This rank's part of an FFN's output, for the rows it was given."""
        part, parts = _share(self.scene.topology.mesh, self.rank, following.start.owes)
        return scattered(self.scene.subject.fixture.partial(place, x, part, parts))

    def _attend(self, place: Place, x: Tensor, held: Held, following: Boundary) -> Tensor:
        """This rank's part of attention's output. Pad rows are never computed on.

        Rows of a request that other ranks hold are what the oracle says they are: this rank's own
        were just compared with it.
        """
        start, fixture = following.start, self.scene.subject.fixture
        part, parts = _share(self.scene.topology.mesh, self.rank, start.owes)
        out = self.scene.held(self.rank, start.rows, by_token=start.by_token)
        y = torch.full((out.count, fixture.width), PAD, dtype=torch.float64)
        seen = self.scene.mixed[place][out.tokens]
        if out is held and self.scene.variant != CONTEXT_PARALLEL:
            seen = mix(x[held.positions])
        y[out.positions] = fixture.partial(place, seen, part, parts)
        return scattered(y)

    def _following(self, edge: Edge) -> Boundary:
        """A boundary that this stage's output crosses; all of them start from one contract."""
        return next(b for e, b in self.scene.boundaries.items() if e.source == edge.target)

    def _compare(self, what: str, value: Tensor, held: Held, expected: Tensor) -> None:
        if value.shape[0] != held.count:
            raise MismatchError(f"{what}: {value.shape[0]} rows, must be {held.count}")
        if not len(held.tokens):
            return
        right = expected[held.tokens]
        error = float((value[held.positions] - right).abs().max() / right.abs().max().clamp(min=1))
        self.error = max(self.error, error)
        if not error <= TOLERANCE:
            raise MismatchError(f"{what}: error {error:.3g}")


def batch_facts(cell: Cell) -> dict[str, Any]:
    """The arguments of ``stack.batch`` for a cell."""
    facts: dict[str, Any] = {
        "rows_per_dp": list(cell.rows),
        "padding": cell.padding,
        "mode": "prefill",
    }
    if cell.variant == SEQUENCE_PARALLEL:
        facts["sequence_parallel"] = True
    if cell.variant == INPUT_SCATTERED:
        facts |= {"input_scattered": True, "embeddings": cell.entry}
    if cell.variant == CONTEXT_PARALLEL and cell.split:
        requests = tuple((rows,) if rows else () for rows in cell.rows)
        facts["cp"] = runtime.ContextParallel(split=cell.split, requests=requests)
    return facts


def _load(scene: Scene, groups: SimulatedGroups) -> Any:
    """The generated stack; its plans for large batches where the cell asks for them."""
    cell, package = scene.cell, scene.subject.package
    if not cell.many:
        return package.load(cell.topology, groups, policy=cell.policy)
    generated = import_module(f"{package.__name__}.{cell.topology}").Stack
    columns = tuple(
        column if column.max_rows is None else replace(column, max_rows=-1)
        for column in generated.columns
    )
    return type("Stack", (generated,), {"columns": columns})(groups, policy=cell.policy)


def _share(mesh: Mesh, rank: int, owes: int) -> tuple[int, int]:
    """Which part of an owed sum a rank contributes, of how many."""
    part, parts = 0, 1
    for index, (at, size) in enumerate(zip(coordinates(mesh, rank), mesh.sizes, strict=True)):
        if owes >> index & 1:
            part, parts = part * size + at, parts * size
    return part, parts


def scattered(x: Tensor) -> Tensor:
    """The same values as a view that is not contiguous, between columns of NaN."""
    wide = torch.full((x.shape[0], 2 * x.shape[1]), float("nan"), dtype=x.dtype)
    wide[:, ::2] = x
    return wide[:, ::2]


def _spoil(x: Tensor, residual: Tensor) -> None:
    """Overwrites a stage's input after its last use, unless it is a view of the stream."""
    if x.untyped_storage().data_ptr() != residual.untyped_storage().data_ptr():
        x.fill_(float("nan"))


def bind_arguments(plan: StackPlan, stage: str, params: dict[str, Tensor]) -> dict[str, object]:
    """What ``layer.bind`` takes for one stage.

    The norm of a built-in read goes by the stage's own name, a parameter of a declared operation by
    the stage's name and its own.
    """
    declared = plan.stack.stage(stage)
    read, update = plan.operations[declared.read], plan.operations[declared.update]
    named = {stage if read.call is None else f"{stage}_{name}": name for name in read.params}
    named |= {f"{stage}_{name}": name for name in update.params}
    return {argument: Parameter(params[name]) for argument, name in named.items()}
