"""One cell of the proof: a stack on one topology, variant, policy, padding and batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from boundaryc.graph.build import ENTRY, Edge
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan
from boundaryc.topology.contracts import SEQUENCE_PARALLEL
from boundaryc.verify.batches import Layout, lay_out
from boundaryc.verify.fixture import Fixture, Parameter, Place
from boundaryc.verify.oracle import Reference
from boundaryc.verify.world import Call, SimulatedGroups, World

TOLERANCE = 1e-12
"""Largest allowed error, float64, relative to the largest value compared (at least 1)."""

PAD = 1e30
"""What pad rows hold at the entry of the stack: anything that leaks is unmistakable."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one run is for; ``rows`` are the real tokens of every attention-DP group."""

    topology: str
    variant: str
    policy: str
    padding: str
    rows: tuple[int, ...]

    def __str__(self) -> str:
        rows = ",".join(map(str, self.rows))
        return f"{self.topology} {self.variant} {self.policy} {self.padding} [{rows}]"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one cell showed. ``failure`` is None where everything held.

    ``collectives`` and ``wire_bytes`` are the largest of any rank for one forward.
    """

    cell: Cell
    error: float
    collectives: int
    wire_bytes: int
    failure: str | None


class MismatchError(Exception):
    """A rank holds something else than the oracle says it must."""


@dataclass(frozen=True)
class Subject:
    """A planned stack, its generated package, and the oracle's answers for one batch shape."""

    plan: StackPlan
    package: ModuleType
    fixture: Fixture

    def topology(self, name: str) -> TopologyPlan:
        """The plan of one topology."""
        return next(plan for plan in self.plan.topologies if plan.spec.name == name)


@dataclass(frozen=True)
class Scene:
    """Everything the ranks of one cell share."""

    subject: Subject
    cell: Cell
    topology: TopologyPlan
    layout: Layout
    tokens: Tensor
    reference: Reference

    @cached_property
    def column(self) -> int:
        """The kind of batch this is, found without the runtime's help."""
        even = self.layout.even_axes(self.topology.mesh)
        for index, column in enumerate(self.topology.columns):
            if column.variant == self.cell.variant and set(column.even) <= even:
                return index
        raise LookupError(f"no column for {self.cell}")

    @cached_property
    def boundaries(self) -> dict[Edge, Boundary]:
        """The planned boundaries of this batch."""
        policy = self.cell.policy
        stack = self.subject.plan.stack
        name = stack.policy_auto if policy == "auto" else policy
        return dict(self.topology.tables[name][self.column])

    @cached_property
    def held(self) -> Callable[[int, int], tuple[Tensor, Tensor]]:
        """For a rank and a mask of rows: positions of its real rows, and their tokens."""
        known: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

        def of(rank: int, rows: int) -> tuple[Tensor, Tensor]:
            if (rank, rows) not in known:
                tokens = self.layout.tokens(self.topology.mesh, rank, rows)
                real = [(at, token) for at, token in enumerate(tokens) if token is not None]
                known[rank, rows] = (
                    torch.tensor([at for at, _ in real], dtype=torch.long),
                    torch.tensor([token for _, token in real], dtype=torch.long),
                )
            return known[rank, rows]

        return of


def stage_scene(subject: Subject, cell: Cell, tokens: Tensor, reference: Reference) -> Scene:
    """Lays a batch out on the cell's topology."""
    topology = subject.topology(cell.topology)
    multiple = topology.row_multiples[cell.variant]
    layout = lay_out(topology.mesh, cell.rows, cell.padding, multiple)
    return Scene(subject, cell, topology, layout, tokens, reference)


def run_cell(scene: Scene, *, seed: int | None = None, poison: bool = True) -> Outcome:
    """Runs one cell on simulated ranks and compares every rank at every stage with the oracle."""
    world: World[float] = World(scene.topology.spec.tp, seed=seed, poison=poison)
    try:
        errors = world.run(lambda groups: _Rank(scene, groups).forward())
    except Exception as error:  # a proof reports every kind of failure of what it judges
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        return Outcome(scene.cell, float("inf"), 0, 0, f"{type(error).__name__}: {error}{notes}")
    traces = world.traces()
    return Outcome(
        scene.cell,
        max(errors),
        max(len(trace) for trace in traces),
        max(sum(_wire(call) for call in trace) for trace in traces),
        None,
    )


def _wire(call: Call) -> int:
    return call.wire_bytes(call.dtype.itemsize)


