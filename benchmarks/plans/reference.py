"""What sglang 0.5.23 sends at a boundary, by its rules, and the least that any system must send.

The rules are for plain adds and norms, dense FFNs over all ranks or replicated, and experts over
all ranks or behind an all-to-all. Where a rule has two outcomes the cheaper one is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from boundaryc.graph.build import ENTRY, FINAL, Edge
from boundaryc.language.model import Stack, TopologySpec
from boundaryc.plan.result import Boundary
from boundaryc.report.moves import Sent
from boundaryc.topology import Mesh
from boundaryc.topology.contracts import (
    CONTEXT_PARALLEL,
    INPUT_SCATTERED,
    SEQUENCE_PARALLEL,
    contracts,
    regime,
)


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference on one topology, in batches of one variant and padding."""

    stack: Stack
    spec: TopologySpec
    mesh: Mesh
    variant: str
    padded_to_max: bool

    def sends(self, edge: Edge) -> tuple[Sent, ...]:
        """What one boundary sends, in order."""
        if edge.producer == ENTRY or edge.consumer == FINAL:
            return ()
        consumer, producer = self.stack.stage(edge.consumer), self.stack.stage(edge.producer)
        if consumer.kind == "attention":
            return self._to_attention(producer.name)
        return self._to_ffn(consumer.name)

    def _to_ffn(self, name: str) -> tuple[Sent, ...]:
        mesh, rows, heads = self.mesh, self._rows, self.mesh.mask("attn_tp")
        wanted, _ = self._contract(name)
        if wanted == mesh.every:  # an all-to-all takes each rank's own rows
            return (self._sent("reduce_scatter", heads, rows),) if heads else ()
        if self.variant == SEQUENCE_PARALLEL:
            scatter = self._sent("reduce_scatter", heads, rows)
            return (scatter, self._sent("all_gather", mesh.every & ~wanted, wanted))
        own = (self._sent("all_reduce", heads, rows),) if heads else ()
        if wanted == rows:
            return own
        if self.variant == CONTEXT_PARALLEL:
            return (*own, self._sent("all_gather", rows, 0))
        if heads:  # the sum over heads and the gather over groups are one placed all-reduce
            return (self._sent("all_reduce", mesh.every, 0),)
        return (self._sent("all_gather", rows, 0),)

    def _to_attention(self, name: str) -> tuple[Sent, ...]:
        mesh, rows, heads = self.mesh, self._rows, self.mesh.mask("attn_tp")
        held, owes = self._contract(name)
        back = (self._sent("all_gather", heads, rows),) if heads else ()
        if held == mesh.every:
            return back
        if not owes:
            return ()
        scatter = self._sent("reduce_scatter", mesh.every, 0)
        if self.variant == SEQUENCE_PARALLEL:
            return (scatter, *back)
        if self.variant == INPUT_SCATTERED or (self.variant == CONTEXT_PARALLEL and not heads):
            return (scatter,)
        if rows and self._scatters():
            return (scatter, *back)
        return (self._sent("all_reduce", owes, held),)

    def _scatters(self) -> bool:
        """Whether a scatter over all ranks is eligible.

        With fixed sizes where all groups are padded to the largest; with variable ones only where
        every rank is a group of its own and has experts of its own.
        """
        spec = self.spec
        return self.padded_to_max or spec.tp == spec.attn_dp == spec.moe.ep

    @property
    def _rows(self) -> int:
        return regime(self.variant, self.mesh).rows

    def _contract(self, name: str) -> tuple[int, int]:
        """The rows of a stage and what it owes; the first of several ways is the plain one."""
        demands = regime(self.variant, self.mesh)
        found = contracts(self.stack.stage(name), self.spec, self.mesh, demands)[0]
        return found.rows_in, found.owes

    def _sent(self, kind: str, axes: int, wide: int) -> Sent:
        times = 2 if kind == "all_reduce" else 1
        members, mesh = self.mesh.size(axes), self.mesh
        share = Fraction(mesh.size(mesh.every), mesh.size(wide))
        return Sent(f"{kind}({mesh.label(axes)})", times * share * (members - 1) / members)


def least(mesh: Mesh, boundary: Boundary) -> int:
    """Rows that must be sent for one token, however it is done, between the declared layouts.

    A row that owes a sum over k ranks and is needed by h takes (k - 1) + (h - 1): every other
    partial must leave its rank, and one rank can finish the sum. A complete row takes one for
    every rank that needs it and does not hold it. Before a merge a sum may go on being owed: then
    only the other partials must leave their ranks.
    """
    start, needed = boundary.start, mesh.size(mesh.every & ~boundary.goal.rows)
    if boundary.goal.owes:
        summed = mesh.size(start.owes & ~boundary.goal.owes)
        return mesh.size(boundary.goal.owes) * (summed - 1)
    if start.owes:
        return mesh.size(start.owes) - 1 + needed - 1
    return needed - mesh.size(mesh.every & ~(boundary.goal.rows | start.rows))
