"""Runs the cells of a proof and shrinks what fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import ModuleType

import torch

from boundaryc.language.model import Stage
from boundaryc.operations import transform_operation
from boundaryc.plan.result import StackPlan
from boundaryc.verify.binding import last_params
from boundaryc.verify.cells import Outcome, run_cell
from boundaryc.verify.deeds import draw
from boundaryc.verify.fixture import build_fixture, embeddings
from boundaryc.verify.oracle import Reference, interpret
from boundaryc.verify.overlap import run_halves
from boundaryc.verify.poison import poisoned_allocations
from boundaryc.verify.quantized import GROUP
from boundaryc.verify.scene import Cell, Scene, Subject, stage_scene

WIDTH = 64
"""Columns of the stand-in computation. At least one for every rank that shares a sum."""


class Prover:
    """A planned stack with its generated package, ready to run cells."""

    def __init__(self, plan: StackPlan, package: ModuleType, *, seed: int = 0) -> None:
        self.seed = seed
        width = max(WIDTH, max(topology.spec.tp for topology in plan.topologies))
        if any(one.quantize and one.quantize.scale == "group128" for one in plan.stack.stages):
            width = max(2, -(-width // GROUP)) * GROUP
        elif any(one.quantized_sum for one in plan.stack.stages):
            width = max(width, GROUP + GROUP // 2)  # a block, and one that is not full
        fixture = build_fixture(
            plan.stack, stage_params(plan), width=width, seed=seed, last=last_params(plan)
        )
        self.subject = Subject(plan, package, fixture)
        self._references: dict[tuple[int, ...], tuple[torch.Tensor, Reference]] = {}

    def run(self, cell: Cell, *, schedule: int | None = None, deeds: int | None = None) -> Outcome:
        """One cell; ``schedule`` draws the order in which the ranks run.

        ``deeds`` draws what the model does with outputs between stages; None: nothing, and nothing
        in a cell that runs in halves.
        """
        if cell.halves:
            return run_halves(self, cell, schedule=schedule)
        with poisoned_allocations():
            return run_cell(self.scene(cell, deeds), seed=schedule)

    def scene(self, cell: Cell, deeds: int | None = None) -> Scene:
        """The cell with its tokens and the oracle's answers, which cells of equal rows share."""
        stack, fixture = self.subject.plan.stack, self.subject.fixture
        if cell.rows not in self._references:
            tokens = embeddings(sum(cell.rows), fixture.width, self.seed + 1)
            reference = interpret(stack, fixture, tokens, list(cell.rows))
            self._references[cell.rows] = (tokens, reference)
        tokens, reference = self._references[cell.rows]
        if deeds is None:
            return stage_scene(self.subject, cell, tokens, reference)
        drawn = draw(
            self.subject.plan, fixture.width, len(tokens), deeds, partial=cell.entry == "partial"
        )
        reference = interpret(stack, fixture, tokens, list(cell.rows), drawn.changes)
        return stage_scene(self.subject, cell, tokens, reference, drawn)

    def prove(self, cells: Iterable[Cell]) -> Iterator[Outcome]:
        """Runs cells one after the other."""
        for cell in cells:
            yield self.run(cell)


def stage_params(plan: StackPlan) -> dict[str, tuple[str, ...]]:
    """The names of the tensors that each stage binds.

    Those of its read, its transform, its update, and of the quantisation of its input.
    """
    return {stage.name: _params(plan, stage) for stage in plan.stack.stages}


def _params(plan: StackPlan, stage: Stage) -> tuple[str, ...]:
    names = [stage.read, stage.update]
    if stage.transform is not None:
        names.insert(1, transform_operation(stage.transform.name))
    bound = [param for name in names for param in plan.operations[name].params]
    return (*bound, *(stage.quantize.params if stage.quantize else ()))


def shrink(prover: Prover, failing: Cell) -> Outcome:
    """The smallest cell near ``failing`` that still fails: fewer ranks first, then fewer rows."""

    def fails(cell: Cell) -> bool:
        return prover.run(cell).failure is not None

    smallest = _smaller_topology(prover.subject.plan, failing, fails)
    shrunk = True
    while shrunk:
        shrunk = False
        for candidate in _smaller_rows(smallest):
            if fails(candidate):
                smallest, shrunk = candidate, True
                break
    return prover.run(smallest)


def _smaller_topology(plan: StackPlan, cell: Cell, fails: Callable[[Cell], bool]) -> Cell:
    for topology in sorted(plan.topologies, key=lambda topology: topology.spec.tp):
        if topology.spec.name == cell.topology:
            break
        groups = topology.spec.attn_dp
        if cell.variant not in topology.row_multiples or groups > len(cell.rows):
            continue
        candidate = replace(cell, topology=topology.spec.name, rows=cell.rows[:groups])
        if fails(candidate):
            return candidate
    return cell


def _smaller_rows(cell: Cell) -> Iterator[Cell]:
    if cell.halves:
        yield replace(cell, halves="")
    if len(cell.cuts) > 1:
        yield from (replace(cell, cuts=(cut,)) for cut in cell.cuts)
    for index, count in enumerate(cell.rows):
        for fewer in sorted({0, 1, count // 2, count - 1}):
            if 0 <= fewer < count:
                rows = (*cell.rows[:index], fewer, *cell.rows[index + 1 :])
                yield replace(cell, rows=rows)