class _Rank:
    """One simulated rank: the model around the generated boundaries."""

    def __init__(self, scene: Scene, groups: SimulatedGroups) -> None:
        cell = scene.cell
        self.scene, self.rank = scene, groups.rank
        self.stack = scene.subject.package.load(cell.topology, groups, policy=cell.policy)
        self.batch = self.stack.batch(
            rows_per_dp=list(cell.rows),
            padding=cell.padding,
            mode="prefill",
            sequence_parallel=cell.variant == SEQUENCE_PARALLEL,
        )
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
        self._compare("the final norm", hidden, rows, self.scene.reference.output)
        return self.error

    def _embed(self) -> Tensor:
        first = self.scene.boundaries[self.scene.subject.plan.graph.walk[0][0]]
        assert first.edge.producer == ENTRY
        tokens = self.scene.layout.tokens(self.scene.topology.mesh, self.rank, first.start.rows)
        hidden = torch.full((len(tokens), self.scene.subject.fixture.width), PAD).double()
        positions, real = self.scene.held(self.rank, first.start.rows)
        hidden[positions] = self.scene.tokens[real]
        return scattered(hidden)

    def _bind(self, index: int) -> Any:
        weights = self.scene.subject.fixture.weights
        stages = self.scene.subject.plan.stack.layers[index]
        bound: dict[str, object] = {}
        for stage in stages:
            params = weights[Place(index, stage)].params
            bound |= bind_arguments(stage, params)
        return self.stack.layer(index).bind(**bound)

    def _stage(self, place: Place, edge: Edge, layer: Any, hidden: Any) -> Any:
        boundary, goal = getattr(layer, place.stage), self.scene.boundaries[edge].goal
        reference = self.scene.reference
        x: Tensor = boundary.prepare(hidden, self.batch)
        self._compare(f"{place}: input", x, goal.rows, reference.inputs[place])
        residual = self.batch.stream.residual
        self._compare(f"{place}: residual", residual, goal.residual, reference.residuals[place])
        stage = self.scene.subject.plan.stack.stage(place.stage)
        if stage.kind == "attention":
            y = self._compute(place, edge, x, mixes=True)
            _spoil(x, residual)
            return boundary.finish(y, self.batch)
        with boundary.exit(self.batch) as exit_:
            y = exit_.reduce_output(self._compute(place, edge, x, mixes=False))
        _spoil(x, residual)
        return exit_.finish(y)

    def _compute(self, place: Place, edge: Edge, x: Tensor, *, mixes: bool) -> Tensor:
        """This rank's part of the stage's output, for the rows it was given."""
        owes = self._following(edge).start.owes
        part, parts = self._part(owes)
        fixture = self.scene.subject.fixture
        if not mixes:
            return scattered(fixture.partial(place, x, part, parts, mixes=False))
        real = self.batch.real_rows
        out = torch.full_like(x, PAD)
        out[:real] = fixture.partial(place, x[:real], part, parts, mixes=True)
        return scattered(out)

    def _following(self, edge: Edge) -> Boundary:
        """A boundary that this stage's output crosses; all of them start from one contract."""
        return next(b for e, b in self.scene.boundaries.items() if e.source == edge.target)

    def _part(self, owes: int) -> tuple[int, int]:
        part, parts, rank = 0, 1, self.rank
        coordinate: list[int] = []
        for size in reversed(self.scene.topology.mesh.sizes):
            rank, at = divmod(rank, size)
            coordinate.insert(0, at)
        for index, size in enumerate(self.scene.topology.mesh.sizes):
            if owes >> index & 1:
                part, parts = part * size + coordinate[index], parts * size
        return part, parts

    def _compare(self, what: str, value: Tensor, rows: int, expected: Tensor) -> None:
        positions, tokens = self.scene.held(self.rank, rows)
        want = len(self.scene.layout.tokens(self.scene.topology.mesh, self.rank, rows))
        if value.shape[0] != want:
            raise MismatchError(f"{what}: {value.shape[0]} rows, must be {want}")
        if not len(tokens):
            return
        right = expected[tokens]
        error = float((value[positions] - right).abs().max() / right.abs().max().clamp(min=1.0))
        self.error = max(self.error, error)
        if not error <= TOLERANCE:
            raise MismatchError(f"{what}: error {error:.3g}")


def scattered(x: Tensor) -> Tensor:
    """The same values as a view that is not contiguous, between columns of NaN."""
    wide = torch.full((x.shape[0], 2 * x.shape[1]), float("nan"), dtype=x.dtype)
    wide[:, ::2] = x
    return wide[:, ::2]


def _spoil(x: Tensor, residual: Tensor) -> None:
    """Overwrites a stage's input after its last use, unless it is a view of the stream."""
    if x.untyped_storage().data_ptr() != residual.untyped_storage().data_ptr():
        x.fill_(float("nan"))


def bind_arguments(stage: str, params: dict[str, Tensor]) -> dict[str, object]:
    """What ``layer.bind`` takes for one stage: its single parameter, or nothing."""
    values = [Parameter(weight) for weight in params.values()]
    return {stage: values[0]} if len(values) == 1 else {}
