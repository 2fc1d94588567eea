"""From a file, or its text, to a `Stack`.

Three phases, each of which collects all its errors before it gives up: reading (`reader`), shape
(`shape` and `schema`) and meaning (`layers`, `residual`, `topologies`).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path as FilePath
from types import MappingProxyType

from boundaryc.language.context import Context, TooManyErrorsError
from boundaryc.language.diagnostics import BoundarycError
from boundaryc.language.files import read_text
from boundaryc.language.layers import resolve_layers
from boundaryc.language.model import NormSpec, Stack, Stage
from boundaryc.language.reader import Tree, read
from boundaryc.language.residual import resolve_operations, resolve_stages
from boundaryc.language.schema import StackShape
from boundaryc.language.shape import check_shape
from boundaryc.language.spans import Position, Span
from boundaryc.language.topologies import resolve_topologies, resolve_variants


def load(path: str | FilePath) -> Stack:
    """The stack in the file at `path`.

    Raises BoundarycError if the file cannot be read or is not a valid stack.
    """
    return loads(read_text(path), str(path))


def loads(text: str, source: str = "<string>") -> Stack:
    """The stack written in `text`; `source` names it in messages and spans.

    Raises BoundarycError with every error of the first phase that finds any. A leading byte order
    mark is ignored.
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
    stages = resolve_stages(shape, context)
    layers = resolve_layers(shape.layers, shape.stages, context)
    topologies = resolve_topologies(shape, stages, context)
    return Stack(
        name=shape.stack,
        hidden_size=shape.hidden_size,
        norm=NormSpec(shape.norm.kind, float(shape.norm.eps), shape.norm.accumulate),
        stages=_by_first_use(stages, layers),
        layers=layers,
        topologies=topologies,
        variants=resolve_variants(shape, topologies, context),
        operations=resolve_operations(shape, context),
        policy_auto=shape.policy.auto,
        source=source,
        spans=MappingProxyType(dict(tree.spans())),
    )


def _by_first_use(
    stages: tuple[Stage, ...], layers: tuple[tuple[str, ...], ...]
) -> tuple[Stage, ...]:
    """Stages in the order of their first use, which no reordering of keys changes."""
    order: dict[str, int] = {}
    for layer in layers:
        for name in layer:
            order.setdefault(name, len(order))
    return tuple(sorted(stages, key=lambda stage: (order.get(stage.name, len(order)), stage.name)))


def _nowhere(source: str) -> Span:
    return Span(source, Position(1, 1), Position(1, 1))
