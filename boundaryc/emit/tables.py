"""The tables of one topology: which function runs at which boundary, for each batch and policy."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from boundaryc.emit.collected import TopologyFunctions, Use, VariantFunctions
from boundaryc.emit.columns import merged
from boundaryc.emit.function_names import after, keeping, names_by_use, policy_words, unique
from boundaryc.emit.layers import LayerKind, layer_kinds
from boundaryc.emit.naming import suffixes
from boundaryc.emit.patterns import LayerShape, Pattern
from boundaryc.emit.runs import Run, runs
from boundaryc.graph.build import ENTRY, Edge
from boundaryc.plan.alike import Case
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
    """One unbound layer: its class, and per stage the arguments of its boundary.

    These name how it is entered and left, the other ways in, how it is merged with a branch, and
    how it ends without an exit.
    """

    kind: LayerKind
    boundaries: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Norm:
    """The constants of the end of the stack: the norm, the other ways to it, and without rows."""

    read: str
    resume: str
    empty: str


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """The boundaries of the whole stack under some policies."""

    name: str
    policies: tuple[str, ...]
    layers: tuple[Run, ...]
    norm: Norm


@dataclass(frozen=True, slots=True)
class TopologyTables:
    """Everything that the module of a topology says."""

    columns: tuple[Column, ...]
    boundaries: tuple[Constant, ...]
    layers: tuple[tuple[str, Layer], ...]
    tables: tuple[PolicyTable, ...]


def topology_tables(
    plan: StackPlan, functions: TopologyFunctions, pattern: Pattern
) -> TopologyTables:
    """The tables of one topology."""
    topology = functions.plan
    behaviours = _behaviours(plan, functions)
    kept = merged(topology.columns, behaviours)
    taken: set[str] = set()
    constants = _boundaries(functions, kept, taken)
    by_place = {
        (policy, edge, constant.base): constant.name
        for constant in constants
        for policy, edge in zip(constant.policies, constant.edges, strict=True)
    }
    layers, tables = _policies(plan, functions, pattern, by_place, taken)
    return TopologyTables(
        tuple(topology.columns[index] for index in kept), tuple(constants), layers, tables
    )


def _behaviours(plan: StackPlan, functions: TopologyFunctions) -> list[Hashable]:
    """What all boundaries do in batches of each column, under every policy: equal numbers."""
    numbers: dict[Hashable, int] = {}
    by_table = {
        (variant, table): numbers.setdefault(_behaviour(plan, known, table), len(numbers))
        for variant, known in functions.variants.items()
        for table in range(len(known.followed))
    }
    return [
        tuple(
            by_table[column.variant, functions.tables[Case(policy, index)]]
            for policy in functions.policies
        )
        for index, column in enumerate(functions.plan.columns)
    ]


def _behaviour(plan: StackPlan, known: VariantFunctions, table: int) -> Hashable:
    """The names of all that runs where one table is followed."""
    names = (names_by_use(known, Use(edge, table)) for edge in plan.graph.edges())
    return tuple(tuple(sorted(each.items())) for each in names)


def _boundaries(
    functions: TopologyFunctions, kept: tuple[int, ...], taken: set[str]
) -> list[Constant]:
    """One constant for each different row of functions; those of `auto` have the plain names."""
    found: dict[tuple[object, ...], Constant] = {}
    alike: dict[tuple[int, ...], list[tuple[Edge, Constant]]] = {}
    for policy in functions.policies:
        followed = functions.followed(policy)
        if followed not in alike:
            alike[followed] = [
                (edge, found.setdefault((base, *row), Constant(base.upper(), tuple(row))))
                for edge in functions.order
                for base, row in _rows(functions, edge, kept, policy).items()
            ]
        for edge, constant in alike[followed]:
            constant.edges.append(edge)
            constant.policies.append(policy)
    _name(list(found.values()), taken, functions.policies)
    return list(found.values())


def _rows(
    functions: TopologyFunctions, edge: Edge, kept: tuple[int, ...], policy: str
) -> Mapping[str, list[str]]:
    """The functions of a boundary in batches of every column that is kept, by their plain names."""
    rows: dict[str, list[str]] = {}
    base = prepare_base(edge)
    for column in kept:
        known, use = functions.use(edge, column, policy)
        names = names_by_use(known, use)
        if "prepare" in names:
            rows.setdefault(base, []).append(names["prepare"])
        if "merge" in names:
            rows.setdefault(f"{edge.producer}_merge", []).append(names["merge"])
        for other in ("resume", "empty"):
            if other in names:
                rows.setdefault(f"{base}_{other}", []).append(names[other])
        if "postprocess" in names:
            rows.setdefault(f"{edge.producer}_postprocess", []).append(names["postprocess"])
        if "leave" in names:
            rows.setdefault(leave_base(known, use), []).append(names["leave"])
    return rows


def leave_base(known: VariantFunctions, use: Use) -> str:
    """The plain name of what a stage does when it leaves."""
    drafts = known.drafts[use]
    return drafts.exit.base if drafts.exit else f"{use.edge.producer}_leave"


def prepare_base(edge: Edge) -> str:
    """The plain name of what takes a stage's output to the next."""
    return f"{edge.producer or 'start'}_to_{edge.consumer}"


def _name(constants: list[Constant], taken: set[str], policies: Sequence[str]) -> None:
    groups: dict[str, list[Constant]] = {}
    for constant in constants:
        groups.setdefault(constant.base, []).append(constant)
    for base, group in groups.items():
        traits = [
            {
                "to": "" if "_TO_" in base else _consumers(constant),
                "keeps": keeping(constant.edges).upper() if "_TO_" in base else "",
                "after": after(constant.edges).upper(),
                "policy": policy_words(constant.policies, policies).upper(),
            }
            for constant in group
        ]
        for constant, suffix in zip(group, suffixes(traits), strict=True):
            constant.name = unique(base, suffix, taken)


