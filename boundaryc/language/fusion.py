"""`fusion`, `finalize` and `terminal`: sums that a fused kernel may end, and how a stack ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from boundaryc.language.context import Context
from boundaryc.language.fusion_shapes import TerminalShape
from boundaryc.language.layers import Layers
from boundaryc.language.model import SYMMETRIC, Capture, Reduction, Stage, Terminal
from boundaryc.language.operation_shapes import ResidualShape
from boundaryc.language.reader import Path
from boundaryc.language.residual import plain_add
from boundaryc.language.schema import StackShape, StageShape
from boundaryc.language.streams import operation_of

_VECTOR = 8


def resolve_providers(shape: StackShape, context: Context) -> tuple[str, ...]:
    """The fusion providers in order; errors go to `context`."""
    if shape.fusion is None:
        return ()
    path: Path = ("fusion", "providers")
    context.repeats(shape.fusion.providers, path)
    for index, name in enumerate(shape.fusion.providers):
        context.name("provider", name, (*path, index))
        if name == SYMMETRIC and shape.hidden_size % _VECTOR:
            message = f"kernels over symmetric memory move {_VECTOR} columns at once, and"
            message += f" {shape.hidden_size} are no multiple"
            context.report("BC213", (*path, index), message, f"remove `{SYMMETRIC}`")
    return tuple(shape.fusion.providers)


def resolve_finalize(
    entry: StageShape, reduction: Reduction, shape: StackShape, path: Path, context: Context
) -> Literal["here", "deferred"]:
    """Whether a MoE may hand on what it has not finalised; errors go to `context`.

    What is handed on is finished by a sum, an addition and a norm, and nothing else.
    """
    at, name = (*path, "finalize"), path[-1]
    if "finalize" in entry.model_fields_set and not entry.sparse:
        message = f"`finalize` is for sparse ffn stages, and `{name}` is not one"
        context.report("BC212", at, message, "remove `finalize`", key=True)
    elif entry.finalize == "deferred":
        for message, help_ in _against(entry, reduction, shape):
            context.report("BC213", at, message, help_, key=True)
    return entry.finalize


def _against(
    entry: StageShape, reduction: Reduction, shape: StackShape
) -> Iterator[tuple[str, str]]:
    """What speaks against a deferred finalize, and its remedies."""
    if shape.fusion is None:
        message = "nobody can finish a deferred finalize: the stack has no fusion provider"
        yield message, "declare `fusion: {providers: [...]}`, or remove `finalize`"
    if reduction == "local_tail":
        yield "a local tail is added to a finalised output", "remove `finalize`, or the reduction"
    if not entry.defer:
        yield "a deferred finalize leaves its sum to the next stage", "remove `finalize` or `defer`"
    if entry.additive:
        yield "additive terms are added to a finalised output", "remove `finalize` or `additive`"
    if entry.transform is not None:
        yield "a transform takes a finalised output", "remove `finalize` or `transform`"
    if not plain_add(entry.update, shape.operations) or _at_producer(entry, shape):
        message = "what finishes a deferred finalize adds it to the residual in the next stage"
        yield message, "remove `finalize`, or use a plain update that may run there"
    if shape.lora:
        yield "an adapter adds to a finalised output", "remove `finalize` or `lora`"
    if shape.branch is not None:
        message = "a stack with a branch hands on finalised outputs only"
        yield message, "remove `finalize`, or the branch"


def _at_producer(entry: StageShape, shape: StackShape) -> bool:
    """Whether the update runs at its producer."""
    declared = shape.operations.get(entry.update) if isinstance(entry.update, str) else None
    return declared is not None and "at_producer" in declared.facts


def resolve_terminal(
    entry: TerminalShape,
    stages: Mapping[str, Stage],
    layers: Layers,
    residual: ResidualShape | None,
    context: Context,
) -> Terminal:
    """How a stack of these layers ends; errors go to `context`.

    `residual` is the set of the file.
    """
    path: Path = ("terminal", "finalize")
    names = [name for layer in layers for name in layer]
    last = stages.get(names[-1]) if names else None
    if entry.finalize == "deferred" and not entry.norm:
        message = "the final norm cannot finish a MoE: the stack ends without one"
        context.report("BC213", path, message, "remove `finalize`, or `norm: false`", key=True)
    elif entry.finalize == "deferred" and residual and operation_of(residual, "leave") != "norm":
        message = "only a norm finishes a MoE, and the stack has a final read of its own"
        context.report("BC213", path, message, "remove `finalize`, or `leave`", key=True)
    elif entry.finalize == "deferred" and last is not None and last.finalize != "deferred":
        message = f"the last stage, `{last.name}`, hands on nothing that is to be finalised"
        help_ = "remove `finalize`, or write `finalize: deferred` for that stage"
        context.report("BC213", path, message, help_, key=True)
    return Terminal(entry.norm, entry.finalize)


def check_shown(
    captures: tuple[Capture, ...], terminal: Terminal, layers: Layers, context: Context
) -> None:
    """Reports captures of what a final norm reads that may finish a MoE: it shows no residual."""
    if terminal.finalize != "deferred":
        return
    for capture in captures:
        first = capture.layers[-1] + (capture.where == "after") if capture.layers else 0
        if capture.layers and not any(layers[first:]):
            message = f"a final norm that finishes a MoE shows nothing, and `{capture.name}` is to"
            help_ = "remove `finalize`, or capture before an earlier layer"
            other: tuple[Path, str] = (
                ("captures", capture.name, capture.where),
                "it keeps what the final norm reads",
            )
            context.report("BC213", ("terminal", "finalize"), message, help_, key=True, other=other)
