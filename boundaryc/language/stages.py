"""`stages`: each with its operations, its contract and everything it says about its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from boundaryc.language.context import Context
from boundaryc.language.fusion import resolve_finalize
from boundaryc.language.layers import Layers
from boundaryc.language.model import Stage
from boundaryc.language.named import check_named, spelled_out
from boundaryc.language.norms import meant_norm
from boundaryc.language.reader import Path
from boundaryc.language.residual import (
    Entries,
    Operations,
    check_operation,
    operations_of,
    plain_add,
    quantized_sum,
    resolve_reduction,
)
from boundaryc.language.schema import StackShape, StageShape
from boundaryc.language.stage_keys import (
    check_keys,
    resolve_additive,
    resolve_quantize,
    resolve_stage_norm,
    resolve_transform,
    resolve_update,
)


def resolve_stages(
    declared: Entries, inherited: Entries, shape: StackShape, context: Context
) -> dict[str, Stage]:
    """The stages of `declared` by name; errors go to `context`.

    `inherited` are stages that are declared elsewhere and used beside these.
    """
    for name, written in declared.items():
        check_named(written, ("stages", name), context)
    declared, inherited = (
        {name: spelled_out(entry) for name, entry in entries.items()}
        for entries in (declared, inherited)
    )
    found = {}
    letters = {name.replace("_", ""): name for name in inherited if name not in declared}
    entries = {**inherited, **declared}
    for name, entry in declared.items():
        path: Path = ("stages", name)
        context.name("stage", name, path)
        plain = name.replace("_", "")
        if plain in letters:
            message = f"`{name}` and `{letters[plain]}` differ only by underscores"
            near: Path = ("stages", letters[plain])
            other = (near, "the other one") if letters[plain] in declared else None
            help_ = "choose names that are told apart in class names too"
            context.report("BC202", path, message, help_, key=True, other=other)
        letters.setdefault(plain, name)
        found[name] = _stage(name, entry, shape, context)
    for name in entries:
        _check_arguments(name, entries, declared, shape.operations, context)
    return found


def _check_arguments(
    name: str, entries: Entries, declared: Entries, operations: Operations, context: Context
) -> None:
    """Reports a parameter of a stage whose name in `bind` means something else in a layer too."""
    entry = entries[name]
    own = _own_arguments(entry)
    for param in sorted(_arguments(entry, operations)):
        other = f"{name}_{param}"
        if other in entries and (name in declared or other in declared):
            path: Path = ("stages", other if other in declared else name)
            message = f"the stage `{other}` and `{param}` of `{name}` share a name"
            help_ = "rename the stage or the parameter: a layer is bound by these names"
            if param in own:
                help_ = f"rename the stage `{other}`: a layer is bound by these names"
            context.report("BC202", path, message, help_, key=True)
    for used in operations_of([entry]):
        for param in _params(used, operations):
            if param in own and name in declared:
                message = f"`{param}` of `{used}` and `{name}_{param}` of the stage share a name"
                help_ = "rename the parameter: a layer is bound by these names"
                context.report("BC202", ("stages", name), message, help_, key=True)
    _check_pairs(name, entries, declared, operations, context)


def _check_pairs(
    name: str, entries: Entries, declared: Entries, operations: Operations, context: Context
) -> None:
    """Reports `a` with the parameter `b_c` beside `a_b` with the parameter `c`."""
    for other, entry in entries.items():
        if not other.startswith(f"{name}_") or not {name, other} & {*declared}:
            continue
        for param in sorted(_arguments(entry, operations)):
            longer = f"{other}_{param}".removeprefix(f"{name}_")
            if longer in _arguments(entries[name], operations):
                path: Path = ("stages", other if other in declared else name)
                message = f"`{param}` of `{other}` and `{longer}` of `{name}` share a name"
                help_ = f"rename the stage `{other}`: a layer is bound by these names"
                context.report("BC202", path, message, help_, key=True)


def _params(operation: str, operations: Operations) -> tuple[str, ...]:
    return tuple(operations[operation].params) if operation in operations else ()


def _own_arguments(entry: StageShape) -> set[str]:
    """What a layer binds for a stage beside the parameters of its operations."""
    own = {"output_norm"} if entry.transform == "norm" else set()
    own |= {"hyper"} if entry.read == "hyper_read" else set()
    own |= {"input_scale"} if entry.quantize and entry.quantize.scale == "static" else set()
    return own | ({"qkv_latent"} if entry.latent_input else set())


def _arguments(entry: StageShape, operations: Operations) -> set[str]:
    """All that a layer binds for a stage by the stage's name and another."""
    bound = {param for used in operations_of([entry]) for param in _params(used, operations)}
    return bound | _own_arguments(entry)


