"""The tables of one topology: which function runs at which boundary, for each batch and policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from boundaryc.emit.columns import merged
from boundaryc.emit.functions import (
    TopologyFunctions,
    Use,
    after,
    names_by_use,
    policy_words,
    unique,
)
from boundaryc.emit.layers import LayerKind, layer_kinds
from boundaryc.emit.naming import suffixes
from boundaryc.emit.runs import Run, runs
from boundaryc.graph.build import ENTRY, Edge
from boundaryc.plan.result import Column, StackPlan


@dataclass(slots=True)
class Constant:
    """A value of the topology's module that several places may share, and its name in the end."""

    base: str
    value: tuple[str, ...]
    edges: list[Edge] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)
    name: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """One unbound layer: its class, and per stage the constants of its boundary."""

    kind: LayerKind
    boundaries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """The boundaries of the whole stack under some policies."""

    name: str
    policies: tuple[str, ...]
    layers: tuple[Run, ...]
    norm: str


@dataclass(frozen=True, slots=True)
class TopologyTables:
    """Everything that the module of a topology says."""

    columns: tuple[Column, ...]
    boundaries: tuple[Constant, ...]
    layers: tuple[tuple[str, Layer], ...]
    tables: tuple[PolicyTable, ...]


def topology_tables(plan: StackPlan, functions: TopologyFunctions) -> TopologyTables:
    """The tables of one topology."""
    topology = functions.plan
    kept = merged(topology.columns, lambda column: _behaviour(plan, functions, column))
    taken: set[str] = set()
    constants = _boundaries(functions, kept, taken, plan.stack.policy_auto)
    by_place = {
        (policy, edge, constant.base): constant.name
        for constant in constants
        for policy, edge in zip(constant.policies, constant.edges, strict=True)
    }
    layers, tables = _policies(plan, functions, by_place, taken)
    return TopologyTables(
        tuple(topology.columns[index] for index in kept), tuple(constants), layers, tables
    )


def _behaviour(plan: StackPlan, functions: TopologyFunctions, column: int) -> object:
    """What all boundaries do in batches of one column, under every policy."""
    return tuple(
        tuple(sorted(names_by_use(functions, Use(edge, column, policy)).items()))
        for policy in functions.plan.tables
        for edge in plan.graph.edges()
    )


def _boundaries(
    functions: TopologyFunctions, kept: tuple[int, ...], taken: set[str], auto: str
) -> list[Constant]:
    """One constant for each different row of functions; those of `auto` have the plain names."""
    found: dict[tuple[object, ...], Constant] = {}
    policies = dict.fromkeys(use.policy for use in functions.drafts)
    for policy in policies:
        for edge in functions.order:
            rows: dict[str, list[str]] = {}
            for column in kept:
                use = Use(edge, column, policy)
                names, drafts = names_by_use(functions, use), functions.drafts[use]
                rows.setdefault(drafts.prepare.base, []).append(names["prepare"])
                if "leave" in names:
                    rows.setdefault(leave_base(functions, use), []).append(names["leave"])
            for base, row in rows.items():
                key = (base, *row)
                constant = found.setdefault(key, Constant(base.upper(), tuple(row)))
                constant.edges.append(edge)
                constant.policies.append(policy)
    _name(list(found.values()), taken, auto)
    return list(found.values())


def leave_base(functions: TopologyFunctions, use: Use) -> str:
    """The plain name of what a stage does when it leaves."""
    drafts = functions.drafts[use]
    return drafts.exit.base if drafts.exit else f"{use.edge.producer}_leave"


def _name(constants: list[Constant], taken: set[str], auto: str) -> None:
    groups: dict[str, list[Constant]] = {}
    for constant in constants:
        groups.setdefault(constant.base, []).append(constant)
    for base, group in groups.items():
        traits = [
            {
                "to": "" if "_TO_" in base else _consumers(constant),
                "after": after(constant.edges).upper(),
                "policy": policy_words(constant.policies, auto).upper(),
            }
            for constant in group
        ]
        for constant, suffix in zip(group, suffixes(traits), strict=True):
            constant.name = unique(base + suffix, taken)


def _consumers(constant: Constant) -> str:
    return "TO_" + "_OR_".join(sorted({edge.consumer for edge in constant.edges})).upper()


