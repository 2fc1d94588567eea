"""`layers`: from either form to one tuple of stage names per layer."""

from __future__ import annotations

import re
from collections.abc import Collection

from boundaryc.language.context import Context
from boundaryc.language.names import did_you_mean, suggest
from boundaryc.language.reader import Path
from boundaryc.language.schema import LayersShape

Layers = tuple[tuple[str, ...], ...]

_INDEX = re.compile(r"(0|[1-9][0-9]{0,8})(?:-(0|[1-9][0-9]{0,8}))?\Z")
_COUNTED = ("count", "default", "at")
_PATTERNED = ("pattern", "stages")


def resolve_layers(
    shape: LayersShape, stages: Collection[str], declared: Collection[str], context: Context
) -> Layers:
    """The stages of every layer, in order; errors go to `context`, and then the result is partial.

    `stages` are all that there are, `declared` those that stand beside these layers. Reports stages
    that are declared and no layer uses, unknown stages, stages used twice in one layer.
    """
    present = shape.model_fields_set
    counted = [key for key in _COUNTED if key in present]
    patterned = [key for key in _PATTERNED if key in present]
    if counted and patterned:
        message = f"`{patterned[0]}` and `{counted[0]}` are two forms of `layers`"
        help_ = "use either count, default and at, or pattern and stages"
        context.report("BC211", ("layers", patterned[0]), message, help_, key=True)
        return ()
    layers = _pattern(shape, context) if patterned else _counted(shape, context)
    used = _check_lists(shape, stages, context)
    for name in declared:
        if layers and name not in used:
            help_ = "use it in `layers`, or remove it"
            message = f"the stage `{name}` is declared and no layer uses it"
            context.report("BC204", ("stages", name), message, help_, key=True)
    return layers


def _check_lists(shape: LayersShape, stages: Collection[str], context: Context) -> set[str]:
    """Check each list of stages where it is written; return the stages that they use or mean."""
    lists: list[tuple[Path, list[str]]] = []
    if shape.default is not None:
        lists.append((("layers", "default"), shape.default))
    lists += [(("layers", "at", key), names) for key, names in shape.at.items()]
    lists += [(("layers", "stages", key), names) for key, names in (shape.stages or {}).items()]
    used: set[str] = set()
    for path, names in lists:
        if not names:
            context.unsupported("layer without stages", path)
        context.repeats(names, path)
        for index, name in enumerate(names):
            used.add(name)
            if name not in stages:
                # a misspelt stage is one error: what it was meant to be is not unused as well
                used.add(suggest(name, stages) or name)
                help_ = did_you_mean(name, stages, "the stages are")
                context.report("BC203", (*path, index), f"there is no stage `{name}`", help_)
    return used


def _counted(shape: LayersShape, context: Context) -> Layers:
    if shape.count is None:
        help_ = "write {count: 24, default: [...]} or {pattern: ..., stages: {...}}"
        context.report("BC102", ("layers",), "`count` is missing in `layers`", help_, key=True)
        return ()
    chosen: list[tuple[str, ...] | None] = [None] * shape.count
    owner: dict[int, str] = {}
    for key, names in shape.at.items():
        for layer in layer_range(key, shape.count, ("layers", "at", key), context):
            if layer in owner:
                message = f"layer {layer} is named by `{owner[layer]}` and by `{key}`"
                help_ = "ranges include both ends; name each layer once"
                other: tuple[Path, str] = (("layers", "at", owner[layer]), "named here first")
                context.report(
                    "BC206", ("layers", "at", key), message, help_, key=True, other=other
                )
                break
            owner[layer] = key
            chosen[layer] = tuple(names)
    missing = [layer for layer, names in enumerate(chosen) if names is None]
    if shape.default is None and missing:
        message = f"layer {missing[0]} has no stages: `default` is missing"
        context.report("BC102", ("layers",), message, "add `default: [...]`", key=True)
    if shape.default is not None and not missing:
        help_ = "remove `default`, or one entry of `at`"
        message = "`default` is never used: `at` names every layer"
        context.report("BC204", ("layers", "default"), message, help_, key=True)
    default = tuple(shape.default or ())
    return tuple(default if names is None else names for names in chosen)


def layer_range(key: str, count: int, path: Path, context: Context) -> range:
    """The layers that the index or range `key`, written at `path`, names; empty after an error."""
    match = _INDEX.match(key)
    if not match:
        help_ = 'write an index like 0 or an inclusive range like "3-5", counted from 0'
        context.report("BC206", path, f"`{key}` is not a layer or a range", help_, key=True)
        return range(0)
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    if match[2] is not None and first >= last:
        help_ = "write the smaller index first; a single layer is written as one index"
        context.report("BC206", path, f"`{key}` is not a range of layers", help_, key=True)
        return range(0)
    if last >= count:
        help_ = f"layers are numbered 0 to {count - 1}"
        context.report("BC206", path, f"there is no layer {last}", help_, key=True)
        return range(0)
    return range(first, last + 1)


def _pattern(shape: LayersShape, context: Context) -> Layers:
    for key in _PATTERNED:
        if getattr(shape, key) is None:
            help_ = 'a pattern needs both, like {pattern: "AE", stages: {A: [...], E: [...]}}'
            context.report("BC102", ("layers",), f"`{key}` is missing in `layers`", help_, key=True)
            return ()
    pattern, stages = shape.pattern or "", shape.stages or {}
    for key in stages:
        path: Path = ("layers", "stages", key)
        if len(key) != 1 or key.isspace():
            help_ = "each character of the pattern is one layer"
            context.report("BC211", path, f"`{key}` is not one character", help_, key=True)
        elif key not in pattern:
            message = f"the pattern never uses `{key}`"
            context.report("BC204", path, message, "remove it, or use it in the pattern", key=True)
    for char in sorted(set(pattern) - set(stages)):
        message = f"the pattern's `{char}` stands for nothing"
        help_ = did_you_mean(char, stages, "the characters under `stages` are")
        context.report("BC211", ("layers", "pattern"), message, help_)
    return tuple(tuple(stages.get(char, ())) for char in pattern)
