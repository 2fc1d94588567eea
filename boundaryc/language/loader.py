"""From a file, or its text, to a `Stack`.

Three phases, each of which collects all its errors before it gives up: reading (`reader`), shape
(`shape` and `schema`) and meaning (`stages`, `layers` and the other modules that have the name of a
key).
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path as FilePath
from types import MappingProxyType

from boundaryc.language.branches import check_branch, meant, with_branch
from boundaryc.language.captures import resolve_captures
from boundaryc.language.context import Context, TooManyErrorsError
from boundaryc.language.diagnostics import BoundarycError
from boundaryc.language.drafts import by_first_use, resolve_drafts
from boundaryc.language.extras import resolve_extras
from boundaryc.language.files import read_text
from boundaryc.language.fusion import check_shown, resolve_providers, resolve_terminal
from boundaryc.language.layers import resolve_layers
from boundaryc.language.model import Stack
from boundaryc.language.norms import check_norm, meant_norm
from boundaryc.language.pipeline import resolve_pipeline, resolve_segments
from boundaryc.language.reader import Tree, read
from boundaryc.language.residual import operations_of, resolve_operations
from boundaryc.language.schema import StackShape
from boundaryc.language.shape import check_shape
from boundaryc.language.spans import Position, Span
from boundaryc.language.stages import check_additions, resolve_stages
from boundaryc.language.streams import resolve_residual, with_own_operations, with_set
from boundaryc.language.topologies import resolve_topologies, resolve_variants


def load(path: str | FilePath) -> Stack:
    """The stack in the file at `path`.

    Raises BoundarycError if the file cannot be read or is not a valid stack.
    """
    return loads(read_text(path), str(path))


def loads(text: str, source: str = "<string>") -> Stack:
    """The stack written in `text`; `source` names it in messages and spans.

    A leading byte order mark is ignored. Raises BoundarycError with every error of the first phase
    that finds any.
    """
    text = text.removeprefix("\ufeff")
    tree = read(text, source)
    shape = check_shape(tree, source, text)
    context = Context(tree)
    stack: Stack | None = None
    with suppress(TooManyErrorsError):
        stack = _resolve(shape, tree, source, context)
    if context.errors or stack is None:
        ordered = sorted(
            context.errors, key=lambda item: (item.span or _nowhere(source), item.code)
        )
        raise BoundarycError(ordered, {source: text})
    return stack


def _resolve(shape: StackShape, tree: Tree, source: str, context: Context) -> Stack:
    context.name("stack", shape.stack, ("stack",))
    shape = with_set(shape)
    check_norm(shape.norm, ("norm",), context)
    stages = resolve_stages(shape.stages, {}, shape, context)
    in_branch = meant(shape.branch, stages)
    declared = [name for name in stages if name not in in_branch]
    main = resolve_layers(shape.layers, stages, declared, context)
    branch = check_branch(shape, stages, main, context)
    for line in (main, (branch.stages,) if branch else ()):
        check_additions(stages, line, shape.operations, lambda name: ("stages", name), context)
    layers = with_branch(main, branch)
    topologies = resolve_topologies(shape, context)
    stack = Stack(
        name=shape.stack,
        hidden_size=shape.hidden_size,
        norm=meant_norm(shape.norm),
        stages=by_first_use(stages, layers),
        layers=layers,
        topologies=topologies,
        variants=resolve_variants(shape, topologies, context),
        operations=resolve_operations(shape, context),
        policy_auto=shape.policy.auto,
        source=source,
        spans=MappingProxyType(dict(tree.spans())),
        captures=resolve_captures(shape, len(layers), context),
        extras=resolve_extras(shape, stages, layers, context),
        pipeline=resolve_pipeline(shape, len(layers), context),
        segments=resolve_segments(shape, len(layers), context),
        branch=branch,
        two_batch=shape.overlap is not None and shape.overlap.two_batch,
        lora=shape.lora,
        residual=resolve_residual(shape, stages.values(), context),
        fusion=resolve_providers(shape, context),
        terminal=resolve_terminal(shape.terminal, stages, layers, shape.residual, context),
    )
    check_shown(stack.captures, stack.terminal, layers, context)
    drafts = resolve_drafts(shape, stack, stages, context)
    stack = dataclasses.replace(stack, drafts=drafts)
    return with_own_operations(stack, operations_of(shape.stages.values()))


def _nowhere(source: str) -> Span:
    return Span(source, Position(1, 1), Position(1, 1))
