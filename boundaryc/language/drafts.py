"""`drafts`: stacks of their own that inherit what they do not say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from boundaryc.language.context import Context
from boundaryc.language.fusion import resolve_terminal
from boundaryc.language.layers import Layers, resolve_layers
from boundaryc.language.model import Stack, Stage
from boundaryc.language.names import name_problem
from boundaryc.language.reader import Path
from boundaryc.language.residual import operations_of
from boundaryc.language.schema import DraftShape, StackShape
from boundaryc.language.spans import Span
from boundaryc.language.stages import check_additions, resolve_stages
from boundaryc.language.streams import check_stage, with_own_operations

ValueT = TypeVar("ValueT")

_OWN = frozenset(
    {"layers", "policy", "stack", "captures", "drafts", "entry"}
    | {"branch", "extras", "pipeline", "segments", "terminal"}
)


def by_first_use(stages: Mapping[str, Stage], layers: Layers) -> tuple[Stage, ...]:
    """The stages that layers use, in that order, then the others by name."""
    order: dict[str, int] = {}
    for layer in layers:
        for name in layer:
            order.setdefault(name, len(order))
    return tuple(sorted(stages.values(), key=lambda s: (order.get(s.name, len(order)), s.name)))


def resolve_drafts(
    shape: StackShape, target: Stack, inherited: Mapping[str, Stage], context: Context
) -> tuple[Stack, ...]:
    """The drafts of `target` by name; errors go to `context`.

    `target` has all operations of the file, `inherited` are all stages of the main stack.
    """
    return tuple(
        _draft(name, entry, shape, target, inherited, context)
        for name, entry in sorted(shape.drafts.items())
    )


def _draft(
    name: str,
    entry: DraftShape,
    shape: StackShape,
    target: Stack,
    inherited: Mapping[str, Stage],
    context: Context,
) -> Stack:
    """One draft: its own stages checked, the others taken over, and only what its layers use."""
    whole = f"{target.name}_{name}"
    inside = context.inside("drafts", name)
    context.name("draft", name, ("drafts", name))
    if name_problem("draft", name) is None and (problem := name_problem("stack", whole)):
        inside.report(problem[0], (), problem[1], problem[2], key=True)
    own = resolve_stages(entry.stages, shape.stages, shape, inside)
    layers = resolve_layers(entry.layers, {**inherited, **own}, own, inside)
    known = {**inherited, **own}

    def path_of(stage: str) -> Path:
        return ("drafts", name, "stages", stage) if stage in own else ("stages", stage)

    check_additions(known, layers, shape.operations, path_of, context)
    for stage in own.values():
        path: Path = ("stages", stage.name)
        check_stage(stage, shape.operations, target.streams, target.norm, path, inside)
    used = {stage for layer in layers for stage in layer}
    if layers and not used:
        message = f"the draft `{name}` has no stage"
        inside.report("BC204", ("layers",), message, "give one of its layers a stage", key=True)
    entries = {**shape.stages, **entry.stages}
    said = operations_of(entries[stage] for stage in used if stage in entries)
    stages = {stage: found for stage, found in known.items() if stage in used}
    draft = dataclasses.replace(
        target,
        name=whole,
        stages=by_first_use(stages, layers),
        layers=layers,
        policy_auto=entry.policy.auto if entry.policy else target.policy_auto,
        entry=entry.entry,
        captures=(),
        extras=(),
        drafts=(),
        pipeline=None,
        segments=False,
        branch=None,
        terminal=resolve_terminal(entry.terminal, stages, layers, shape.residual, inside),
        spans=_spans(name, target.spans),
    )
    return with_own_operations(draft, said)


def of_draft(name: str, found: Mapping[str, ValueT]) -> dict[str, ValueT]:
    """What is known of a draft's parts, by the paths of a stack file of its own.

    ``found`` has the same by the paths of the file that the draft is in.
    """
    prefix = f"drafts.{name}."
    own = {
        path.removeprefix(prefix): value for path, value in found.items() if path.startswith(prefix)
    }
    replaced = {".".join(path.split(".")[:2]) for path in own if path.startswith("stages.")}
    left_out = _OWN - {"policy"} if "policy" not in own else _OWN
    own.pop("stages", None)  # the stack's are meant as well
    taken = {
        path: value
        for path, value in found.items()
        if path.partition(".")[0] not in left_out and ".".join(path.split(".")[:2]) not in replaced
    }
    return taken | own


def _spans(name: str, spans: Mapping[str, Span]) -> Mapping[str, Span]:
    """Where the parts of the draft are written, by the paths of a stack file of its own."""
    return MappingProxyType(of_draft(name, spans) | {"stack": spans[f"drafts.{name}"]})