def _consumers(constant: Constant) -> str:
    return "TO_" + "_OR_".join(sorted({edge.consumer for edge in constant.edges})).upper()


def _policies(
    plan: StackPlan,
    functions: TopologyFunctions,
    pattern: Pattern,
    by_place: dict[tuple[str, Edge, str], str],
    taken: set[str],
) -> tuple[tuple[tuple[str, Layer], ...], tuple[PolicyTable, ...]]:
    """The layers of every policy, and the tables they make up; equal ones are shared."""
    layers: dict[Layer, Constant] = {}
    by_shape: dict[str, list[Layer]] = {}
    kinds = {kind.stages: kind for kind in layer_kinds(plan)}
    alike: dict[tuple[int, ...], list[Layer]] = {}
    for policy in functions.policies:
        followed = functions.followed(policy)
        if followed not in alike:
            alike[followed] = [
                _layer(functions, shape, kinds, by_place, policy) for shape in pattern.shapes
            ]
        by_shape[policy] = alike[followed]
        for layer, shape in zip(by_shape[policy], pattern.shapes, strict=True):
            base = f"{'_'.join(layer.kind.stages or ('empty',)).upper()}_LAYER"
            constant = layers.setdefault(layer, Constant(base, ()))
            constant.edges.extend(entering for entering, _ in shape.boundaries[:1])
            constant.policies.append(policy)
    _name_layers(plan, layers, by_shape, pattern, taken)
    tables: dict[tuple[tuple[Run, ...], Norm], list[str]] = {}
    for policy, found in by_shape.items():
        names = [layers[layer].name for layer in found]
        norm = _norm(policy, plan.graph.last, by_place)
        sequence = runs([names[number] for number in pattern.order])
        tables.setdefault((sequence, norm), []).append(policy)
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


def _norm(policy: str, last: Edge, by_place: dict[tuple[str, Edge, str], str]) -> Norm:
    base = prepare_base(last).upper()
    return Norm(*(by_place[policy, last, base + end] for end in ("", "_RESUME", "_EMPTY")))


def _table_name(policies: list[str], order: list[str], *, alone: bool) -> str:
    if alone:
        return "TABLE"
    return min(policies, key=order.index).replace("+", "_").upper()


def _layer(
    functions: TopologyFunctions,
    shape: LayerShape,
    kinds: Mapping[tuple[str, ...], LayerKind],
    by_place: dict[tuple[str, Edge, str], str],
    policy: str,
) -> Layer:
    """The layers of one shape, under one policy."""
    boundaries = []
    for entering, leaving in shape.boundaries:
        leave = leave_base(*functions.use(leaving, 0, policy)).upper()
        prepare = prepare_base(entering).upper()
        arguments = [by_place[policy, entering, prepare], by_place[policy, leaving, leave]]
        if not entering.forks:
            arguments.append(f"resume={by_place[policy, entering, f'{prepare}_RESUME']}")
        if leaving.beside and shape.merged is not None:
            merged = by_place[policy, shape.merged, f"{leaving.producer}_merge".upper()]
            arguments.append(f"merge={merged}")
        late = (policy, leaving, f"{leaving.producer}_postprocess".upper())
        if late in by_place:
            arguments.append(f"postprocess={by_place[late]}")
        boundaries.append(tuple(arguments))
    return Layer(kinds[shape.stages], tuple(boundaries))


def _name_layers(
    plan: StackPlan,
    layers: dict[Layer, Constant],
    by_shape: dict[str, list[Layer]],
    pattern: Pattern,
    taken: set[str],
) -> None:
    """Names layers by where they are: the most frequent one of a kind has the plain name."""
    groups: dict[str, list[tuple[Layer, Constant]]] = {}
    for layer, constant in layers.items():
        groups.setdefault(constant.base, []).append((layer, constant))
    for base, group in groups.items():
        group.sort(key=lambda pair: _rarity(plan, by_shape, pattern, pair))
        traits = []
        for layer, constant in group:
            at = {n for found in by_shape.values() for n, one in enumerate(found) if one == layer}
            traits.append(
                {
                    "place": _place(pattern, at),
                    "after": _after(constant),
                    "keeps": keeping(constant.edges).upper(),
                    "policy": policy_words(constant.policies, tuple(by_shape)).upper(),
                }
            )
        for (_, constant), suffix in zip(group, suffixes(traits), strict=True):
            constant.name = unique(base, suffix, taken)


def _place(pattern: Pattern, shapes: set[int]) -> str:
    """Where in the stack layers of these shapes are, as a word of an identifier."""
    first, last = pattern.order[0], pattern.order[-1]
    alone = len(shapes) == 1 and pattern.counts[min(shapes)] == 1
    if not alone or not shapes & {first, last}:
        return "INNER"
    return "ONLY" if first == last else "FIRST" if first in shapes else "LAST"


def _rarity(
    plan: StackPlan,
    by_shape: dict[str, list[Layer]],
    pattern: Pattern,
    pair: tuple[Layer, Constant],
) -> tuple[int, bool]:
    """Orders layers of one kind: the most frequent first, then those entered most often."""
    most = max(
        sum(count for one, count in zip(found, pattern.counts, strict=True) if one == pair[0])
        for found in by_shape.values()
    )
    return -most, not all(plan.graph.repeats(edge) for edge in pair[1].edges)


def _after(constant: Constant) -> str:
    """The stages before a layer."""
    before = sorted({edge.producer for edge in constant.edges} - {ENTRY})
    return f"AFTER_{'_OR_'.join(before).upper()}" if before else "AT_START"
