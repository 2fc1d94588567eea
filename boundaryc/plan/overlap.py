"""The end of a stage that computed without an exit, as in two-batch overlap.

Such a stage has summed its output itself. What is left is a boundary of its own: it starts from the
complete output, hands it on where the specification says, and ends where the planned one ends.
"""

from __future__ import annotations

from boundaryc.graph.build import Edge
from boundaryc.graph.overlap import between_sparse
from boundaryc.plan.access import in_twos, route
from boundaryc.plan.cost import Cost
from boundaryc.plan.path import Path, Way
from boundaryc.plan.result import Boundary, StackPlan


def handed_on(plan: StackPlan, boundary: Boundary, rows: int) -> Boundary:
    """``boundary`` from a complete output on; ``rows`` are those on which the stack is entered.

    Moves have sizes, as this is one form for batches of every evenness and for every policy, the
    cheapest for groups of two. What it costs is not counted. LookupError where there is none.
    """
    start = boundary.start._replace(owes=0)
    facts = boundary.facts._replace(
        even=0,
        scatter=0,
        scatter_by_size=False,
        may_defer=False,
        joins_sum=False,
        complete_on=hand_off_rows(plan, boundary.edge, start.rows, rows),
    )
    way = Way(route(start, boundary.goal, in_twos(facts), rounds=False))
    return Boundary(boundary.edge, start, boundary.goal, facts, Path.of(way, Cost()))


def hand_off_rows(plan: StackPlan, edge: Edge, own: int, rows: int) -> int:
    """The rows on which the output of an FFN is handed on where no exit was open.

    They follow from (sparse, next_sparse): between two sparse FFNs the output stays on its ``own``
    rows where these are finer than those of attention, ``rows``, as behind an all-to-all; at every
    other place, where batches are split and merged too, it goes to attention's.
    """
    stays = between_sparse(plan.stack, plan.graph, edge) and not rows & ~own
    return own if stays else rows
