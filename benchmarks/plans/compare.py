"""What boundaries send on published deployments, and the page that says it.

Per topology, variant and size of batch the operations of every boundary, the least that the
declared layouts allow, and what the reference system sends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from benchmarks.plans.deployments import WIDTH, branched, deployed
from benchmarks.plans.reference import Reference, least
from benchmarks.plans.words import BRANCH, INTRODUCTION, reasons, tables
from boundaryc.graph.build import FINAL, MERGE, Edge
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan
from boundaryc.plan.task import MANY_ROWS
from boundaryc.report.moves import Sent, described, moved

ROOT = Path(__file__).resolve().parents[2]
ROW = 2 * WIDTH
"""Bytes of a row."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """One boundary in one kind of batch: ours, the least, and the reference by padding.

    ``sum_len`` is the reference with each group padded for itself, ``max_len`` with all groups
    padded to the largest; None where there are no rules of its. Rows are sent by all ranks together
    for each token.
    """

    name: str
    repeats: bool
    operations: tuple[str, ...]
    ours: tuple[Sent, ...]
    least: int
    sum_len: tuple[Sent, ...] | None
    max_len: tuple[Sent, ...] | None


@dataclass(frozen=True, slots=True)
class Compared:
    """One deployment in batches of one variant and size; ``alpha`` is a collective in rows.

    ``alpha`` is None where few rows make the number of collectives decide.
    """

    stack: str
    topology: TopologyPlan
    variant: str
    few: bool
    alpha: Fraction | None
    crossings: tuple[Crossing, ...]

    @property
    def layer(self) -> tuple[Crossing, ...]:
        """The boundaries that the stack meets again and again."""
        return tuple(one for one in self.crossings if one.repeats)

    @property
    def least(self) -> int:
        """The rows that a layer must send for each token, whoever plans it."""
        return sum(crossing.least for crossing in self.layer)

    def sent(self, side: str) -> tuple[int, Fraction]:
        """Collectives and rows of a layer; ``side`` is ``ours``, ``sum_len`` or ``max_len``."""
        sent = [one for crossing in self.layer for one in getattr(crossing, side)]
        return len(sent), sum((one.rows for one in sent), Fraction())

    def rank(self, side: str) -> tuple[Fraction, Fraction]:
        """How dear a layer is for a side, in the order of the batch."""
        count, rows = self.sent(side)
        if self.alpha is None:
            return Fraction(count), rows
        return rows + self.alpha * count, Fraction()

    @property
    def names(self) -> tuple[str, ...]:
        """The cells that name this comparison in a table."""
        size = "few" if self.few else "many"
        return self.stack, self.topology.spec.name, self.variant, size


def compared() -> list[Compared]:
    """All comparisons, in the order of the page."""
    return [
        one
        for pair in deployed(ROOT / "examples")
        for plan in pair
        for topology in plan.topologies
        for one in _topology(plan, topology)
    ]


def _topology(plan: StackPlan, topology: TopologyPlan) -> Iterator[Compared]:
    for variant in topology.row_multiples:
        for few in (True, False):
            index = next(
                index
                for index, column in enumerate(topology.columns)
                if column.variant == variant and column.few in (None, few)
            )
            table = topology.tables[plan.stack.policy_auto][index]
            crossings = tuple(
                _crossing(plan, topology, variant, edge, table[edge]) for edge in table
            )
            alpha = None if few else Fraction(topology.spec.alpha, ROW * MANY_ROWS)
            if alpha is not None:
                alpha *= topology.mesh.size(topology.mesh.every)
            yield Compared(plan.stack.name, topology, variant, few, alpha, crossings)


def _crossing(
    plan: StackPlan, topology: TopologyPlan, variant: str, edge: Edge, boundary: Boundary
) -> Crossing:
    mesh, ruled = topology.mesh, plan.stack.branch is None
    by_padding = [
        Reference(plan.stack, topology.spec, mesh, variant, padded).sends(edge) if ruled else None
        for padded in (False, True)
    ]
    return Crossing(
        _name(edge),
        plan.graph.repeats(edge),
        described(mesh, boundary),
        moved(mesh, boundary, ROW),
        least(mesh, boundary),
        *by_padding,
    )


def _name(edge: Edge) -> str:
    """A boundary by what meets at it; behind a comma what came before."""
    target = {FINAL: "final norm", MERGE: "merge"}.get(edge.consumer, edge.consumer)
    if edge.forks:
        return f"input of {edge.producer} -> {target}"
    if edge.source.merges:
        return f"merge -> {target}"
    after = f", after {edge.source.producer}" if edge.source.producer else ""
    return f"{edge.producer or 'start'} -> {target}{after}"


def beside() -> list[Compared]:
    """The stack with a branch, like `compared` but with nothing to compare it with."""
    plan = branched()
    return [one for topology in plan.topologies for one in _topology(plan, topology)]


def page(found: list[Compared]) -> str:
    """The whole page about what `compared` found."""
    lines = [INTRODUCTION, "", "## A layer, side by side", "", *_summary(found), ""]
    lines += ["## Where and why ours is cheaper", "", *reasons(found), ""]
    lines += _tables(found)
    lines += ["## A stack with a branch", "", BRANCH, "", *_tables(beside())]
    return "\n".join(lines).rstrip() + "\n"


def _tables(found: list[Compared]) -> Iterator[str]:
    for few, many in zip(found[::2], found[1::2], strict=True):
        alike = few.crossings == many.crossings
        for one in (few,) if alike else (few, many):
            yield from tables(one, ROW, alike=alike)


def _summary(found: list[Compared]) -> list[str]:
    lines = [
        "| stack | topology | variant | rows | ours | least | reference, sum_len | max_len |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        cells = [*one.names, _total(one, "ours"), str(one.least)]
        cells += [_total(one, "sum_len"), _total(one, "max_len")]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _total(one: Compared, side: str) -> str:
    count, rows = one.sent(side)
    return f"{count} x, {float(rows):g} rows"
