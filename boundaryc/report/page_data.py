"""Gathers what `boundaryc report` shows of a stack: every plan, its code, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from boundaryc import __version__
from boundaryc.emit.collected import TopologyFunctions
from boundaryc.emit.diagnose import planned
from boundaryc.graph.build import Edge
from boundaryc.plan.collector import uncollected
from boundaryc.plan.result import TopologyPlan
from boundaryc.report.costs import costs
from boundaryc.report.deployment import AskedError, Source, axes, dealt, load_of
from boundaryc.report.drawing import boundaries, drawing
from boundaryc.report.explain import Scope, alike, explain, scope_of
from boundaryc.report.explained import Crossing, Lever
from boundaryc.report.moves import moved
from boundaryc.report.page_code import Module, functions, modules, names
from boundaryc.report.page_model import (
    LeftOut,
    Report,
    ReportedAxis,
    ReportedBatch,
    ReportedCrossing,
    ReportedFile,
    ReportedLines,
    ReportedOrigin,
    ReportedPlan,
    ReportedTopology,
    ReportedWay,
)

TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384)
"""Tokens of the batches that are shown unless others are asked for: each four times the last."""

ItemT = TypeVar("ItemT")


@dataclass(slots=True)
class _Places(Generic[ItemT]):
    """A list in which everything stands once."""

    items: dict[ItemT, int] = field(default_factory=dict)

    def of(self, item: ItemT) -> int:
        """The place of an item, which is added where it is new."""
        return self.items.setdefault(item, len(self.items))

    def all(self) -> tuple[ItemT, ...]:
        """Everything, in order."""
        return tuple(self.items)


@dataclass(slots=True)
class _Lists:
    """What plans and files share."""

    crossings: _Places[ReportedCrossing] = field(default_factory=_Places)
    ways: _Places[ReportedWay] = field(default_factory=_Places)
    levers: _Places[Lever] = field(default_factory=_Places)
    origins: _Places[ReportedOrigin] = field(default_factory=_Places)
    code: _Places[str] = field(default_factory=_Places)


def report(
    source: Source, topologies: Sequence[str] = (), tokens: Sequence[int] = TOKENS
) -> Report:
    """Everything about a stack on some of its topologies, on all of them where none are named.

    Raises AskedError for a topology that there is not, BoundarycError where there is no plan.
    """
    stack = source.stack
    known = [one.name for one in stack.topologies]
    for name in topologies:
        if name not in known:
            there = ", ".join(known)
            raise AskedError(f"--topology: {stack.name} has no topology {name!r}; it has {there}")
    with uncollected():
        return _report(source, tuple(topologies or known), tuple(tokens))


def _report(source: Source, shown: tuple[str, ...], tokens: tuple[int, ...]) -> Report:
    stack, lists = source.stack, _Lists()
    plan = planned(stack, {stack.source: source.text})
    written = modules(source, plan)  # what is left out is part of the code all the same
    topologies = [one for one in plan.topologies if one.spec.name in shown]
    apart = [replace(plan, topologies=(one,)) for one in topologies]
    policies = tuple(topologies[0].tables)
    plans = tuple(
        _plan(scope_of(source, one, policy, variant, None, None), variant, tokens, named, lists)
        for one, named in zip(apart, map(functions, apart), strict=True)
        for variant in one.topologies[0].row_multiples
        for policy in policies
    )
    files = tuple(_file(one, lists) for one in written if not one.topology or one.topology in shown)
    return Report(
        stack=stack.name,
        file=stack.source,
        text=source.text,
        boundaryc=__version__,
        tokens=tokens,
        policies=policies,
        auto=stack.policy_auto,
        topologies=tuple(_topology(source, one) for one in topologies),
        graph=drawing(plan, lambda edge: "", ""),
        boundaries=boundaries(plan),
        plans=plans,
        crossings=lists.crossings.all(),
        ways=lists.ways.all(),
        levers=lists.levers.all(),
        files=files,
        code=lists.code.all(),
        origins=lists.origins.all(),
        costs=costs(apart, tokens, policies, "sum_len"),
    )


def _topology(source: Source, topology: TopologyPlan) -> ReportedTopology:
    spec, mesh = topology.spec, topology.mesh
    span = source.stack.span(f"topologies.{spec.name}")
    return ReportedTopology(
        name=spec.name,
        ranks=spec.tp,
        line=span.start.line if span else 0,
        axes=tuple(ReportedAxis(name, mesh.size(mesh.mask(name))) for name in axes(mesh)),
        variants=tuple(topology.row_multiples),
        left_out=tuple(LeftOut(variant, why) for variant, why in topology.skipped),
    )


def _plan(
    scope: Scope,
    variant: str,
    tokens: Sequence[int],
    named: TopologyFunctions,
    lists: _Lists,
) -> ReportedPlan:
    found = explain(scope, None, None, None)
    edges = scope.plan.graph.edges()
    columns = [alike(scope, edge) for edge in edges]
    crossings = [
        _crossing(scope, edge, crossing, ways, named, lists)
        for edge, crossing, ways in zip(edges, found.crossings, columns, strict=True)
    ]
    return ReportedPlan(
        topology=found.topology,
        variant=variant,
        policy=scope.policy,
        few_rows=found.few_rows,
        crossings=tuple(crossings),
        batches=tuple(_batches(scope.topology, variant, tokens, columns)),
    )


def _crossing(
    scope: Scope,
    edge: Edge,
    crossing: Crossing,
    columns: tuple[tuple[int, ...], ...],
    named: TopologyFunctions,
    lists: _Lists,
) -> int:
    ways = []
    for way, alike_ in zip(crossing.ways, columns, strict=True):
        sent = moved(scope.mesh, scope.at(edge, alike_[0]), 1)
        ways.append(lists.ways.of(ReportedWay(" + ".join(one.text for one in sent), way)))
    found = ReportedCrossing(
        boundary=crossing.boundary,
        place=crossing.place,
        words=crossing.words,
        ways=tuple(ways),
        functions=tuple(names(named, edge, group, scope.policy) for group in columns),
        levers=tuple(map(lists.levers.of, crossing.levers)),
    )
    return lists.crossings.of(found)


def _batches(
    topology: TopologyPlan,
    variant: str,
    tokens: Sequence[int],
    columns: Sequence[tuple[tuple[int, ...], ...]],
) -> Iterator[ReportedBatch]:
    """The batches of a variant that there are, as `costs` has them."""
    for count in tokens:
        try:
            load = load_of(topology, variant, dealt(count, topology.spec.attn_dp))
        except AskedError:  # the ordinary variant, which the stack does not list
            continue
        if load.variant == variant:
            runs = (
                next(at for at, group in enumerate(ways) if load.column in group)
                for ways in columns
            )
            yield ReportedBatch(count, load.rows, tuple(runs))


def _file(module: Module, lists: _Lists) -> ReportedFile:
    lines = []
    for one in module.fragments:
        nodes = tuple(map(lists.levers.of, one.nodes))
        place = lists.origins.of(ReportedOrigin(one.name, one.says, one.ends, nodes))
        lines.append(ReportedLines(one.first, one.last, place))
    text = tuple(map(lists.code.of, module.text.splitlines()))
    return ReportedFile(module.path, module.topology, module.variant, text, tuple(lines))
