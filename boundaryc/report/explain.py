"""Explains boundaries of a plan: what runs, in which batches, why, and what decides it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from boundaryc.emit.around import calls_around
from boundaryc.emit.shown import shown
from boundaryc.emit.when import batches
from boundaryc.graph.build import ENTRY, FINAL, Edge, StageGraph
from boundaryc.plan import ops
from boundaryc.plan.cost import Cost, Order
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan
from boundaryc.plan.state import NO_RESIDUAL, Phase
from boundaryc.plan.task import MANY_ROWS
from boundaryc.report.alternatives import next_best, no_scatter
from boundaryc.report.deployment import AskedError, Load, Source, axes, kinds
from boundaryc.report.explained import (
    Alternative,
    Asked,
    Axis,
    Crossing,
    Explained,
    Total,
    Way,
    Work,
)
from boundaryc.report.kernels import kernels
from boundaryc.report.levers import levers
from boundaryc.report.moves import moved, priced, worded
from boundaryc.report.text import number
from boundaryc.topology import Mesh


@dataclass(frozen=True, slots=True)
class Scope:
    """What is explained: a plan of one topology, in batches of some columns, under one policy.

    ``columns`` are those that were asked about, ``every`` all of the variant. ``load`` is the batch
    that was asked about, if one was.
    """

    source: Source
    plan: StackPlan
    policy: str
    columns: tuple[int, ...]
    every: tuple[int, ...]
    load: Load | None

    @property
    def topology(self) -> TopologyPlan:
        """The topology."""
        return self.plan.topologies[0]

    @property
    def mesh(self) -> Mesh:
        """The mesh of the topology."""
        return self.topology.mesh

    @property
    def ranks(self) -> int:
        """The ranks of the topology."""
        return self.mesh.size(self.mesh.every)

    def per_rank(self, wire: int) -> float:
        """Bytes of all ranks together as those of each, on average."""
        return float(Fraction(wire, self.ranks))

    def at(self, edge: Edge, column: int) -> Boundary:
        """What is planned for a boundary."""
        return self.topology.tables[self.policy][column][edge]

    def when(self, columns: Iterable[int]) -> str:
        """In which batches of those that were asked about some columns are met."""
        some = list(columns)
        if self.load is not None or len(some) == len(self.columns):
            return ""
        every = [self.topology.columns[index] for index in self.columns]
        return batches(every, [self.topology.columns[index] for index in some])

    def order(self, column: int) -> Order:
        """How costs compare in a column."""
        if self.topology.columns[column].few is False:
            return _many(self)
        return Order()


def _many(scope: Scope) -> Order:
    """How costs compare in batches of many rows."""
    return Order(scope.topology.spec.alpha * scope.ranks // MANY_ROWS)


def scope_of(
    source: Source, plan: StackPlan, policy: str, variant: str, mode: str | None, load: Load | None
) -> Scope:
    """What of a plan is explained."""
    variant = load.variant if load else variant
    every = kinds(plan.topologies[0], variant, mode)
    return Scope(source, plan, policy, (load.column,) if load else every, every, load)


def chosen(plan: StackPlan, layer: int | None, stage: str | None) -> tuple[Edge, ...]:
    """The boundaries by which a layer's stages are entered, one of them, or all of the stack.

    Raises AskedError for a layer or a stage that there is not.
    """
    graph = plan.graph
    if layer is None:
        return graph.edges()
    if layer >= len(graph.walk):
        raise AskedError(f"{plan.stack.name} has layers 0 to {len(graph.walk) - 1}")
    found = tuple(edge for edge in crossed(graph, layer) if stage in (None, edge.consumer))
    if stage is not None and not found:
        names = ", ".join(plan.stack.layers[layer]) or "nothing"
        raise AskedError(f"layer {layer} of {plan.stack.name} has no {stage!r}; it has {names}")
    return found


def crossed(graph: StageGraph, layer: int) -> tuple[Edge, ...]:
    """The boundaries that count in a layer: those into its stages, and those to its merge."""
    return graph.crossed(layer)


def explain(scope: Scope, layer: int | None, stage: str | None, asked: Asked | None) -> Explained:
    """Explains a stack, one of its layers, or the boundary into one stage of a layer."""
    plan, topology = scope.plan, scope.topology
    edges = chosen(plan, layer, stage)
    variant = topology.columns[scope.columns[0]].variant
    what = "all boundaries" if layer is None else f"layer {layer}"
    if layer is not None:
        what += f" ({', '.join(plan.stack.layers[layer])})" if stage is None else f", {stage}"
    left = "" if layer is None or stage is not None else _behind(plan, layer)
    return Explained(
        stack=plan.stack.name,
        what=what,
        topology=topology.spec.name,
        ranks=scope.ranks,
        variant=variant,
        policy=scope.policy,
        few_rows=topology.few_rows.get(variant),
        batch=asked,
        totals=_totals(scope, edges),
        crossings=tuple(_crossing(scope, edge) for edge in edges),
        left=left,
    )


def _behind(plan: StackPlan, layer: int) -> str:
    """The boundary by which a layer is left, which counts in the next one; empty for none."""
    graph = plan.graph
    following = (edges[0] for edges in graph.walk[layer + 1 :] if edges)
    return named(plan, next(following, graph.last)) if graph.walk[layer] else ""


def named(plan: StackPlan, edge: Edge) -> str:
    """A boundary by what meets at it."""
    target = shown(plan.stack, edge.consumer).removeprefix("the ")
    if edge.forks:
        return f"input of {edge.producer} -> {target}"
    if edge.source.merges:
        return f"merge -> {target}"
    return f"{edge.producer or 'start'} -> {target}"


def _totals(scope: Scope, edges: Sequence[Edge]) -> tuple[Total, ...]:
    """What the boundaries send together: an entry for every set of batches that sends alike."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for column in scope.columns:
        sent = tuple(moved(scope.mesh, scope.at(edge, column), 1) for edge in edges)
        groups.setdefault(sent, []).append(column)
    found = []
    for columns in groups.values():
        planned = [scope.at(edge, columns[0]) for edge in edges]
        cost = Cost()
        for boundary in planned:
            cost = cost.plus(sent_by(boundary))
        rows = scope.load.rows if scope.load else None
        texts = tuple(one.text for each in planned for one in moved(scope.mesh, each, 1))
        per_token = scope.per_rank(cost.wire)
        whole = None if rows is None else per_token * rows
        found.append(Total(scope.when(columns), cost.collectives, per_token, texts, whole))
    return tuple(found)


