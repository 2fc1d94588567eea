"""What a rank says in its log when it loads a topology: what runs, and what does not and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

from boundaryc.emit.fused import unfused
from boundaryc.emit.layout_text import listed
from boundaryc.emit.plan_text import op_text
from boundaryc.emit.reasons import reasons
from boundaryc.emit.shown import shown
from boundaryc.emit.when import batches
from boundaryc.graph.build import ENTRY
from boundaryc.plan import ops
from boundaryc.plan.cost import price
from boundaryc.plan.result import Boundary, Column, StackPlan, TopologyPlan
from boundaryc.plan.state import State
from boundaryc.topology.contracts import obeys_policy

NO_GAIN = "no plan is better for it"


def summaries(plan: StackPlan, topology: TopologyPlan) -> list[dict[str, list[str]]]:
    """The lines of a topology, policies of which all is the same together."""
    found: dict[tuple[str, ...], list[str]] = {}
    sends: Sends = {}
    for policy in topology.tables:
        names = ["auto", policy] if policy == plan.stack.policy_auto else [policy]
        lines = (*_runs(plan, topology, policy, sends), *_not_taken(plan, topology, policy))
        found.setdefault(lines, []).extend(names)
    return [{"policies": names, "lines": list(lines)} for lines, names in found.items()]


Sends = dict[tuple[State, int], tuple[str, ...]]
"""The collectives of paths, by their starts and the identity of each: most batches share them."""


def _runs(plan: StackPlan, topology: TopologyPlan, policy: str, sends: Sends) -> Iterator[str]:
    """The collectives of the layer that the stack has most often, by variant and kind of batch."""
    graph = plan.graph
    layers = Counter(graph.crossed(index) for index in range(len(graph.walk)))
    edges, count = layers.most_common(1)[0]
    names = ", ".join(dict.fromkeys(edge.consumer for edge in edges)) or "nothing"
    yield f"a layer is {names} ({count} of {len(graph.walk)})"
    for variant in topology.row_multiples:
        every: list[Column] = []
        groups: dict[tuple[str, ...], list[Column]] = {}
        for column, table in zip(topology.columns, topology.tables[policy], strict=True):
            if column.variant == variant:
                sent = (_known(topology, table[edge], sends) for edge in edges)
                groups.setdefault(tuple(one for each in sent for one in each), []).append(column)
                every.append(column)
        for texts, some in groups.items():
            when = f" in {batches(every, some)}" if len(some) < len(every) else ""
            said = f": {', '.join(_repeated(texts))}" if texts else ""
            yield f"{variant}: {_count(len(texts))} a layer{when}{said}"


def _repeated(texts: Iterable[str]) -> Iterator[str]:
    """Equal neighbours once, with how many they are."""
    for text, several in groupby(texts):
        times = len(list(several))
        yield text if times == 1 else f"{text} x{times}"


def _count(collectives: int) -> str:
    return f"{collectives} collective{'s' * (collectives != 1)}"


def _known(topology: TopologyPlan, boundary: Boundary, sends: Sends) -> tuple[str, ...]:
    key = (boundary.start, id(boundary.path))
    if key not in sends:
        sends[key] = tuple(_sent(topology, boundary))
    return sends[key]


def _sent(topology: TopologyPlan, boundary: Boundary) -> Iterator[str]:
    state = boundary.start
    for op in boundary.path.ops:
        if price(op, state, boundary.facts).collectives:
            yield op_text(topology.mesh, op).removesuffix(" variable")
        after = op.apply(state, boundary.facts)
        assert after is not None
        state = after


def _not_taken(plan: StackPlan, topology: TopologyPlan, policy: str) -> Iterator[str]:
    """Every optional path without a boundary that takes it, and why."""
    for variant, why in reasons(plan, topology).items():
        yield f"no {variant} batches: {why}"
    yield from _unscattered(plan, topology, policy)
    for stage in plan.stack.stages:
        planned = list(_planned(plan, topology, policy, stage.name))
        if stage.quantized_sum and not _any(planned, ops.QuantizedAllReduce):
            yield f"no quantised sum behind {stage.name}: {NO_GAIN}"
        if stage.joins_sum and not _any(planned, ops.Join):
            yield f"no residual in the sum behind {stage.name}: {NO_GAIN}"
        if not stage.defer:
            yield f"no sum of {stage.name} is left to the next stage: `defer: false`"
    yield from _unfused(plan, topology, policy)


def _planned(
    plan: StackPlan, topology: TopologyPlan, policy: str, stage: str, variant: str = ""
) -> Iterator[Boundary]:
    """The boundaries behind a stage, in batches of one variant or of all."""
    edges = [edge for edge in plan.graph.edges() if edge.producer == stage and not edge.forks]
    for column, table in zip(topology.columns, topology.tables[policy], strict=True):
        if variant in ("", column.variant):
            yield from (table[edge] for edge in edges)


def _any(planned: list[Boundary], kind: type[ops.Operation]) -> bool:
    return any(isinstance(op, kind) for one in planned for op in one.path.ops)


def _unscattered(plan: StackPlan, topology: TopologyPlan, policy: str) -> Iterator[str]:
    """Why sums of FFNs end in no reduce-scatter, stages and variants with one reason together."""
    found: dict[tuple[str, ...], list[str]] = {}
    for stage in filter(obeys_policy, plan.stack.stages):
        whys: dict[str, list[str]] = {}
        for variant in topology.row_multiples:
            why = _no_scatter(plan, topology, policy, (stage.name, variant))
            if why:
                whys.setdefault(why, []).append(variant)
        for why, variants in whys.items():
            found.setdefault((why, *variants), []).append(stage.name)
    for (why, *some), stages in found.items():
        where = f"behind {listed(stages, 'or')} in {listed(some)} batches"
        yield f"no reduce-scatter {where}: {why}"


def _no_scatter(
    plan: StackPlan, topology: TopologyPlan, policy: str, place: tuple[str, str]
) -> str:
    """Why nothing is scattered behind a stage in batches of a variant; empty where it is."""
    by_policy = {name: list(_planned(plan, topology, name, *place)) for name in topology.tables}
    others = [name for name, some in by_policy.items() if _any(some, ops.ReduceScatter)]
    if policy in others:
        return ""
    if not any(one.start.owes for one in by_policy[policy]):
        return "its output owes no sum"
    if others:
        return f"policy {policy} does not permit what {listed(others)} would"
    return f"under any policy {NO_GAIN}"


def _unfused(plan: StackPlan, topology: TopologyPlan, policy: str) -> Iterator[str]:
    """Why boundaries are not offered to fused kernels."""
    if not plan.stack.fusion:
        yield "no fused sums: the stack file names no fusion providers"
        return
    found: dict[str, list[str]] = {}
    for edge in plan.graph.edges():
        if edge.producer == ENTRY or edge.forks or edge.merges:
            continue
        whys = [unfused(plan, topology.mesh, table[edge]) for table in topology.tables[policy]]
        if all(whys):
            found.setdefault(f"{edge.producer} -> {shown(plan.stack, edge.consumer)}", whys)
    for name, whys in found.items():
        yield f"no fused sum at {name}: {listed(list(dict.fromkeys(whys)), 'or')}"
