"""One cell of the proof laid out: what every rank must hold, and what it must compute."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Literal

import torch
from torch import Tensor

from boundaryc.graph.build import Edge
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan
from boundaryc.topology.contracts import CONTEXT_PARALLEL, ORDINARY
from boundaryc.verify.batches import Layout, in_token_order, lay_out, shortest_request
from boundaryc.verify.deeds import Deeds
from boundaryc.verify.fixture import Fixture, Place, mix
from boundaryc.verify.oracle import Reference
from boundaryc.verify.quantized_sums import Sums

Split = Literal["", "zigzag", "interleaved"]
Halves = Literal["", "exits", "alone"]

TOLERANCE = 1e-12
"""Largest allowed error, float64, relative to the largest value compared (at least 1)."""

PAD = 1e30
"""What pad rows hold at the entry of the stack: anything that leaks is unmistakable."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one run is for; ``rows`` are the real tokens of every attention-DP group.

    ``split`` deals the rows out to context-parallel shards; ``entry`` says whether the stack's
    input still owes its sum; ``many`` runs the plans of large batches on this small one; ``mode``
    is "prefill" or "decode", which only some stacks tell apart. ``cuts`` are the layers before
    which the stack goes on on other ranks. With ``halves`` the batch is split into two that overlap
    in every layer, whose FFNs compute inside exits or "alone", without them.
    """

    topology: str
    variant: str
    policy: str
    padding: str
    rows: tuple[int, ...]
    split: Split = ""
    entry: str = "complete"
    many: bool = False
    mode: str = "prefill"
    cuts: tuple[int, ...] = ()
    halves: Halves = ""

    def __str__(self) -> str:
        rows = ",".join(map(str, self.rows))
        extras = [self.split, self.entry if self.entry != "complete" else "", "many" * self.many]
        extras.append("decode" * (self.mode == "decode"))
        extras.append(f"cut {','.join(map(str, self.cuts))}" if self.cuts else "")
        extras.append(f"halves {self.halves}" if self.halves else "")
        more = "".join(f" {extra}" for extra in extras if extra)
        return f"{self.topology} {self.variant} {self.policy} {self.padding}{more} [{rows}]"


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
    """Everything the ranks of one cell share; ``deeds``: what the model does between stages.

    ``requests`` are the lengths of all requests where a DP group has several, else None.
    """

    subject: Subject
    cell: Cell
    topology: TopologyPlan
    layout: Layout
    tokens: Tensor
    reference: Reference
    deeds: Deeds | None = None
    requests: tuple[int, ...] | None = None

    @cached_property
    def column(self) -> int:
        """The kind of batch this is, found without the runtime's help."""
        even, rows = self.layout.even_axes(self.topology.mesh), self.layout.rows
        few = not self.cell.many and rows <= self.topology.few_rows.get(self.variant, rows)
        for index, column in enumerate(self.topology.columns):
            if (
                column.variant == self.variant
                and column.entry == self.cell.entry
                and set(column.even) <= even
                and column.few in (None, few)
                and column.mode in (None, self.cell.mode)
            ):
                return index
        raise LookupError(f"no column for {self.cell}")

    @cached_property
    def variant(self) -> str:
        """The cell's variant, or the ordinary one where some shard would get no token."""
        if self.cell.variant != CONTEXT_PARALLEL:
            return self.cell.variant
        return self.cell.variant if dealt_out(self.topology, self.cell) else ORDINARY

    @cached_property
    def boundaries(self) -> dict[Edge, Boundary]:
        """The planned boundaries of this batch."""
        policy = self.cell.policy
        stack = self.subject.plan.stack
        name = stack.policy_auto if policy == "auto" else policy
        return dict(self.topology.tables[name][self.column])

    @cached_property
    def sums(self) -> Sums:
        """What ranks bring to sums that travel quantised."""
        return Sums(len(self.tokens))

    @cached_property
    def _held(self) -> dict[tuple[int, int, bool], Held]:
        return {}

    def held(self, rank: int, rows: int, *, by_token: bool = False) -> Held:
        """What a rank holds of a value on ``rows``, in shard or in token order."""
        key = (rank, rows, by_token)
        if key not in self._held:
            tokens = self.layout.tokens(self.topology.mesh, rank, rows)
            self._held[key] = Held.of(in_token_order(tokens) if by_token else tokens)
        return self._held[key]

    @cached_property
    def mixed(self) -> dict[Place, Tensor]:
        """What attention sees of every token, for ranks that hold only part of a request."""
        lengths = list(self.requests or self.cell.rows)
        return {
            place: torch.cat([mix(part) for part in x.split(lengths)])
            for place, x in self.reference.inputs.items()
        }


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of one rank: how many, which of them are real, and their tokens."""

    count: int
    positions: Tensor
    tokens: Tensor

    @classmethod
    def of(cls, rows: list[int | None]) -> Held:
        """The rows in their order, pads as None."""
        real = [(at, token) for at, token in enumerate(rows) if token is not None]
        return cls(
            len(rows),
            torch.tensor([at for at, _ in real], dtype=torch.long),
            torch.tensor([token for _, token in real], dtype=torch.long),
        )


def dealt_out(topology: TopologyPlan, cell: Cell) -> bool:
    """Whether every context-parallel shard of a cell gets tokens of every request."""
    shards = topology.mesh.size(topology.mesh.mask("attn_cp"))
    least = shortest_request(cell.split, shards)
    return any(cell.rows) and all(not rows or rows >= least for rows in cell.rows)


def stage_scene(
    subject: Subject,
    cell: Cell,
    tokens: Tensor,
    reference: Reference,
    deeds: Deeds | None = None,
) -> Scene:
    """Lays a batch out on the cell's topology."""
    topology = subject.topology(cell.topology)
    split = cell.split if cell.split and dealt_out(topology, cell) else None
    variant = ORDINARY if cell.split and not split else cell.variant
    multiple = topology.row_multiples[variant]
    if split:
        # a shard is padded for what cuts it further, which the shards themselves do not
        slots = topology.mesh.size(topology.mesh.mask("attn_tp"))
        multiple = 1 if multiple % slots else slots
    layout = lay_out(topology.mesh, cell.rows, cell.padding, multiple, split)
    return Scene(subject, cell, topology, layout, tokens, reference, deeds)