def sent_by(boundary: Boundary) -> Cost:
    """What a boundary costs; ``wire`` are the bytes of all ranks together for each token."""
    whole = Cost()
    for _, cost in priced(boundary):
        whole = whole.plus(cost)
    return whole


def alike(scope: Scope, edge: Edge) -> tuple[tuple[int, ...], ...]:
    """The columns of a scope by what runs at a boundary: those of each of its ways, in order."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for column in scope.columns:
        boundary = scope.at(edge, column)
        texts = tuple(worded(scope.mesh, op) for op in boundary.path.ops)
        groups.setdefault((boundary.start, boundary.goal, texts), []).append(column)
    return tuple(map(tuple, groups.values()))


def _crossing(scope: Scope, edge: Edge) -> Crossing:
    ways = tuple(_way(scope, edge, columns) for columns in alike(scope, edge))
    name = named(scope.plan, edge)
    words = _words(scope, edge, scope.at(edge, scope.columns[0]))
    return Crossing(name, _place(scope.plan, edge), words, ways, levers(scope, edge))


def _place(plan: StackPlan, edge: Edge) -> str:
    """In which layers a boundary is met."""
    graph = plan.graph
    layers = [at for at in range(len(graph.walk)) if edge in crossed(graph, at)]
    if edge == graph.last:
        return "at the end of the stack"
    first, count = layers[0], len(layers)
    if count == 1:
        return f"in layer {first}"
    return f"in {count} layers, {first} to {layers[-1]}"


def _words(scope: Scope, edge: Edge, boundary: Boundary) -> str:
    mesh, start, goal = scope.mesh, boundary.start, boundary.goal
    target = shown(scope.plan.stack, edge.consumer)
    who = "The stack's input" if edge.producer == ENTRY else f"The output of {edge.producer}"
    owed = f", owes a sum over {mesh.label(start.owes)}" if start.owes else ", is complete"
    rows = "all rows" if not start.rows else f"rows cut over {mesh.words(start.rows)}"
    takes = "all rows" if not goal.rows else f"rows cut over {mesh.words(goal.rows)}"
    verb = "reads" if edge.consumer == FINAL else "takes"
    return f"{who} lies on {rows}{owed}; {target} {verb} {takes}."


def _way(scope: Scope, edge: Edge, columns: Sequence[int]) -> Way:
    boundary, order = scope.at(edge, columns[0]), scope.order(columns[0])
    cost = sent_by(boundary)
    other = next_best(boundary, order) if cost.collectives else None
    return Way(
        when=scope.when(columns),
        axes=_axes(scope.mesh, boundary),
        works=_works(scope, [scope.at(edge, column) for column in columns]),
        collectives=cost.collectives,
        bytes_per_token=scope.per_rank(cost.wire),
        why=_why(scope, cost, order, columns[0]),
        next_best=_alternative(scope, cost, other, order) if other else None,
        no_scatter=_no_scatter(scope, boundary, cost, order),
    )


def _axes(mesh: Mesh, boundary: Boundary) -> tuple[Axis, ...]:
    start, goal = boundary.start, boundary.goal
    before = NO_RESIDUAL if start.phase is Phase.INITIAL else start.residual
    return tuple(
        Axis(
            name,
            mesh.size(mesh.mask(name)),
            _lies(mesh.mask(name), start.rows, start.owes),
            _lies(mesh.mask(name), goal.rows, goal.owes),
            _lies(mesh.mask(name), before),
            _lies(mesh.mask(name), goal.residual),
        )
        for name in axes(mesh)
    )


def _lies(axis: int, rows: int, owes: int = 0) -> str:
    if rows == NO_RESIDUAL:
        return "none"
    if axis & rows == axis:
        return "cut"
    if axis & owes == axis:
        return "owed"
    return "partly cut" if axis & rows else "partly owed" if axis & owes else "whole"


def _works(scope: Scope, alike: Sequence[Boundary]) -> tuple[Work, ...]:
    """The operations of boundaries that are alike but for the sizes of their collectives."""
    calls = calls_around(scope.plan, alike[0])
    costs = [cost for _, cost in priced(alike[0])]
    found, at = [], 0
    for group, kernel in kernels(alike[0].path.ops, calls):
        sizes = {getattr(one.path.ops[at], "variable", None) for one in alike}
        found.append(_work(scope, group, costs[at], sizes, kernel))
        at += len(group)
    return tuple(found)


def _work(
    scope: Scope,
    group: tuple[ops.Operation, ...],
    cost: Cost,
    sizes: set[bool | None],
    kernel: str,
) -> Work:
    mesh, op = scope.mesh, group[0]
    over = _over(op) if cost.collectives else 0
    words = " + ".join(worded(mesh, one).partition("(")[0] for one in group)
    return Work(
        words if over or len(group) > 1 else worded(mesh, op),
        mesh.label(over) if over else "",
        mesh.size(over) if over else 0,
        " or ".join(word for known, word in _SIZES.items() if known in sizes and over),
        cost.collectives,
        scope.per_rank(cost.wire),
        kernel,
    )


_SIZES = {False: "equal", True: "one per rank"}
"""What a collective is told of its members' rows."""


