"""What the planner cannot do, as diagnostics that point into the user's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from boundaryc.emit.shown import shown
from boundaryc.graph.build import ENTRY, FINAL, MERGE
from boundaryc.language import BoundarycError, Diagnostic, Label, Severity, Stack
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.result import PlanError, StackPlan
from boundaryc.topology import TopologyError

CODES: Mapping[str, str] = MappingProxyType(
    {
        "BC401": "a boundary has no plan",
        "BC402": "the axes of a topology do not fit together",
        "BC403": "a variant applies to no topology",
    }
)
"""Codes of this phase and what each means."""


def planned(stack: Stack, sources: Mapping[str, str]) -> StackPlan:
    """The plan of ``stack``; raises BoundarycError where there is none.

    ``sources`` maps file names to their text, for the error's rendering.
    """
    try:
        plan = plan_stack(stack)
    except PlanError as problem:
        raise BoundarycError([_no_plan(stack, problem)], sources) from problem
    except TopologyError as problem:
        raise BoundarycError([_no_mesh(stack, problem)], sources) from problem
    unused = [_nowhere(plan, variant) for variant in stack.variants if not _applies(plan, variant)]
    if unused:
        raise BoundarycError(unused, sources)
    return plan


def planned_family(stack: Stack, sources: Mapping[str, str]) -> tuple[StackPlan, ...]:
    """The plans of ``stack`` and of its drafts; raises BoundarycError with what is wrong in any.

    What all of them inherit, like a topology, is reported once.
    """
    plans: list[StackPlan] = []
    found: dict[Diagnostic, None] = {}
    for one in stack.family:
        try:
            plans.append(planned(one, sources))
        except BoundarycError as problem:
            found |= dict.fromkeys(problem.diagnostics)
    if found:
        raise BoundarycError(list(found), sources)
    return tuple(plans)


def _no_plan(stack: Stack, problem: PlanError) -> Diagnostic:
    edge, column, topology = problem.edge, problem.column, _culprit(stack)
    producer = "the start of the stack" if edge.producer == ENTRY else f"`{edge.producer}`"
    stage, consumer = edge.consumer, f"`{edge.consumer}`"
    if edge.consumer in (FINAL, MERGE):
        stage, consumer = edge.producer, shown(stack, edge.consumer)
    even = f"cut evenly over {', '.join(column.even)}" if column.even else "cut unevenly"
    return Diagnostic(
        "BC401",
        Severity.ERROR,
        f"no plan from {producer} to {consumer}: {problem.reason} "
        f"({topology}, {column.variant} batches {even}, policy {problem.policy})",
        stack.span(f"stages.{stage}"),
        labels=_labels(stack, f"topologies.{topology}", "on this topology"),
        help="drop what the message names from the stage or its operations, "
        "or leave this variant or topology out",
    )


def _no_mesh(stack: Stack, problem: TopologyError) -> Diagnostic:
    name = _culprit(stack)
    return Diagnostic(
        "BC402",
        Severity.ERROR,
        f"topology `{name}`: {problem}",
        stack.span(f"topologies.{name}"),
        help="make each group size a multiple of the next smaller one",
    )


def _labels(stack: Stack, path: str, text: str) -> tuple[Label, ...]:
    span = stack.span(path)
    return (Label(span, text),) if span else ()


def _culprit(stack: Stack) -> str:
    """The first topology that cannot be planned."""
    for spec in stack.topologies:
        try:
            plan_stack(replace(stack, topologies=(spec,)))
        except (PlanError, TopologyError):
            return spec.name
    raise AssertionError("every topology can be planned alone")


def _nowhere(plan: StackPlan, variant: str) -> Diagnostic:
    reasons = sorted(
        {why for top in plan.topologies for name, why in top.skipped if name == variant}
    )
    return Diagnostic(
        "BC403",
        Severity.ERROR,
        f"the variant {variant} applies to no topology: {'; '.join(reasons)}",
        plan.stack.span("variants"),
        help="remove the variant, or add a topology that it applies to",
    )


def _applies(plan: StackPlan, variant: str) -> bool:
    return any(column.variant == variant for top in plan.topologies for column in top.columns)
