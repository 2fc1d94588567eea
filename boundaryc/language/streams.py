"""`residual`: a set of operations for the whole stack, and what fits into a set."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeVar

from boundaryc.language.context import Context
from boundaryc.language.model import NormSpec, Residual, Stack, Stage
from boundaryc.language.norms import meant_norm
from boundaryc.language.operation_shapes import OperationShape, ResidualShape
from boundaryc.language.reader import Path
from boundaryc.language.schema import DraftShape, StackShape, StageShape

HYPER = "hyper_connections"
HYPER_SET = {"enter": "hyper_enter", "read": "hyper_read", "update": "hyper_update"}
"""The operations that `hyper_connections` stands for, by role."""
LEAVES = {HYPER: "hyper_mean", "learned_head": "hyper_head"}
"""Built-in final reads of hyper-connections, by what they are called in a file."""
PLAIN_SET = {"enter": "identity", "read": "norm", "update": "add", "leave": "norm"}
ITERATIONS, EPS = 20, 1e-6
"""How often hyper-connections balance a mixing matrix, and what keeps its sums from zero."""
_KEPT_BY = {"state": ("read", "update"), "per_call": ("read", "update")}
_STATELESS = ("plain_add", "plain_norm")

HolderT = TypeVar("HolderT", StackShape, DraftShape)


def with_set(shape: StackShape) -> StackShape:
    """The file with every stage's read and update said: its own, else those of `residual`."""
    own = shape.residual if shape.branch is None else None  # the two do not go together
    drafts = {name: _filled(draft, own) for name, draft in shape.drafts.items()}
    return _filled(shape, own).model_copy(update={"drafts": drafts})


def _filled(holder: HolderT, residual: ResidualShape | None) -> HolderT:
    stages = {name: _stage(entry, residual) for name, entry in holder.stages.items()}
    return holder.model_copy(update={"stages": stages})


def _stage(entry: StageShape, residual: ResidualShape | None) -> StageShape:
    said = {}
    for role in ("read", "update"):
        word = getattr(entry, role)
        if residual is not None and role not in entry.model_fields_set:
            word = operation_of(residual, role)
        word = HYPER_SET[role] if word == HYPER else word
        if word != getattr(entry, role):
            said[role] = word
    return entry.model_copy(update=said)


def operation_of(residual: ResidualShape, role: str) -> str:
    """The name of the set's operation for a role; that of a plain residual where it has none."""
    word = getattr(residual, role)
    if role == "leave":
        if residual.kind == HYPER:
            return LEAVES.get(word or HYPER, word or HYPER)
        return word or PLAIN_SET[role]
    if word == HYPER or (word is None and residual.kind == HYPER):
        return HYPER_SET[role]
    return word or PLAIN_SET[role]


def set_operations(shape: StackShape) -> set[str]:
    """The names of operations that the set itself uses."""
    residual = shape.residual
    if residual is None:
        return set()
    return {operation_of(residual, role) for role in (*HYPER_SET, "leave")}


def check_facts(entry: OperationShape, path: Path, context: Context) -> None:
    """Reports facts about streams and state that contradict the role of an operation."""
    for key, there in (("state", entry.state), ("per_call", "per_call" in entry.facts)):
        if there and entry.role not in _KEPT_BY[key]:
            message = f"`{key}` is for an operation with `role: read` or `role: update`"
            where: Path = (*path, "state") if key == "state" else _fact(entry, key, path)
            context.report("BC209", where, message, f"remove `{key}`", key=key == "state")
    if entry.role == "transform" and entry.streams > 1:
        message = "a transform works on an output, which has one stream"
        context.report("BC209", (*path, "streams"), message, "remove `streams`", key=True)
    if entry.role == "enter" and entry.params:
        message = "an enter has no params: the model works on the stack's input before it"
        context.report("BC209", (*path, "params"), message, "remove `params`", key=True)
    for index, name in enumerate(entry.state):
        context.name("state", name, (*path, "state", name))
        if name in entry.params:
            message = f"`{name}` is a param and state of one operation"
            help_ = f"choose another name for the state, like `{name}_{index}`"
            context.report("BC209", (*path, "state", name), message, help_, key=True)
    if "writes_stream" in entry.facts and "at_producer" not in entry.facts:
        message = "`writes_stream` is for an update that runs at its producer"
        help_ = "declare `at_producer` too, or remove the fact"
        context.report("BC209", _fact(entry, "writes_stream", path), message, help_)
    _check_plain(entry, path, context)


