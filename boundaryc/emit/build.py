"""A stack file compiled in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from boundaryc.emit.diagnose import planned
from boundaryc.emit.manifest import claims
from boundaryc.emit.origin import origin
from boundaryc.emit.output import Output, emit
from boundaryc.language import Stack, load
from boundaryc.plan.result import StackPlan, TopologyPlan


@dataclass(frozen=True, slots=True)
class Build:
    """What one source compiles to, and what its author should know about it.

    ``notes`` are lines for people: variants that do not apply to a topology, claims that nothing
    has verified.
    """

    source: Path
    stack: Stack
    output: Output
    notes: tuple[str, ...]


def build(source: Path, out: Path) -> Build:
    """Loads, plans and renders ``source`` for the output folder ``out``; writes nothing.

    Raises BoundarycError with what is wrong in the file.
    """
    stack = load(source)
    plan = supported(planned(stack, {stack.source: source.read_text(encoding="utf-8")}))
    output = emit(plan, origin(stack, source, out))
    return Build(source, stack, output, (*_skipped(plan), *_claimed(plan)))


def supported(plan: StackPlan) -> StackPlan:
    """The plan without the kinds of batch that the runtime cannot form yet.

    Those are batches whose input still owes a sum when it enters the stack.
    """
    return replace(plan, topologies=tuple(_complete(topology) for topology in plan.topologies))


def _complete(topology: TopologyPlan) -> TopologyPlan:
    kept = [i for i, column in enumerate(topology.columns) if column.entry == "complete"]
    return replace(
        topology,
        columns=tuple(topology.columns[index] for index in kept),
        tables={
            policy: tuple(tables[index] for index in kept)
            for policy, tables in topology.tables.items()
        },
    )


def _skipped(plan: StackPlan) -> list[str]:
    return [
        f"{plan.stack.name}: no {variant} on {topology.spec.name}: {why}"
        for topology in plan.topologies
        for variant, why in topology.skipped
    ]


def _claimed(plan: StackPlan) -> list[str]:
    return [
        f"{plan.stack.name}: facts of `{name}` are claimed, not yet verified: "
        f"{', '.join(claims(operation)) or 'none'}"
        for name, operation in plan.operations.items()
        if operation.call is not None
    ]
