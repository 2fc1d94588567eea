"""Functions that take a way across a boundary to the next stage, the planned one and others."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from boundaryc.emit import quantized
from boundaryc.emit.calls import Calls, along, onwards
from boundaryc.emit.crossings import ORIGIN, SHOWN, SOURCE, TARGET, Crossing
from boundaryc.emit.doc_text import collectives, contract, summary
from boundaryc.emit.drafts import Draft
from boundaryc.emit.latent import add_latent
from boundaryc.emit.scope import Scope
from boundaryc.emit.script import Writer
from boundaryc.emit.statements import body
from boundaryc.emit.steps import Step
from boundaryc.graph.build import ENTRY, FINAL
from boundaryc.plan.access import handed_off
from boundaryc.plan.result import Boundary
from boundaryc.plan.state import Phase, State
from boundaryc.plan.transitions import Goal


class Way(NamedTuple):
    """One way across a boundary: from a state in which the stream may be, by these steps.

    ``goal`` is where it ends. ``opening`` takes what the model passes on, a ``given``. ``base`` is
    the name it would like and ``origin`` where it starts, for people; a ``crossing`` has neither.
    ``planned``: a model calls it, see `runtime.At`.
    """

    start: State
    steps: tuple[Step, ...]
    goal: Goal
    opening: tuple[str, ...]
    given: str = "Tensor"
    base: str = ""
    origin: str = ORIGIN
    crossing: Crossing | None = None
    planned: bool = False


def prepared(
    boundary: Boundary, scope: Scope, calls: Calls, sequence: tuple[Step, ...], shows: bool
) -> Draft:
    """The input of the stage behind ``boundary``, by the steps that are left to it."""
    start, edge = handed_off(boundary), boundary.edge
    opening: tuple[str, ...] = ()
    if edge.consumer != FINAL:
        opening = _taken(start.phase, enters=edge.producer == ENTRY, shows=shows)
    elif start.phase is Phase.CONTRIBUTION:
        opening = ("hidden = stream.take(hidden)",)
    elif start.phase is Phase.STREAM:
        opening = ("stream.take(hidden)",)
    source = edge.producer or "start"
    given = "Tensor" if edge.producer == ENTRY else "Tensor | OwedOutput"
    base, planned = f"{source}_to_{edge.consumer}", edge.consumer != FINAL
    origin = f"From {source}"
    way = Way(start, sequence, boundary.goal, opening, given, base, origin, planned=planned)
    found = crossed(way, edge.consumer, scope, calls)
    return _showing(found) if planned and shows else found


def _showing(found: Draft) -> Draft:
    """The same with what a model may ask to be shown."""
    return replace(found, params=(*found.params, "**shows: Any"), needs=found.needs | {"Any"})


def _taken(phase: Phase, *, enters: bool, shows: bool) -> tuple[str, ...]:
    """Takes the output of the last stage, if nothing else has to be looked at: see `runtime.At`."""
    handle = "" if enters else " or hidden is not stream.handle"
    detour = (
        f"if stream.due is not at.here{handle}{' or shows' if shows else ''}:",
        f"    return at.detour(hidden, batch{', **shows' if shows else ''})",
    )
    if enters:
        return detour
    if phase is Phase.STREAM:
        return (*detour, "stream.value, stream.handle, stream.due = None, None, at")
    taken = "hidden, stream.value, stream.handle, stream.due = stream.value, None, None, at"
    return (*detour, taken)


def crossed(way: Way, target: str, scope: Scope, calls: Calls) -> Draft:
    """The function that takes a way across a boundary to the stage ``target``."""
    own = along(calls, SOURCE, TARGET, SHOWN) if way.crossing else onwards(calls)
    return scope.once(_crossed, way, target, own)


def _crossed(scope: Scope, way: Way, target: str, calls: Calls) -> Draft:
    script = Writer(scope, calls, at_producer=False).write(way.steps)
    read = calls.read
    published: tuple[str, ...] = ()
    if calls.lora and target != FINAL:
        name = scope.token(way.goal.rows, by_token=way.goal.by_token)
        published = (f"batch.lora_rows = rows.{name}",)
    named = tuple(f"{name}: {read.param_type(name, calls.norm.type)}" for name in read.params)
    if target == FINAL and not named and read.call is None:
        named = ("norm: None",)  # the end of a stack is given one
    results: tuple[str, ...] = ("hidden",)
    if calls.quantize is not None:
        named += tuple(f"{name}: InputScale" for name in calls.quantize.params)
        results = quantized.returned(calls.quantize, "hidden")
    if calls.latent:
        add_latent(script, calls.consumer, way.goal, scope)
        named, results = (*named, "qkv_latent: Any"), (*results, "latent")
    tensors = ", ".join(["Tensor"] * len(results))
    title = f"{way.origin} to {calls.shown}"
    doc = (
        *(summary(title, script) if script.summary else (f"{title}: nothing moves.", "")),
        *contract(scope.mesh, way.start, way.goal),
        *collectives(script),
    )
    returns = "Tensor" if len(results) == 1 else f"tuple[{tensors}]"
    params: tuple[str, ...] = (f"hidden: {way.given}", "batch: Batch", *named)
    opening = (*published, *way.opening)
    needs = {word.rpartition(" ")[2] for word in (*named, way.given)} - {"None", "Tensor"}
    if way.planned:
        params = (f"at: At[{returns}]", "hidden: Tensor", "batch: Batch")
        opening = (*way.opening, *published, *_bound(named))
        needs = {"At"}
    return Draft(
        base=way.base,
        params=params,
        returns=returns,
        doc=doc,
        body=body([*opening, *script.lines], result=", ".join(results)),
        how="_".join(how.value for how in script.how),
        uneven="uneven" if script.uneven else "even",
        needs=frozenset(script.helpers | needs),
        custom=frozenset(script.custom),
        sends=tuple(script.collectives),
        crossing=way.crossing,
    )


def _bound(named: tuple[str, ...]) -> tuple[str, ...]:
    """Takes the parameters ``named``, with their types, of the boundary."""
    names = [param.partition(":")[0] for param in named]
    if not names:
        return ()
    return (f"({names[0]},) = at.read" if len(names) == 1 else f"{', '.join(names)} = at.read",)
