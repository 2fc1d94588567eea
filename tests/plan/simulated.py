"""Stacks built as objects, emitted, imported, and run on simulated ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.language.model import Stack
from boundaryc.plan.compose import plan_stack
from boundaryc.verify.cells import Cell
from boundaryc.verify.modules import forget, import_package
from boundaryc.verify.ranks import RankProgram
from boundaryc.verify.run import Prover, poisoned_allocations
from boundaryc.verify.world import Call, SimulatedGroups, World

Compute = Callable[["Stage", Tensor], Tensor]
"""What a stage computes from its input; an FFN reads the open exit and must obey it."""


@contextmanager
def subject(stack: Stack) -> Iterator[Prover]:
    """The generated code of ``stack``, ready to run cells and numbers."""
    plan = plan_stack(stack)
    files = emit(plan, Origin("sample.yaml", "boundaryc compile", "0" * 64)).files
    package = import_package(files, stack.name)
    try:
        yield Prover(plan, package)
    finally:
        forget(package)


@dataclass
class Decided:
    """One exit of one rank: its flags, and how many collectives the rank had run when it opened."""

    stage: str
    fuse: bool
    scatter: bool
    calls: int


class RecordingProgram(RankProgram):
    """A verified forward that notes what every exit published."""

    def __init__(self, scene: Any, groups: SimulatedGroups, world: World[Any]) -> None:
        super().__init__(scene, groups)
        self.decided: list[Decided] = []
        self._world = world

    def _feed_forward(self, place: Any, x: Tensor, following: Any) -> Tensor:
        out = self.batch.exit
        assert out is not None
        calls = len(self._world.traces()[self.rank])
        flags = (out.fuse_mlp_allreduce, out.mlp_reduce_scatter)
        self.decided.append(Decided(place.stage, *flags, calls))
        return super()._feed_forward(place, x, following)


@dataclass
class Verified:
    """A cell that holds: the collectives of each rank, what exits decided, and the programs."""

    traces: list[list[Call]]
    decided: list[list[Decided]]
    programs: list[RecordingProgram]


def verified(prover: Prover, cell: Cell) -> Verified:
    """Runs a cell; every rank's inputs, residuals and output are compared with the oracle."""
    world: World[RecordingProgram] = World(prover.subject.topology(cell.topology).spec.tp, seed=1)
    scene = prover.scene(cell)

    def program(groups: SimulatedGroups) -> RecordingProgram:
        found = RecordingProgram(scene, groups, world)
        found.forward()
        return found

    with poisoned_allocations():
        programs = world.run(program)
    return Verified(world.traces(), [one.decided for one in programs], programs)


def kinds(trace: list[Call], *, since: int = 0) -> list[str]:
    """The collectives of a rank, as ``kind(group)``."""
    return [f"{call.kind}({call.label})" for call in trace[since:]]


@dataclass
class Stage:
    """Where a computation runs: rank, layer, stage, batch, and the exit where there is one."""

    rank: int
    layer: int
    name: str
    batch: Any
    exit: Any = None


@dataclass
class Numbers:
    """What a forward left on one rank: the residual behind the final norm, and its output."""

    residual: Tensor
    output: Tensor
    rows: dict[str, list[int]] = field(default_factory=dict)


class Unit:
    """The parameters of a norm that scales nothing."""

    def __init__(self, width: int) -> None:
        self.weight = torch.ones(width, dtype=torch.float64)


def numbers(
    prover: Prover,
    topology: str,
    compute: Compute,
    *,
    policy: str = "auto",
    hidden: Callable[[int, Any], Tensor] | None = None,
    width: int = 64,
    terms: Mapping[str, Mapping[str, Tensor]] = MappingProxyType({}),
    **facts: Any,
) -> tuple[list[Numbers], list[list[Call]]]:
    """Runs ``compute`` between the generated boundaries of every rank.

    ``hidden(rank, batch)`` is the stack's input, zeros by default; ``terms`` are the additive terms
    of stages with a partial output; ``facts`` are the batch's.
    """
    world: World[Numbers] = World(prover.subject.topology(topology).spec.tp, seed=3)

    def program(groups: SimulatedGroups) -> Numbers:
        stack = prover.subject.package.load(topology, groups, policy=policy)
        batch = stack.batch(**{"padding": "sum_len", "mode": "prefill", **facts})
        rows = batch.local_rows if batch.variant == "context_parallel" else batch.group_rows
        x: Any = torch.zeros(rows, width, dtype=torch.float64)
        x = x if hidden is None else hidden(groups.rank, batch)
        stack.start(batch)
        seen: dict[str, list[int]] = {}
        for index, names in enumerate(prover.subject.plan.stack.layers):
            layer = stack.layer(index).bind(**{name: Unit(width) for name in names})
            for name in names:
                boundary, stage = getattr(layer, name), Stage(groups.rank, index, name, batch)
                value = boundary.prepare(x, batch)
                seen.setdefault(name, []).append(value.shape[0])
                if prover.subject.plan.stack.stage(name).reduction == "partial":
                    x = boundary.finish(compute(stage, value), batch, **terms.get(name, {}))
                else:
                    x = _in_exit(boundary, stage, compute, value)
        stream = batch.stream
        output = stack.norm(x, batch, Unit(width))
        return Numbers(stream.residual, output, seen)

    return world.run(program), world.traces()


def _in_exit(boundary: Any, stage: Stage, compute: Compute, value: Tensor) -> Any:
    with boundary.exit(stage.batch) as stage.exit:
        value = compute(stage, value)
    return stage.exit.finish(value)


def summed(stage: Stage, partial: Tensor) -> Tensor:
    """What compute returns for a partial: it does the sum itself where its exit says so."""
    out: Tensor = stage.exit.reduce_output(partial)
    return out


def nothing(stage: Stage, x: Tensor) -> Tensor:
    """A stage that contributes zeros on the rows it was given."""
    out = torch.zeros_like(x)
    return out if stage.exit is None else summed(stage, out)


def groups_of_rank_0(size: int) -> SimulatedGroups:
    """The groups of rank 0 of a stage, for batches that nobody runs."""
    return SimulatedGroups(World[None](size), 0)
