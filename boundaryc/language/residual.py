"""`operations`, and which of them and which reduction a stage may name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from boundaryc.language.context import Context
from boundaryc.language.model import OperationDecl, Reduction
from boundaryc.language.names import article, call_problem, did_you_mean
from boundaryc.language.operation_shapes import OperationShape
from boundaryc.language.reader import Path
from boundaryc.language.schema import ScaledAddShape, StackShape, StageShape
from boundaryc.language.streams import check_facts, set_operations

BUILT_IN = {
    "enter": ("hyper_enter", "identity"),
    "read": ("norm", "raw", "hyper_read", "post_norm", "sandwich"),
    "update": ("add", "hyper_update", "post_norm", "sandwich"),
    "transform": ("norm",),
}
WRITTEN = {"hyper_enter": "", "identity": ""} | dict.fromkeys(
    ("hyper_read", "hyper_update"), "hyper_connections"
)
"""How a built-in operation is written where that is not its name; not at all if empty."""
WITH_FACTOR = {"update": "scaled_add", "transform": "scale"}
"""Built-in operations that are written as `{name: factor}`."""

DEFAULT_REDUCTION: dict[str, Reduction] = {
    "attention": "partial",
    "mixer": "scoped",
    "ffn": "scoped",
}

Entries = Mapping[str, StageShape]
Operations = Mapping[str, OperationShape]

_ONLY = {"plain_add": "update", "joins_sum": "update", "at_producer": "update"} | {
    "outlives_producer": "update",
    "quantized_sum": "update",
    "writes_stream": "update",
    "plain_norm": "read",
    "rewrites_residual": "read",
}


def operations_of(entries: Iterable[StageShape]) -> set[str]:
    """The names of operations, built in or not, that these stages use."""
    return {
        name
        for entry in entries
        for name in (entry.read, entry.update, entry.transform)
        if isinstance(name, str)
    }


def resolve_operations(shape: StackShape, context: Context) -> tuple[OperationDecl, ...]:
    """The stack's own operations by name, also those of its drafts; errors go to `context`."""
    used = operations_of(shape.stages.values())
    for draft in shape.drafts.values():
        used |= operations_of(draft.stages.values())
    used |= set_operations(shape)
    found = []
    for name, entry in sorted(shape.operations.items()):
        path: Path = ("operations", name)
        context.name("operation", name, path)
        if name not in used:
            whose = "`residual`" if entry.role == "enter" else "a stage"
            help_ = f"use it as `{entry.role}: {name}` of {whose}, or remove it"
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
        elif fact == "quantized_sum" and "plain_add" not in entry.facts:
            message = "`quantized_sum` is for an update that is a plain add"
            help_ = "remove the fact, or declare `plain_add` too if the operation is one"
            context.report("BC209", (*path, "facts", index), message, help_)
        elif fact == "plain_norm" and len(entry.params) != 1:
            message = "`plain_norm` is for a read with one param: what has the weight of the norm"
            help_ = "remove the fact, or declare that param alone"
            context.report("BC209", (*path, "facts", index), message, help_)
    for index, param in enumerate(entry.params):
        context.name("param", param, (*path, "params", index))
    for key in ("read_local", "read_whole"):
        if entry.role != "read" and getattr(entry, key):
            message = f"`{key}` is for an operation with `role: read`"
            context.report("BC209", (*path, key), message, f"remove `{key}`", key=True)
    check_facts(entry, path, context)
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
        state=tuple(sorted(entry.state.items())),
        streams=entry.streams,
    )


def resolve_reduction(entry: StageShape, path: Path, context: Context) -> Reduction:
    """Who completes the sum of a stage, by default or as `path` says."""
    default = DEFAULT_REDUCTION[entry.kind]
    chosen = entry.reduction or default
    help_ = f"leave `reduction` out: {entry.kind} stages are {default} by default"
    if (entry.kind, chosen) == ("ffn", "partial"):
        context.report("BC207", path, "PARTIAL is not supported for ffn stages", help_)
        return default
    if (entry.kind, chosen) == ("attention", "local_tail"):
        context.report("BC207", path, "LOCAL_TAIL is not supported for attention stages", help_)
        return default
    if entry.kind == "mixer" and chosen != default:
        message = f"{chosen.upper()} is not supported for mixer stages"
        context.report("BC207", path, message, help_)
        return default
    if chosen != default:
        context.unsupported(f"reduction {chosen} of {entry.kind} stages", path)
    return chosen


def check_operation(
    role: str, name: str, operations: Operations, path: Path, context: Context
) -> None:
    """Reports a `name` at `path` that is no operation of this role."""
    if name in BUILT_IN[role]:
        return
    declared = operations.get(name)
    if declared is None and name == WITH_FACTOR.get(role):
        message = f"the {role} `{name}` has a factor"
        context.report("BC213", path, message, f"write it as `{role}: {{{name}: 0.5}}`")
    elif declared is None:
        ours = [own for own, entry in operations.items() if entry.role == role]
        built_in = [WRITTEN.get(known, known) for known in BUILT_IN[role]]
        known, more = [*filter(None, built_in), *ours], []
        if role in WITH_FACTOR:
            more = [WITH_FACTOR[role]]
        help_ = did_you_mean(name, known, f"{article(role)} can be", more)
        context.report("BC203", path, f"there is no {role} operation `{name}`", help_)
    elif declared.role != role:
        message = f"`{name}` has `role: {declared.role}` and is used as {role}"
        help_ = f"use it as `{declared.role}: {name}`, or change its role"
        other: tuple[Path, str] = (("operations", name), "declared here")
        context.report("BC208", path, message, help_, other=other)


def quantized_sum(update: str | ScaledAddShape, operations: Operations) -> bool:
    """Whether an update allows a sum that travelled quantised, or might if it existed."""
    if isinstance(update, ScaledAddShape):
        return False
    declared = operations.get(update)
    if declared is None:
        return update != "hyper_update"
    return {"plain_add", "quantized_sum"} <= {*declared.facts}


def plain_add(update: str | ScaledAddShape, operations: Operations) -> bool:
    """Whether an update that exists is a plain add, or one that does not might be meant as one."""
    if isinstance(update, ScaledAddShape):
        return False
    declared = operations.get(update)
    if declared is None:
        return update != "hyper_update"
    return "plain_add" in declared.facts
