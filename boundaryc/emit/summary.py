"""What a rank says in its log when it loads a topology: what runs, and what does not and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

from boundaryc.emit.fused import unfused
from boundaryc.emit.layout_text import listed
from boundaryc.emit.plan_text import op_text
from boundaryc.emit.reasons import reasons
from boundaryc.emit.reuse import Reuse
from boundaryc.emit.shown import shown
from boundaryc.emit.when import batches
from boundaryc.graph.build import ENTRY, Edge
from boundaryc.plan import ops
from boundaryc.plan.alike import Case, Followed
from boundaryc.plan.cost import price
from boundaryc.plan.result import Boundary, Column, StackPlan, TopologyPlan
from boundaryc.topology import naming
from boundaryc.topology.contracts import obeys_policy

NO_GAIN = "no plan is better for it"


def summaries(
    plan: StackPlan, topology: TopologyPlan, reuse: Reuse | None = None
) -> list[dict[str, list[str]]]:
    """The lines of a topology, policies of which all is the same together.

    ``reuse`` has what other topologies of the same plan have been given.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    shared = reuse or Reuse(plan)
    layer = shared.of_stack("layer", partial(_layer, plan))
    runs = [
        shared.of_variant("runs", topology, name, partial(_runs, topology, name, layer, shared))
        for name in topology.row_multiples
    ]
    behind = _Behind(plan, topology, shared)
    for policy in topology.tables:
        names = ["auto", policy] if policy == plan.stack.policy_auto else [policy]
        ran = (line for variant in runs for line in variant[policy])
        lines = (layer.told, *ran, *_not_taken(behind, policy))
        found.setdefault(lines, []).extend(names)
    return [{"policies": names, "lines": list(lines)} for lines, names in found.items()]


class _Layer(NamedTuple):
    """The boundaries of the layer that a stack has most often, and what it is for people."""

    edges: tuple[Edge, ...]
    told: str


def _layer(plan: StackPlan) -> _Layer:
    graph = plan.graph
    layers = Counter(graph.crossed(index) for index in range(len(graph.walk)))
    edges, count = layers.most_common(1)[0]
    names = ", ".join(dict.fromkeys(edge.consumer for edge in edges)) or "nothing"
    return _Layer(edges, f"a layer is {names} ({count} of {len(graph.walk)})")


def _runs(
    topology: TopologyPlan, variant: str, layer: _Layer, reuse: Reuse
) -> Mapping[str, tuple[str, ...]]:
    """The collectives of a layer in batches of a variant, by policy and kind of batch."""
    sent: dict[Case, tuple[str, ...]] = {}
    for followed in reuse.followed(topology, variant, topology.tables):
        each = (_known(topology, followed, edge, reuse) for edge in layer.edges)
        sent.update(dict.fromkeys(followed.cases, tuple(text for texts in each for text in texts)))
    kinds = [i for i, column in enumerate(topology.columns) if column.variant == variant]
    return {
        policy: tuple(_lines(topology, variant, {i: sent[Case(policy, i)] for i in kinds}))
        for policy in topology.tables
    }


def _lines(
    topology: TopologyPlan, variant: str, sent: Mapping[int, tuple[str, ...]]
) -> Iterator[str]:
    """What is sent in batches of each kind, those that send the same together."""
    every = [topology.columns[index] for index in sent]
    groups: dict[tuple[str, ...], list[Column]] = {}
    for index, texts in sent.items():
        groups.setdefault(texts, []).append(topology.columns[index])
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


def _known(topology: TopologyPlan, followed: Followed, edge: Edge, reuse: Reuse) -> tuple[str, ...]:
    """The collectives of a boundary, found once for all topologies with the same names."""
    find = partial(_sent, topology, followed.table[edge])
    return reuse.of_stack("sent", find, naming(topology.mesh), followed.plans[edge])


