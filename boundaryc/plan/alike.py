"""Topologies whose plans are the same: they differ in the sizes of their meshes alone.

What is made of one such plan, its judgement and its code, serves the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from boundaryc.plan.result import Boundary, Table, TopologyPlan


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
