"""A stack file compiled in memory: the stack and its drafts, each an output of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from boundaryc.emit.diagnose import planned_family
from boundaryc.emit.notes import notes
from boundaryc.emit.origin import origin
from boundaryc.emit.output import Output, emit
from boundaryc.language import Stack, load
from boundaryc.plan.collector import uncollected
from boundaryc.plan.result import StackPlan


@dataclass(frozen=True, slots=True)
class Build:
    """What one stack of a source compiles to, and what its author should know about it.

    ``notes`` are lines for people: variants that do not apply to a topology, claims that nothing
    has verified.
    """

    source: Path
    stack: Stack
    output: Output
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The stack's name."""
        return self.output.stack


def build(source: Path, out: Path) -> tuple[Build, ...]:
    """Loads, plans and renders ``source`` for the output folder ``out``; writes nothing.

    The result has the stack of the file first, then its drafts. Raises BoundarycError with what is
    wrong in the file.
    """
    with uncollected():
        stack = load(source)
        plans = planned_family(stack, {stack.source: source.read_text(encoding="utf-8")})
        return tuple(_built(plan, source, out) for plan in plans)


def _built(plan: StackPlan, source: Path, out: Path) -> Build:
    output = emit(plan, origin(plan.stack, source, out))
    return Build(source, plan.stack, output, notes(plan.stack))
