"""Topologies whose plans are the same: they differ in the sizes of their meshes alone.

What is made of one such plan, its judgement and its code, serves the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from boundaryc.graph.build import Edge
from boundaryc.plan.result import Boundary, Column, Table, TopologyPlan
from boundaryc.plan.state import EdgeFacts
from boundaryc.topology import naming


def alike(topologies: Iterable[TopologyPlan]) -> tuple[tuple[TopologyPlan, ...], ...]:
    """The topologies in groups of equal plans, in the order of the first of each."""
    groups: list[list[TopologyPlan]] = []
    by_form: dict[object, list[list[TopologyPlan]]] = {}
    for topology in topologies:
        known = by_form.setdefault(_form(topology), [])
        group = next((group for group in known if _same(group[0], topology)), None)
        if group is None:
            group = []
            known.append(group)
            groups.append(group)
        group.append(topology)
    return tuple(map(tuple, groups))


def _form(topology: TopologyPlan) -> object:
    """How ranks are cut, without how often, and the kinds of batch that there are and are not."""
    atoms = tuple((atom.name, atom.axis) for atom in topology.mesh.atoms)
    return atoms, topology.mesh.axes, topology.columns, topology.skipped


class Case(NamedTuple):
    """Batches of one kind, an index into the columns of a topology, under one policy."""

    policy: str
    column: int


@dataclass(frozen=True, slots=True)
class Followed:
    """A table, and every case of a variant in which it or one of an equal form is followed.

    ``plans`` numbers the forms of its boundaries, which are equal where their numbers are.
    """

    table: Table
    cases: tuple[Case, ...]
    plans: Mapping[Edge, int]


Kinds = tuple[tuple[int, Column], ...]
"""Kinds of batch with their numbers."""


def kinds_of(topology: TopologyPlan, variant: str) -> Kinds:
    """The kinds of batch of a variant."""
    return tuple((i, one) for i, one in enumerate(topology.columns) if one.variant == variant)


Form = tuple[Hashable, ...]
"""Names of the mesh, kinds of batch with their numbers, and by policy the plans of each."""


class Forms:
    """What the kinds of batch of one variant depend on, in the plans of one stack: as values.

    They are equal on topologies whose plans for the variant differ in sizes alone, or in what is
    promised to be even where no operation takes it so.
    """

    def __init__(self) -> None:
        self._plans: dict[Hashable, int] = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        # By identity, of what the plans keep: many kinds of batch share their tables.
        self._tables: dict[int, tuple[int, tuple[int, ...]]] = {}

    def of(self, topology: TopologyPlan, variant: str) -> Form:
        """The form of the plans of a variant on a topology.

        Of the mesh only names are in it, and so how the axes of attention are cut: which atoms
        dense FFNs and experts are sharded over shows in the plans. Kinds of batch come with their
        numbers, by which functions may be told apart.
        """
        kinds = kinds_of(topology, variant)
        tables = tuple(
            (policy, *(self._table(tables[index])[0] for index, _ in kinds))
            for policy, tables in topology.tables.items()
        )
        return naming(topology.mesh), kinds, tables

    def followed(
        self, topology: TopologyPlan, variant: str, policies: Iterable[str]
    ) -> tuple[Followed, ...]:
        """The tables of a variant on a topology that differ in form, by the first case of each.

        Cases are in the order of ``policies``, then of kinds of batch.
        """
        found: dict[int, tuple[Table, list[Case], tuple[int, ...]]] = {}
        kinds = kinds_of(topology, variant)
        for policy in policies:
            for index, _ in kinds:
                table = topology.tables[policy][index]
                number, plans = self._table(table)
                found.setdefault(number, (table, [], plans))[1].append(Case(policy, index))
        return tuple(
            Followed(table, tuple(cases), dict(zip(table, plans, strict=True)))
            for table, cases, plans in found.values()
        )

    def _table(self, table: Table) -> tuple[int, tuple[int, ...]]:
        """The number of the form of a table, and those of its boundaries."""
        known = self._tables.get(id(table))
        if known is None:
            found = (_planned(boundary) for boundary in table.values())
            plans = tuple([self._plans.setdefault(one, len(self._plans)) for one in found])
            number = self._numbers.setdefault(plans, len(self._numbers))
            known = self._tables[id(table)] = number, plans
        return known


def _planned(boundary: Boundary) -> Hashable:
    return boundary.start, boundary.goal, boundary.path.ops, form(boundary.facts)


def form(facts: EdgeFacts) -> Hashable:
    """What code is written from, beside the operations: neither sizes nor what is even.

    Nor what sums may be scattered over: all of these show in the operations.
    """
    _sizes, _even, shards, _scatter, _scatter_by_size, *rest = facts
    return shards, *rest


def _same(one: TopologyPlan, other: TopologyPlan) -> bool:
    pairs: dict[tuple[int, int], tuple[Table, Table]] = {}
    for policy, tables in one.tables.items():
        for mine, theirs in zip(tables, other.tables[policy], strict=True):
            pairs[id(mine), id(theirs)] = mine, theirs  # policies share many of them
    return all(
        _equal(boundary, theirs[edge])
        for mine, theirs in pairs.values()
        for edge, boundary in mine.items()
    )


def _equal(one: Boundary, other: Boundary) -> bool:
    """Whether two plans of one edge agree in everything but the sizes and what they cost."""
    if one.start != other.start or one.goal != other.goal:
        return False
    same = one.path is other.path or one.path.ops == other.path.ops
    _, *mine = one.facts  # the sizes come first
    _, *theirs = other.facts
    return same and mine == theirs