def _check_plain(entry: OperationShape, path: Path, context: Context) -> None:
    """What equals a built-in operation is as simple as that one."""
    for fact in _STATELESS:
        if fact not in entry.facts:
            continue
        others: list[str] = [key for key in ("rewrites_residual", "per_call") if key in entry.facts]
        others += ["streams"] * (entry.streams > 1) + ["state"] * bool(entry.state)
        for other in others:
            message = f"an operation with `{other}` is no `{fact}`"
            help_ = f"remove `{fact}`, which says that it equals the built-in operation"
            context.report("BC209", _fact(entry, fact, path), message, help_)


def _fact(entry: OperationShape, fact: str, path: Path) -> Path:
    return (*path, "facts", [str(known) for known in entry.facts].index(fact))


def resolve_residual(
    shape: StackShape, stages: Iterable[Stage], context: Context
) -> Residual | None:
    """The set of the whole stack, whose operations exist and fit together; None: the plain one.

    `stages` are those of the stack, which may have operations of their own.
    """
    known = shape.operations
    written = shape.residual
    if written is not None:
        ends = [shape.terminal, *(draft.terminal for draft in shape.drafts.values())]
        _check_set(written, known, context, normed=any(end.norm for end in ends))
        if shape.branch is not None:
            message = "a branch goes with the plain residual of one stream"
            context.report(
                "BC213", ("branch",), message, "remove `branch`, or `residual`", key=True
            )
    streams, norm = written.streams if written else 1, meant_norm(shape.norm)
    if written is not None and written.kind == HYPER and norm.kind == "none":
        message = "hyper-connections normalise what is read, and `norm` is none"
        context.report("BC213", ("norm", "kind"), message, "write `kind: rms` or `kind: layer`")
        return None
    if written is not None and written.kind == HYPER and streams == 1:
        message = "hyper-connections of one stream have nothing to connect"
        context.report("BC213", ("residual", "streams"), message, "write at least `streams: 2`")
    elif written is None or shape.branch is None:
        for stage in stages:
            check_stage(stage, known, streams, norm, ("stages", stage.name), context)
    if shape.branch is not None:
        _check_branch(stages, known, context)
    if written is None:
        return None
    return Residual(
        kind=written.kind,
        streams=written.streams,
        enter=operation_of(written, "enter"),
        leave=operation_of(written, "leave"),
        iterations=written.iterations or ITERATIONS,
        eps=float(written.eps or EPS),
    )


def _check_branch(
    stages: Iterable[Stage], known: Mapping[str, OperationShape], context: Context
) -> None:
    """Two stages of a branch run between a read and its update: nothing may be kept there."""
    for stage in stages:
        if stage.read in known and known[stage.read].state:
            message = f"the read `{stage.read}` keeps state, and a stack with a branch has none"
            help_ = "remove `branch`, or read without state"
            context.report("BC213", ("stages", stage.name, "read"), message, help_)


def _check_set(
    residual: ResidualShape,
    known: Mapping[str, OperationShape],
    context: Context,
    *,
    normed: bool,
) -> None:
    """Reports what does not belong to a set; `normed`: something reads the residual in the end."""
    for key in ("iterations", "eps"):
        if residual.kind != HYPER and getattr(residual, key) is not None:
            message = f"`{key}` is about hyper-connections"
            help_ = f"remove `{key}`, or write `kind: {HYPER}`"
            context.report("BC213", ("residual", key), message, help_, key=True)
    if residual.leave is not None and not normed:
        message = "`leave` is the final read of a stack, and `terminal` says that there is none"
        context.report(
            "BC213", ("residual", "leave"), message, "remove `leave`, or `norm: false`", key=True
        )
    for role in ("enter", "leave") if normed else ("enter",):
        _check_end(role, residual, known, context)