def _stage(name: str, entry: StageShape, shape: StackShape, context: Context) -> Stage:
    path: Path = ("stages", name)
    operations = shape.operations
    if "sparse" in entry.model_fields_set and entry.kind != "ffn":
        message = f"`sparse` is for ffn stages, and `{name}` is of kind {entry.kind}"
        context.report("BC212", (*path, "sparse"), message, "remove `sparse`", key=True)
    _check_row_keys(name, entry, shape, context)
    check_operation("read", entry.read, operations, (*path, "read"), context)
    update, factor = resolve_update(entry, operations, (*path, "update"), context)
    reduction = resolve_reduction(entry, (*path, "reduction"), context)
    check_keys(entry, reduction, operations, path, context)
    norm = resolve_stage_norm(entry, shape, path, context)
    unread = entry.read == "norm" and (norm or meant_norm(shape.norm)).kind == "none"
    return Stage(
        name=name,
        kind=entry.kind,
        sparse=entry.sparse,
        reduction=reduction,
        read="raw" if unread else entry.read,
        update=update,
        order=entry.order,
        joins_sum=entry.joins_sum == "allow",
        update_scale=factor,
        transform=resolve_transform(entry, operations, path, context),
        before_gather=frozenset(entry.before_gather),
        needs_every_row=frozenset(entry.needs_every_row),
        quantize=resolve_quantize(entry, shape, path, context),
        quantized_sum=entry.quantized_sum,
        post_addition=entry.post_addition,
        additive=resolve_additive(entry, reduction, operations, path, context),
        defer=entry.defer,
        latent_input=entry.latent_input,
        finalize=resolve_finalize(entry, reduction, shape, path, context),
        gathers_tp_input=entry.gathers_tp_input,
        norm=None if unread else norm,
    )


def check_additions(
    stages: Mapping[str, Stage],
    layers: Layers,
    operations: Operations,
    path_of: Callable[[str], Path],
    context: Context,
) -> None:
    """Reports a `post_addition` that follows an update which cannot be run apart from its read.

    That is one which is neither an addition nor run at the producer. `path_of` a stage is where the
    file declares it.
    """
    names = [name for layer in layers for name in layer]
    for producer, name in dict.fromkeys(pairwise(names)):
        if name not in stages or producer not in stages or not stages[name].post_addition:
            continue
        update = stages[producer].update
        declared = operations.get(update)
        if declared is None or {"plain_add", "at_producer"} & {*declared.facts}:
            continue
        message = f"`post_addition` follows the update `{update}` of `{producer}`: not a plain one"
        help_ = f"leave out `post_addition`, or have `{producer}` updated by an addition"
        other = (path_of(producer), "the stage before it")
        context.report("BC213", (*path_of(name), "post_addition"), message, help_, other=other)


def _check_row_keys(name: str, entry: StageShape, shape: StackShape, context: Context) -> None:
    """`order`, `joins_sum` and `quantized_sum` where they would mean nothing."""
    path: Path = ("stages", name)
    if "order" in entry.model_fields_set and entry.kind != "attention":
        message = f"`order` is for attention stages, and `{name}` is of kind {entry.kind}"
        context.report("BC212", (*path, "order"), message, "remove `order`", key=True)
    if entry.joins_sum == "allow" and not plain_add(entry.update, shape.operations):
        shown = entry.update if isinstance(entry.update, str) else "scaled_add"
        message = f"the update `{shown}` is not a plain add, so nothing can join its sum"
        help_ = "remove `joins_sum`, or declare the fact `plain_add` if the operation is one"
        context.report("BC212", (*path, "joins_sum"), message, help_, key=True)
    if entry.quantized_sum and not quantized_sum(entry.update, shape.operations):
        shown = entry.update if isinstance(entry.update, str) else "scaled_add"
        message = f"the update `{shown}` does not allow that the sum before it travels quantised"
        help_ = "remove `quantized_sum`, or declare the facts `plain_add` and `quantized_sum`"
        context.report("BC212", (*path, "quantized_sum"), message, help_, key=True)
