"""Two-batch overlap on simulated ranks: both halves of a batch run stage by stage in turns.

Each half is compared with the oracle at every stage, and what they are merged to with the oracle of
the whole batch, in which the halves of a DP group are requests of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from boundaryc.plan.result import Boundary
from boundaryc.verify.cells import Outcome, judged
from boundaryc.verify.fixture import Place, embeddings
from boundaryc.verify.oracle import interpret
from boundaryc.verify.poison import poisoned_allocations
from boundaryc.verify.ranks import RankProgram
from boundaryc.verify.scene import Cell, Held, Scene, stage_scene
from boundaryc.verify.world import Call, SimulatedGroups, World

if TYPE_CHECKING:
    from boundaryc.verify.run import Prover


@dataclass(frozen=True)
class Halves:
    """A whole batch and the two that it is split into; ``first`` are the rows of the first."""

    whole: Scene
    children: tuple[Scene, Scene]
    first: tuple[int, ...]


def halves(prover: Prover, cell: Cell, first: tuple[int, ...]) -> Halves:
    """The scenes of ``cell`` and of its two halves, with the same tokens."""
    stack, fixture = prover.subject.plan.stack, prover.subject.fixture
    rest = tuple(rows - own for rows, own in zip(cell.rows, first, strict=True))
    requests = [rows for pair in zip(first, rest, strict=True) for rows in pair]
    tokens = embeddings(sum(cell.rows), fixture.width, prover.seed + 1)
    reference = interpret(stack, fixture, tokens, requests)
    whole = stage_scene(prover.subject, cell, tokens, reference)
    parts = tokens.split(requests)
    children = []
    for rows, own in ((first, parts[::2]), (rest, parts[1::2])):
        half = torch.cat(own)
        reference = interpret(stack, fixture, half, list(rows))
        children.append(stage_scene(prover.subject, replace(cell, rows=rows), half, reference))
    whole = replace(whole, requests=tuple(requests))
    return Halves(whole, (children[0], children[1]), first)


class HalfProgram(RankProgram):
    """One half on one rank: on the stack and with the batch it is given."""

    def __init__(
        self, scene: Scene, whole: RankProgram, batch: Any, hidden: Any, without_exits: bool
    ) -> None:
        super().__init__(scene, whole._groups)
        self.without_exits = without_exits
        self.stack, self.batch, self.hidden = whole.stack, batch, hidden
        self._give()


class OverlapProgram(RankProgram):
    """One rank's forward of which ``layers`` run in two halves."""

    def __init__(
        self, scenes: Halves, groups: SimulatedGroups, layers: range | None, ends: bool
    ) -> None:
        super().__init__(scenes.whole, groups)
        depth = len(scenes.whole.subject.plan.graph.walk)
        self._halves, self._depth, self._ends = scenes, depth, ends
        self._split = range(depth) if layers is None else layers

    def _attend(self, place: Place, x: Tensor, held: Held, following: Boundary) -> Tensor:
        """As the oracle says what is seen: a DP group has two requests here."""
        return super()._attend(place, x, replace(held), following)

    def stages(self) -> Iterator[None]:
        """Runs the whole stack; others may run after every stage of a half."""
        self.stack.start(self.batch)
        self.hidden = self._embed()
        yield from self.run(range(self._split.start))
        children = self.batch.split(self._halves.first)
        given = self.stack.split(self.hidden, self.batch, children)
        one, other = (
            HalfProgram(scene, self, batch, hidden, self._ends)
            for scene, batch, hidden in zip(self._halves.children, children, given, strict=True)
        )
        for _ in zip_longest(one.run(self._split), other.run(self._split)):
            yield
        last = self._split.stop == self._depth
        if last:
            one.end()
            other.end()
        ended = (one.batch, other.batch)  # behind a pipeline cut a half has another batch
        self.hidden = self.stack.merge((one.hidden, other.hidden), ended, self.batch)
        self.error = max(one.error, other.error)
        if last:
            held, expected = self._on_stack_rows(), self.scene.reference.output
            self._compare("the merged output", self.hidden, held, expected)
            return
        yield from self.run(range(self._split.stop, self._depth))
        self.end()


def overlapped(
    prover: Prover,
    cell: Cell,
    first: tuple[int, ...],
    *,
    layers: range | None = None,
    without_exits: bool = True,
    schedule: int | None = None,
) -> list[list[Call]]:
    """Runs ``cell`` with ``layers``, all by default, in two halves; the collectives of every rank.

    ``first`` are the rows of the first half, in which, as in the second, FFNs run ``without_exits``
    or with them. MismatchError where a rank differs from the oracle.
    """
    scenes = halves(prover, cell, first)
    world: World[float] = World(scenes.whole.topology.spec.tp, seed=schedule)

    def forward(groups: SimulatedGroups) -> float:
        return OverlapProgram(scenes, groups, layers, without_exits).forward()

    with poisoned_allocations():
        world.run(forward)
    return world.traces()


def run_halves(prover: Prover, cell: Cell, *, schedule: int | None = None) -> Outcome:
    """Runs a cell in the halves that it asks for: every other DP group has all its rows in one."""
    first = tuple(rows if group % 2 else rows // 2 for group, rows in enumerate(cell.rows))
    scenes = halves(prover, cell, first)
    world: World[float] = World(scenes.whole.topology.spec.tp, seed=schedule)

    def forward(groups: SimulatedGroups) -> float:
        return OverlapProgram(scenes, groups, None, cell.halves == "alone").forward()

    with poisoned_allocations():
        return judged(cell, world, forward)
