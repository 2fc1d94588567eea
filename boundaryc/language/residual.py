"""`operations` and `stages`: who does what to the residual."""

from __future__ import annotations

from boundaryc.language.context import Context
from boundaryc.language.model import OperationDecl, Reduction, Stage
from boundaryc.language.names import article, call_problem, did_you_mean
from boundaryc.language.reader import Path
from boundaryc.language.schema import OperationShape, StackShape, StageShape

BUILT_IN = {"read": ("norm", "raw"), "update": ("add",)}
PLANNED = {
    "read": frozenset({"post_norm", "sandwich", "hyper_connections"}),
    "update": frozenset({"scaled_add", "post_norm", "sandwich", "hyper_connections"}),
}
DEFAULT_REDUCTION: dict[str, Reduction] = {"attention": "partial", "ffn": "scoped"}

_ONLY = {"plain_add": "update", "joins_sum": "update", "at_producer": "update"} | {
    "outlives_producer": "update",
    "plain_norm": "read",
}


def resolve_operations(shape: StackShape, context: Context) -> tuple[OperationDecl, ...]:
    """The stack's own operations by name; errors go to `context`."""
    used = {stage.read for stage in shape.stages.values()}
    used |= {stage.update for stage in shape.stages.values()}
    found = []
    for name, entry in sorted(shape.operations.items()):
        path: Path = ("operations", name)
        context.name("operation", name, path)
        if name not in used:
            help_ = f"use it as `{entry.role}: {name}` of a stage, or remove it"
            message = f"the operation `{name}` is declared and no stage uses it"
            context.report("BC204", path, message, help_, key=True)
        found.append(_operation(name, entry, path, context))
    return tuple(found)


def _operation(name: str, entry: OperationShape, path: Path, context: Context) -> OperationDecl:
    problem = call_problem(entry.call)
    if problem:
        help_ = "name a module-level function, like mypkg.ops:gated_merge"
        context.report("BC209", (*path, "call"), problem, help_)
    for key in ("facts", "params", "read_local", "read_whole"):
        context.repeats(list(getattr(entry, key)), (*path, key))
    for index, fact in enumerate(entry.facts):
        role = _ONLY.get(fact, entry.role)
        if role != entry.role:
            message = f"`{fact}` is a fact about an operation with `role: {role}`"
            help_ = f"remove the fact, or declare `role: {role}`"
            context.report("BC209", (*path, "facts", index), message, help_)
    for index, param in enumerate(entry.params):
        context.name("param", param, (*path, "params", index))
    for key in ("read_local", "read_whole"):
        if entry.role != "read" and getattr(entry, key):
            message = f"`{key}` is for an operation with `role: read`"
            context.report("BC209", (*path, key), message, f"remove `{key}`", key=True)
    for index, axis in enumerate(entry.read_whole):
        if axis in entry.read_local:
            message = f"rows cannot be both cut and whole over `{axis}`"
            help_ = "list it under one of read_local and read_whole"
            context.report("BC209", (*path, "read_whole", index), message, help_)
    return OperationDecl(
        name=name,
        role=entry.role,
        call=entry.call,
        facts=frozenset(entry.facts),
        params=tuple(entry.params),
        read_local=frozenset(entry.read_local),
        read_whole=frozenset(entry.read_whole),
    )


def resolve_stages(shape: StackShape, context: Context) -> tuple[Stage, ...]:
    """The stages by name; errors go to `context`."""
    found = []
    letters: dict[str, str] = {}
    for name, entry in shape.stages.items():
        path: Path = ("stages", name)
        context.name("stage", name, path)
        plain = name.replace("_", "")
        if plain in letters:
            message = f"`{name}` and `{letters[plain]}` differ only by underscores"
            other: tuple[Path, str] = (("stages", letters[plain]), "the other one")
            help_ = "choose names that are told apart in class names too"
            context.report("BC202", path, message, help_, key=True, other=other)
        letters.setdefault(plain, name)
        _check_arguments(name, entry, shape, context)
        found.append(_stage(name, entry, shape, context))
    return tuple(found)


