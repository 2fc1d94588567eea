"""Two plans side by side: every boundary in every kind of batch that either of them tells apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from boundaryc.emit.when import batches
from boundaryc.graph.build import Edge
from boundaryc.plan.result import Column, StackPlan, TopologyPlan
from boundaryc.report.diff.model import Place
from boundaryc.report.explain import named

ValueT = TypeVar("ValueT")
KeyT = TypeVar("KeyT")

Read = Callable[[TopologyPlan, int, str, Edge], ValueT | None]
"""What is compared: of a topology, in a column, under a policy, at a boundary; None for nothing."""

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Side(Generic[ValueT]):
    """One of the two plans, and what is read of it."""

    plan: StackPlan
    read: Read[ValueT]

    def at(self, topology: TopologyPlan, cell: Column, policy: str, edge: Edge) -> ValueT | None:
        """The value for one kind of batch; None where the stack has no plan for it."""
        table = self.plan.stack.policy_auto if policy == AUTO else policy
        column = _column(topology, cell)
        return None if column is None else self.read(topology, column, table, edge)


@dataclass(frozen=True, slots=True)
class Pair:
    """A boundary of both plans, or of one, what it is called, and what its namesakes are, too."""

    name: str
    shared: str
    before: Edge | None
    after: Edge | None


Shown = Callable[[ValueT | None, ValueT | None], KeyT]
"""What of two values that differ is told; what is told alike is one difference."""

Found = dict[KeyT, list[Place]]
"""What differs at a boundary, and where."""


def differing(
    before: Side[ValueT], after: Side[ValueT], shown: Shown[ValueT, KeyT]
) -> list[tuple[str, KeyT, list[Place]]]:
    """All differences of two plans by boundary, in the order of the stack.

    Topologies and variants that only one of them has are left out. Boundaries of one name at which
    all is alike are told once.
    """
    old = {one.spec.name: one for one in before.plan.topologies}
    by_pair: dict[Pair, Found[KeyT]] = {}
    for pair in pairs(before.plan, after.plan):
        found: Found[KeyT] = by_pair.setdefault(pair, {})
        for topology in after.plan.topologies:
            other = old.get(topology.spec.name)
            if other is None:
                continue
            for variant in topology.row_multiples:
                if variant in other.row_multiples:
                    _compare(found, pair, variant, (before, other), (after, topology), shown)
    alike: dict[str, list[Found[KeyT]]] = {}
    for pair, found in by_pair.items():
        alike.setdefault(pair.shared, []).append(found)
    told = {
        pair.shared if all(one == found for one in alike[pair.shared]) else pair.name: found
        for pair, found in by_pair.items()
    }
    return [(name, key, places) for name, found in told.items() for key, places in found.items()]


def _compare(
    found: Found[KeyT],
    pair: Pair,
    variant: str,
    before: tuple[Side[ValueT], TopologyPlan],
    after: tuple[Side[ValueT], TopologyPlan],
    shown: Shown[ValueT, KeyT],
) -> None:
    """Adds what differs at one boundary, on one topology, in one variant."""
    (old, old_topology), (new, topology) = before, after
    every = cells(variant, old_topology, topology)
    policies = _policies(old.plan, new.plan, old_topology, topology)
    met: dict[KeyT, dict[str, list[Column]]] = {}
    for policy in policies:
        for cell in every:
            was = None if pair.before is None else old.at(old_topology, cell, policy, pair.before)
            now = None if pair.after is None else new.at(topology, cell, policy, pair.after)
            if was != now:
                met.setdefault(shown(was, now), {}).setdefault(policy, []).append(cell)
    for key, by_policy in met.items():
        for some, names in _alike(by_policy).items():
            when = batches(list(every), list(some)) if len(some) < len(every) else ""
            chosen = () if len(names) == len(policies) else tuple(names)
            place = Place(topology.spec.name, variant, chosen, when)
            found.setdefault(key, []).append(place)


def _alike(by_policy: dict[str, list[Column]]) -> dict[tuple[Column, ...], list[str]]:
    found: dict[tuple[Column, ...], list[str]] = {}
    for policy, some in by_policy.items():
        found.setdefault(tuple(some), []).append(policy)
    return found


def _policies(
    before: StackPlan, after: StackPlan, old: TopologyPlan, new: TopologyPlan
) -> tuple[str, ...]:
    """The policies of both; ``auto`` too, where it does not stand for the same one."""
    both = [name for name in new.tables if name in old.tables]
    moved = before.stack.policy_auto != after.stack.policy_auto
    return (*([AUTO] if moved else []), *both)


def cells(variant: str, before: TopologyPlan, after: TopologyPlan) -> tuple[Column, ...]:
    """Every kind of batch of a variant that either of two topologies tells apart."""
    columns = [one for side in (after, before) for one in side.columns if one.variant == variant]
    evens = sorted({one.even for one in columns}, key=lambda even: (-len(even), even))
    entries = dict.fromkeys(one.entry for one in columns)
    fews = (None,) if all(one.few is None for one in columns) else (True, False)
    modes: tuple[Literal["prefill", "decode"] | None, ...] = ("prefill", "decode")
    if all(one.mode is None for one in columns):
        modes = (None,)
    return tuple(
        Column(variant, even, entry, few, mode)
        for even in evens
        for entry in entries
        for few in fews
        for mode in modes
    )


def _column(topology: TopologyPlan, cell: Column) -> int | None:
    """The first column that takes such a batch, as the runtime chooses it."""
    for index, column in enumerate(topology.columns):
        fits = column.variant == cell.variant and set(column.even) <= set(cell.even)
        fits &= column.few in (None, cell.few) and column.mode in (None, cell.mode)
        if fits and column.entry == cell.entry:
            return index
    return None


def pairs(before: StackPlan, after: StackPlan) -> Iterator[Pair]:
    """The boundaries of both plans, each beside the one that it is in the other.

    That is the same one; else the one between the same stages with other captures; else one whose
    producer follows another stage.
    """
    old, new = before.graph.edges(), after.graph.edges()
    several = _several([(before, one) for one in old] + [(after, one) for one in new])
    for edge in new:
        yield _pair(after, edge, several, _counterpart(edge, old), edge)
    for edge in old:
        other = _counterpart(edge, new)
        if edge not in new and (other is None or _counterpart(other, old) != edge):
            yield _pair(before, edge, several, edge, other)


def _pair(
    plan: StackPlan, edge: Edge, several: set[str], before: Edge | None, after: Edge | None
) -> Pair:
    name, captures = named(plan, edge), edge.target.captures
    kept = f"captured as {', '.join(captures)}" if captures else ""
    words = [f"after {edge.source.producer or 'the start'}"] if name in several else []
    full = "; ".join([*words, *([kept] if kept else [])])
    return Pair(
        f"{name} ({full})" if full else name,
        f"{name} ({kept})" if kept else name,
        before,
        after,
    )


def _counterpart(edge: Edge, others: tuple[Edge, ...]) -> Edge | None:
    if edge in others:
        return edge
    for key in (_between, _ends):
        alike = [one for one in others if key(one) == key(edge)]
        if alike:
            return min(alike, key=lambda one: len(one.target.captures))
    return None


def _between(edge: Edge) -> tuple[object, ...]:
    source, target = edge
    return (source.producer, source.consumer, source.prepared, *_ends(edge), target.producer)


def _ends(edge: Edge) -> tuple[object, ...]:
    """What a boundary is called by: the stages on both sides."""
    return (edge.producer, edge.consumer, edge.forks, edge.source.merges)


def _several(known: list[tuple[StackPlan, Edge]]) -> set[str]:
    """The names that boundaries with other stages before them share."""
    found: dict[str, set[tuple[object, ...]]] = {}
    for plan, edge in known:
        found.setdefault(named(plan, edge), set()).add(_between(edge))
    return {name for name, different in found.items() if len(different) > 1}