def _policies(
    plan: StackPlan,
    functions: TopologyFunctions,
    by_place: dict[tuple[str, Edge, str], str],
    taken: set[str],
) -> tuple[tuple[tuple[str, Layer], ...], tuple[PolicyTable, ...]]:
    """The layers of every policy, and the tables they make up; equal ones are shared."""
    layers: dict[Layer, Constant] = {}
    sequences: dict[str, list[Layer]] = {}
    for policy in dict.fromkeys(use.policy for use in functions.drafts):
        sequences[policy] = _layers(plan, functions, by_place, policy)
        for index, layer in enumerate(sequences[policy]):
            base = f"{'_'.join(layer.kind.stages).upper()}_LAYER"
            constant = layers.setdefault(layer, Constant(base, ()))
            constant.edges.append(_entered(plan, index))
            constant.policies.append(policy)
    _name_layers(plan, layers, sequences, taken)
    tables: dict[tuple[tuple[Run, ...], str], list[str]] = {}
    for policy, sequence in sequences.items():
        names = [layers[layer].name for layer in sequence]
        norm = by_place[policy, plan.graph.last, _prepare_base(plan.graph.last)]
        tables.setdefault((runs(names), norm), []).append(policy)
    order = list(functions.plan.tables)
    named = tuple((constant.name, layer) for layer, constant in layers.items())
    return named, tuple(
        PolicyTable(
            _table_name(policies, order, alone=len(tables) == 1),
            tuple(sorted(policies, key=order.index)),
            sequence,
            norm,
        )
        for (sequence, norm), policies in tables.items()
    )


def _table_name(policies: list[str], order: list[str], *, alone: bool) -> str:
    if alone:
        return "TABLE"
    return min(policies, key=order.index).replace("+", "_").upper()


def _entered(plan: StackPlan, index: int) -> Edge:
    return plan.graph.walk[index][0]


def _layers(
    plan: StackPlan,
    functions: TopologyFunctions,
    by_place: dict[tuple[str, Edge, str], str],
    policy: str,
) -> list[Layer]:
    """The layers of the stack in order, under one policy."""
    kinds = {kind.stages: kind for kind in layer_kinds(plan)}
    flat = [edge for layer in plan.graph.walk for edge in layer] + [plan.graph.last]
    found, at = [], 0
    for stages in plan.stack.layers:
        boundaries = []
        for _ in stages:
            entering, leaving = flat[at], flat[at + 1]
            leave = leave_base(functions, Use(leaving, 0, policy)).upper()
            boundaries.append(
                (
                    by_place[policy, entering, _prepare_base(entering)],
                    by_place[policy, leaving, leave],
                )
            )
            at += 1
        found.append(Layer(kinds[stages], tuple(boundaries)))
    return found


def _prepare_base(edge: Edge) -> str:
    source = "start" if edge.producer == ENTRY else edge.producer
    return f"{source}_to_{edge.consumer}".upper()


def _name_layers(
    plan: StackPlan,
    layers: dict[Layer, Constant],
    sequences: dict[str, list[Layer]],
    taken: set[str],
) -> None:
    """Names layers by where they are: the most frequent one of a kind has the plain name."""
    groups: dict[str, list[tuple[Layer, Constant]]] = {}
    for layer, constant in layers.items():
        groups.setdefault(constant.base, []).append((layer, constant))
    last = len(plan.stack.layers) - 1
    for base, group in groups.items():
        group.sort(key=lambda pair: _rarity(plan, sequences, pair))
        traits = []
        for layer, constant in group:
            at = {i for s in sequences.values() for i, own in enumerate(s) if own == layer}
            ends = ["FIRST"] * (at == {0}) + ["LAST"] * (at == {last}) or ["INNER"]
            traits.append(
                {
                    "place": "ONLY" if len(ends) == 2 else "".join(ends),
                    "after": _after(constant),
                    "policy": policy_words(constant.policies, plan.stack.policy_auto).upper(),
                }
            )
        for (_, constant), suffix in zip(group, suffixes(traits), strict=True):
            constant.name = unique(base + suffix, taken)


def _rarity(
    plan: StackPlan, sequences: dict[str, list[Layer]], pair: tuple[Layer, Constant]
) -> tuple[int, bool]:
    """Orders layers of one kind: the most frequent first, then those entered most often."""
    most = max(sequence.count(pair[0]) for sequence in sequences.values())
    return -most, not all(plan.graph.repeats(edge) for edge in pair[1].edges)


def _after(constant: Constant) -> str:
    """The stages before a layer."""
    before = sorted({edge.producer for edge in constant.edges} - {ENTRY})
    return f"AFTER_{'_OR_'.join(before).upper()}" if before else "AT_START"