def _check_arguments(name: str, entry: StageShape, shape: StackShape, context: Context) -> None:
    """A layer is given `stage_param` for a parameter, which must not be another stage's name."""
    for used in (entry.read, entry.update):
        for param in shape.operations[used].params if used in shape.operations else ():
            if f"{name}_{param}" in shape.stages:
                path: Path = ("stages", f"{name}_{param}")
                message = f"the stage `{name}_{param}` and `{param}` of `{name}` share a name"
                help_ = "rename the stage or the parameter: a layer is bound by these names"
                context.report("BC202", path, message, help_, key=True)


def _stage(name: str, entry: StageShape, shape: StackShape, context: Context) -> Stage:
    path: Path = ("stages", name)
    if "sparse" in entry.model_fields_set and entry.kind != "ffn":
        message = f"`sparse` is for ffn stages, and `{name}` is of kind {entry.kind}"
        context.report("BC212", (*path, "sparse"), message, "remove `sparse`", key=True)
    _check_row_keys(name, entry, shape, context)
    _check_operation("read", entry.read, shape, (*path, "read"), context)
    _check_operation("update", entry.update, shape, (*path, "update"), context)
    return Stage(
        name=name,
        kind=entry.kind,
        sparse=entry.sparse,
        reduction=_reduction(entry, (*path, "reduction"), context),
        read=entry.read,
        update=entry.update,
        order=entry.order,
        joins_sum=entry.joins_sum == "allow",
    )


def _check_row_keys(name: str, entry: StageShape, shape: StackShape, context: Context) -> None:
    """`order` and `joins_sum` where they would mean nothing."""
    path: Path = ("stages", name)
    if "order" in entry.model_fields_set and entry.kind != "attention":
        message = f"`order` is for attention stages, and `{name}` is of kind {entry.kind}"
        context.report("BC212", (*path, "order"), message, "remove `order`", key=True)
    declared = shape.operations.get(entry.update)
    if entry.joins_sum == "allow" and declared and "plain_add" not in declared.facts:
        message = f"the update `{entry.update}` is not a plain add, so nothing can join its sum"
        help_ = "remove `joins_sum`, or declare the fact `plain_add` if the operation is one"
        context.report("BC212", (*path, "joins_sum"), message, help_, key=True)


def _reduction(entry: StageShape, path: Path, context: Context) -> Reduction:
    default = DEFAULT_REDUCTION[entry.kind]
    chosen = entry.reduction or default
    help_ = f"leave `reduction` out: {entry.kind} stages are {default} by default"
    if (entry.kind, chosen) == ("ffn", "partial"):
        context.report("BC207", path, "PARTIAL is not supported for ffn stages", help_)
    elif (entry.kind, chosen) == ("attention", "local_tail"):
        context.report("BC207", path, "LOCAL_TAIL is not supported for attention stages", help_)
    elif chosen != default:
        context.unsupported(f"reduction {chosen} of {entry.kind} stages", path)
    return chosen


def _check_operation(role: str, name: str, shape: StackShape, path: Path, context: Context) -> None:
    if name in BUILT_IN[role]:
        return
    declared = shape.operations.get(name)
    if declared is None and name in PLANNED[role]:
        context.unsupported(name, path)
    elif declared is None:
        ours = [own for own, entry in shape.operations.items() if entry.role == role]
        help_ = did_you_mean(name, [*BUILT_IN[role], *ours], f"{article(role)} can be")
        context.report("BC203", path, f"there is no {role} operation `{name}`", help_)
    elif declared.role != role:
        message = f"`{name}` has `role: {declared.role}` and is used as {role}"
        help_ = f"use it as `{declared.role}: {name}`, or change its role"
        other: tuple[Path, str] = (("operations", name), "declared here")
        context.report("BC208", path, message, help_, other=other)