def _check_end(
    role: str, residual: ResidualShape, known: Mapping[str, OperationShape], context: Context
) -> None:
    """The operation at one end of the stack: it exists, has the role, and fits the streams."""
    name, path = operation_of(residual, role), ("residual", role)
    if getattr(residual, role) is None:
        path = ("residual", "kind")
    wanted = "read" if role == "leave" else role
    built_in = {*LEAVES.values(), "hyper_enter"} if residual.kind == HYPER else {PLAIN_SET[role]}
    if name in built_in:
        _check_streams(name, 1 if name in PLAIN_SET.values() else None, residual.streams, path,
                       context)  # fmt: skip
        return
    declared = known.get(name)
    if declared is None:
        message = f"there is no operation `{name}` for the `{role}` of this residual"
        help_ = f"declare it under `operations` with `role: {wanted}`"
        context.report("BC203", path, message, help_)
        return
    if declared.role != wanted:
        message = f"`{name}` has `role: {declared.role}` and is used as {role}"
        help_ = f"declare it with `role: {wanted}`"
        context.report("BC208", path, message, help_, other=(("operations", name), "declared here"))
        return
    if role == "leave" and (declared.state or "rewrites_residual" in declared.facts):
        message = f"nothing follows the final read, and `{name}` leaves something behind"
        help_ = "remove its `state` and `rewrites_residual`, or name another read"
        context.report("BC213", path, message, help_)
    _check_streams(name, declared.streams, residual.streams, path, context)


def check_stage(
    stage: Stage,
    known: Mapping[str, OperationShape],
    streams: int,
    norm: NormSpec,
    path: Path,
    context: Context,
) -> None:
    """Reports operations of a stage for another number of streams, or of unlike state.

    `norm` is the stack's.
    """
    fits = True
    for role, name in (("read", stage.read), ("update", stage.update)):
        if name not in (*HYPER_SET.values(), *known):
            own: int | None = 1
        else:
            own = known[name].streams if name in known else None
            if own is None and streams == 1:
                own = 2  # hyper-connections of one stream are a residual of another shape
        fits &= _check_streams(name, own, streams, (*path, role), context)
    kept, taken = _state(stage.read, known, streams), _state(stage.update, known, streams)
    if fits and kept != taken:
        message = (
            f"the read `{stage.read}` keeps {_listed(kept)} and the update `{stage.update}` takes "
            f"{_listed(taken)}"
        )
        help_ = "what a read keeps is for the update of its stage: declare the same `state`"
        context.report("BC213", (*path, "update"), message, help_)
    normed = stage.norm or norm
    if stage.read == "hyper_read" and normed.kind == "none":
        message = "hyper-connections normalise what a stage reads, and there is no norm"
        context.report("BC213", (*path, "read"), message, "give the stage a norm of another kind")
    if stage.post_addition and streams > 1:
        message = "`post_addition` is for a residual of one stream"
        context.report("BC213", (*path, "post_addition"), message, "remove it", key=True)


def _state(
    name: str, known: Mapping[str, OperationShape], streams: int
) -> tuple[tuple[str, int], ...]:
    if name in known:
        return tuple(sorted(known[name].state.items()))
    return hyper_state(streams) if name in HYPER_SET.values() else ()


def hyper_state(streams: int) -> tuple[tuple[str, int], ...]:
    """What hyper-connections keep from the read to the update: coefficients of each row."""
    return (("mix", streams * streams), ("post", streams))


def _check_streams(name: str, own: int | None, streams: int, path: Path, context: Context) -> bool:
    """Whether an operation for `own` streams fits, reported if not; None: any number will do."""
    if own is None or own == streams:
        return True
    if name in HYPER_SET.values():
        message, help_ = "hyper-connections are a set", f"write `residual: {{kind: {HYPER}, ...}}`"
    else:
        message = f"`{name}` is for {own} stream{'s' * (own > 1)}, and the residual has {streams}"
        help_ = f"name an operation with `streams: {streams}`"
    context.report("BC213", path, message, help_)
    return False


def _listed(state: tuple[tuple[str, int], ...]) -> str:
    return " and ".join(f"`{name}` of {width}" for name, width in state) or "nothing"


def with_own_operations(stack: Stack, named: Iterable[str]) -> Stack:
    """The stack with those of its operations that are ``named`` or that one of its ends uses."""
    ends = set()
    if stack.residual is not None:
        ends = {stack.residual.enter} | ({stack.residual.leave} if stack.terminal.norm else set())
    used = {*named} | ends
    own = tuple(known for known in stack.operations if known.name in used)
    return dataclasses.replace(stack, operations=own)
