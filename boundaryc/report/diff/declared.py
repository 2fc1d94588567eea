"""What two stacks declare differently, and which of their stages only have another name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from boundaryc.language.model import Branch, Stack
from boundaryc.plan.result import StackPlan
from boundaryc.report.diff import breaks
from boundaryc.report.diff.facts import ITEMS, items, layers, settings, summary
from boundaryc.report.diff.model import Change


def renames(before: Stack, after: Stack) -> dict[str, str]:
    """Stages that are declared as before, where they were before, under another name."""
    old = {one.name: one for one in before.stages}
    new = {one.name: one for one in after.stages}
    gone, come = (
        [name for name in old if name not in new],
        [name for name in new if name not in old],
    )
    return {
        name: other
        for name in gone
        for other in come
        if replace(old[name], name=other) == new[other]
        and _places(before, name) == _places(after, other)
    }


def _places(stack: Stack, name: str) -> list[tuple[int, int]]:
    """Where a stage is: the layer and the place in it."""
    return [
        (index, at)
        for index, layer in enumerate(stack.layers)
        for at, stage in enumerate(layer)
        if stage == name
    ]


def with_names(stack: Stack, names: Mapping[str, str]) -> Stack:
    """The stack with other names for some of its stages."""
    if not names:
        return stack

    def told(some: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(one, one) for one in some)

    branch = stack.branch
    if branch is not None:
        beside = names.get(branch.beside, branch.beside)
        branch = Branch(beside, told(branch.stages), branch.merges_sum)
    return replace(
        stack,
        stages=tuple(replace(one, name=names.get(one.name, one.name)) for one in stack.stages),
        layers=tuple(told(layer) for layer in stack.layers),
        branch=branch,
    )


def declared_changes(before: Stack, after: Stack) -> Iterator[Change]:
    """All that differs between two declarations but variants and stages' names."""
    if before.name != after.name:
        gone = breaks.removed("stack", before.name)
        yield Change("renamed", "stack", after.name, before.name, after.name, gone)
    for of in ITEMS:
        yield from _items(before, after, of)
    if before.layers != after.layers:
        why = breaks.layers(before.layers, after.layers)
        yield Change("changed", "layers", "", layers(before), layers(after), why)
    yield from _keys("setting", "", settings(before), settings(after))


def _items(before: Stack, after: Stack, of: str) -> Iterator[Change]:
    """What differs in the things of one kind."""
    old, new = items(before, of), items(after, of)
    for one in getattr(before, ITEMS[of]):
        if one.name not in new:
            gone = breaks.removed(of, one.name)
            yield Change("removed", of, one.name, summary(one), "", gone)
    for one in getattr(after, ITEMS[of]):
        if one.name not in old:
            yield Change("added", of, one.name, "", summary(one), breaks.added(of))
        else:
            yield from _keys(of, f"{one.name}.", old[one.name], new[one.name])


def _keys(of: str, name: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    """The keys of one thing that say something else."""
    old, new = _whole(old, new), _whole(new, old)
    for key in dict.fromkeys([*old, *new]):
        was, now = old.get(key, ""), new.get(key, "")
        if was != now:
            why = breaks.changed(of, key, was, now)
            yield Change("changed", of, f"{name}{key}", was, now, why)


def _whole(own: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """The keys of one side; what the other has nothing of at all is one key."""
    roots = {key.partition(".")[0] for key in other}
    found: dict[str, str] = {}
    for key, text in own.items():
        root, _, rest = key.partition(".")
        if not rest or root in roots:
            found[key] = text
        else:
            found[root] = ", ".join(filter(None, [found.get(root, ""), f"{rest} {text}"]))
    return found


def few_rows_changes(before: StackPlan, after: StackPlan) -> Iterator[Change]:
    """Up to how many rows batches run the plan for few, where both versions have such a plan."""
    old = {one.spec.name: one.few_rows for one in before.topologies}
    for topology in after.topologies:
        name = topology.spec.name
        for variant, now in topology.few_rows.items():
            was = old.get(name, {}).get(variant, now)
            if was != now:
                key = f"{name}.few_rows.{variant}"
                yield Change("changed", "topology", key, str(was), str(now))


def variant_changes(before: StackPlan, after: StackPlan) -> Iterator[Change]:
    """The variants that topologies of both plans have gained or lost, topologies together."""
    old = {one.spec.name: tuple(one.row_multiples) for one in before.topologies}
    gained: dict[str, list[str]] = {}
    lost: dict[str, list[str]] = {}
    for topology in after.topologies:
        name, now = topology.spec.name, tuple(topology.row_multiples)
        was = old.get(name, now)
        for variant in (one for one in was if one not in now):
            lost.setdefault(variant, []).append(name)
        for variant in (one for one in now if one not in was):
            gained.setdefault(variant, []).append(name)
    for variant, names in lost.items():
        gone = breaks.removed("variant", variant)
        yield Change("removed", "variant", variant, f"on {', '.join(names)}", "", gone)
    for variant, names in gained.items():
        yield Change("added", "variant", variant, "", f"on {', '.join(names)}")
