"""A stack file compiled in memory: the stack and its drafts, each an output of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from boundaryc.emit.diagnose import planned_family
from boundaryc.emit.manifest import keeps_runtime
from boundaryc.emit.notes import notes
from boundaryc.emit.origin import origin
from boundaryc.emit.output import Output, emit
from boundaryc.emit.reuse import Library
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

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its files."""
        return tuple(self.output.files)


def build(source: Path, out: Path, library: Library | None = None) -> tuple[Build, ...]:
    """Loads, plans and renders ``source`` for the output folder ``out``; writes nothing.

    ``library`` has what other files have been given, see `emit`.
    The result has the stack of the file first, then its drafts. Raises BoundarycError with what is
    wrong in the file.
    """
    with uncollected():
        stack = load(source)
        plans = planned_family(stack, {stack.source: source.read_text(encoding="utf-8")})
        return tuple(_built(plan, source, out, library) for plan in plans)


def to_publish(made: Sequence[Build], out: Path, vendor: bool | None = None) -> tuple[Build, ...]:
    """A file's stacks as they are to be published, with ``vendor`` with a runtime of their own.

    None: as the first of them is published, without one where it is not.
    """
    if not (keeps_runtime(out / made[0].name) if vendor is None else vendor):
        return tuple(made)
    from boundaryc.emit.vendor import vendored

    return tuple(replace(one, output=vendored(one.output)) for one in made)


def _built(plan: StackPlan, source: Path, out: Path, library: Library | None) -> Build:
    output = emit(plan, origin(plan.stack, source, out), library)
    return Build(source, plan.stack, output, notes(plan.stack))