def _over(op: ops.Operation) -> int:
    """The atoms over which a collective communicates."""
    match op:
        case ops.GatherSum(gather, owed):
            return gather | owed
        case ops.Capture(_, gather, _):
            return gather
        case (
            ops.AllReduce(axes)
            | ops.QuantizedAllReduce(axes)
            | ops.ReduceScatter(axes)
            | ops.AllGather(axes)
            | ops.ResidualGather(axes)
        ):
            return axes
        case _:
            return 0


def _why(scope: Scope, cost: Cost, order: Order, column: int) -> str:
    if not cost.collectives:
        return "nothing has to be sent"
    if order.alpha is not None:
        alpha = number(scope.per_rank(order.alpha))
        return f"many rows: fewest bytes, where a collective counts as {alpha} bytes of a token"
    if scope.topology.columns[column].few is None:
        worth = number(scope.per_rank(_many(scope).alpha or 0))
        return (
            "fewest collectives, then fewest bytes; the same for many rows, where a collective "
            f"counts as {worth} bytes of a token"
        )
    return "batches of few rows: fewest collectives, then fewest bytes"


def _alternative(scope: Scope, cost: Cost, other: Boundary, order: Order) -> Alternative:
    found = sent_by(other)
    texts = tuple(one.text for one in moved(scope.mesh, other, 1))
    return Alternative(
        found.collectives,
        scope.per_rank(found.wire),
        texts,
        _verdict(scope, cost, found, order),
    )


def _verdict(scope: Scope, cost: Cost, other: Cost, order: Order) -> str:
    """Why ``other`` was not taken."""
    more, less = other.collectives - cost.collectives, scope.per_rank(cost.wire - other.wire)
    if order.alpha is None and more > 0:
        variants = [scope.topology.columns[column].variant for column in scope.columns]
        few = scope.topology.few_rows.get(variants[0])
        behind = (
            f" (above {number(few)} rows the plan for many rows runs)" if few is not None else ""
        )
        saved = f", though it sends {number(less)} bytes a token less{behind}" if less > 0 else ""
        return f"{more} more collective{'s' * (more > 1)}, and fewest come first{saved}"
    if less < 0:
        return f"{number(-less)} bytes a token more"
    if more > 0:
        return f"{more} more collective{'s' * (more > 1)}, worth more than what it saves"
    if less > 0:
        return f"{number(less)} bytes a token less, but it costs other boundaries more"
    return "it sends as much, with more memory traffic or more operations"


def _no_scatter(scope: Scope, boundary: Boundary, cost: Cost, order: Order) -> str:
    found = no_scatter(boundary, order, scope.mesh, scope.policy)
    if found is None:
        return ""
    if found.instead is None:
        return f"not possible: {found.unmet}"
    way = _alternative(scope, cost, found.instead, order)
    texts = " + ".join(way.operations)
    if found.unmet:
        return f"not permitted: {found.unmet} (it would be {texts})"
    sends = f"{way.collectives} collectives, {number(way.bytes_per_token)} bytes a token"
    return f"possible as {texts} ({sends}), but: {way.verdict}"