def _sent(topology: TopologyPlan, boundary: Boundary) -> tuple[str, ...]:
    state, texts = boundary.start, []
    for op in boundary.path.ops:
        if price(op, state, boundary.facts).collectives:
            texts.append(op_text(topology.mesh, op).removesuffix(" variable"))
        after = op.apply(state, boundary.facts)
        assert after is not None
        state = after
    return tuple(texts)


@dataclass(frozen=True, slots=True)
class _Does:
    """What boundaries do: the kinds of their operations, and whether a sum is owed at any."""

    kinds: frozenset[type[ops.Operation]]
    owes: bool


class _Behind:
    """What the boundaries behind each stage do: found once, and asked for every policy."""

    def __init__(self, plan: StackPlan, topology: TopologyPlan, reuse: Reuse) -> None:
        self.plan, self.topology = plan, topology
        self._followed = {
            variant: reuse.followed(topology, variant, topology.tables)
            for variant in topology.row_multiples
        }
        self._known: dict[tuple[str, str, str], _Does] = {}
        self._edges: dict[str, list[Edge]] = {}
        for edge in plan.graph.edges():
            if not edge.forks:
                self._edges.setdefault(edge.producer, []).append(edge)

    def __call__(self, policy: str, stage: str, variant: str = "") -> _Does:
        """What those behind ``stage`` do, in batches of one variant or of all."""
        key = (policy, stage, variant)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._found(policy, stage, variant)
        return known

    def _found(self, policy: str, stage: str, variant: str) -> _Does:
        kinds, owes = set[type[ops.Operation]](), False
        for name, every in self._followed.items():
            for followed in every if variant in ("", name) else ():
                if all(case.policy != policy for case in followed.cases):
                    continue
                for edge in self._edges.get(stage, ()):
                    boundary = followed.table[edge]
                    owes = owes or bool(boundary.start.owes)
                    kinds.update(map(type, boundary.path.ops))
        return _Does(frozenset(kinds), owes)


def _not_taken(behind: _Behind, policy: str) -> Iterator[str]:
    """Every optional path without a boundary that takes it, and why."""
    plan, topology = behind.plan, behind.topology
    for variant, why in reasons(plan, topology).items():
        yield f"no {variant} batches: {why}"
    yield from _unscattered(behind, policy)
    for stage in plan.stack.stages:
        kinds = behind(policy, stage.name).kinds
        if stage.quantized_sum and ops.QuantizedAllReduce not in kinds:
            yield f"no quantised sum behind {stage.name}: {NO_GAIN}"
        if stage.joins_sum and ops.Join not in kinds:
            yield f"no residual in the sum behind {stage.name}: {NO_GAIN}"
        if not stage.defer:
            yield f"no sum of {stage.name} is left to the next stage: `defer: false`"
    yield from _unfused(plan, topology, policy)


def _unscattered(behind: _Behind, policy: str) -> Iterator[str]:
    """Why sums of FFNs end in no reduce-scatter, stages and variants with one reason together."""
    found: dict[tuple[str, ...], list[str]] = {}
    for stage in filter(obeys_policy, behind.plan.stack.stages):
        whys: dict[str, list[str]] = {}
        for variant in behind.topology.row_multiples:
            why = _no_scatter(behind, policy, (stage.name, variant))
            if why:
                whys.setdefault(why, []).append(variant)
        for why, variants in whys.items():
            found.setdefault((why, *variants), []).append(stage.name)
    for (why, *some), stages in found.items():
        where = f"behind {listed(stages, 'or')} in {listed(some)} batches"
        yield f"no reduce-scatter {where}: {why}"


def _no_scatter(behind: _Behind, policy: str, place: tuple[str, str]) -> str:
    """Why nothing is scattered behind a stage in batches of a variant; empty where it is."""
    tables = behind.topology.tables
    others = [name for name in tables if ops.ReduceScatter in behind(name, *place).kinds]
    if policy in others:
        return ""
    if not behind(policy, *place).owes:
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
