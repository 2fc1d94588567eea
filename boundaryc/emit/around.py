"""The operations around a boundary, as its functions call them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from boundaryc.emit.beside import next_update
from boundaryc.emit.calls import Calls
from boundaryc.emit.imported import imported_names
from boundaryc.emit.norms import norm_call
from boundaryc.emit.shown import shown
from boundaryc.graph.build import ENTRY, FINAL, MERGE, Edge
from boundaryc.operations import Operation, enter_operation, final_read, transform_operation
from boundaryc.plan import ops
from boundaryc.plan.access import handed_off
from boundaryc.plan.result import Boundary, StackPlan

NO_READ = "raw"
"""How the residual is read where no norm is: what a branch is given has been read."""


class _Shows(NamedTuple):
    """What of a boundary's plan shows in calls, see `Calls`.

    ``joins``: the residual is added to a partial; ``waits``: a transform runs behind the hand-off.
    """

    given_on: int
    joins: bool
    waits: bool


class Around:
    """The operations around the boundaries of one stack: equal ones are one object."""

    def __init__(self, plan: StackPlan) -> None:
        self._plan = plan
        self._known: dict[tuple[Edge, str, _Shows], Calls] = {}

    def __call__(self, boundary: Boundary, access: str = "") -> Calls:
        """Those around a boundary; ``access`` is what its producer leaves in the stream."""
        key = (boundary.edge, access, _shows(self._plan, boundary))
        if key not in self._known:
            self._known[key] = _calls(self._plan, *key)
        return self._known[key]


def calls_around(plan: StackPlan, boundary: Boundary) -> Calls:
    """The operations around one boundary."""
    return Around(plan)(boundary)


def _shows(plan: StackPlan, boundary: Boundary) -> _Shows:
    joins = any(isinstance(op, ops.Join) for op in boundary.path.ops)
    producer, waits = boundary.edge.producer, False
    if producer != ENTRY and not boundary.edge.forks:
        transforms = plan.stack.stage(producer).transform is not None
        waits = transforms and handed_off(boundary).transform
    return _Shows(boundary.facts.given_on, joins, waits)


def _calls(plan: StackPlan, edge: Edge, access: str, shows: _Shows) -> Calls:
    producer, consumer = edge.producer, edge.consumer
    if edge.forks:
        return Calls(producer, consumer, consumer, None, plan.operations[NO_READ], {})
    target = None if consumer in (FINAL, MERGE) else plan.stack.stage(consumer)
    read = plan.operations[target.read if target else final_read(plan.stack)]
    around = partial(
        Calls,
        producer=producer,
        consumer=consumer,
        shown=shown(plan.stack, consumer),
        read=read,
        names=imported_names(plan),
        access=access,
        captures=edge.target.captures,
        lora=plan.stack.lora,
        streams=plan.stack.streams,
        given_on=shows.given_on,
        norm=norm_call(plan.stack, consumer),
        quantize=target.quantize if target else None,
        latent=target is not None and target.latent_input,
        addition=target is not None and target.post_addition,
    )
    if producer == ENTRY:
        enter = plan.operations[enter_operation(plan.stack)]
        return around(update=None, enter=None if enter.call is None else enter)
    stage = plan.stack.stage(producer)
    update, declared = plan.operations[stage.update], stage.transform
    following = next_update(plan, target.name) if target else None
    around = partial(
        around,
        update=update,
        scale=stage.update_scale,
        kept=not shows.joins
        and _leaves_alone(update, read, following, fusion=bool(plan.stack.fusion)),
        additive=stage.additive,
        quantized_sum=stage.quantized_sum,
    )
    if declared is None:
        return around(carried=update.params)
    transform = plan.operations[transform_operation(declared.name)]
    calls = around(
        transform=transform,
        factor=declared.scale,
        output_norm=norm_call(plan.stack, producer),
        carried=update.params,
    )
    return replace(calls, carried=calls.params) if shows.waits else calls


def _leaves_alone(
    update: Operation, read: Operation, following: Operation | None, *, fusion: bool
) -> bool:
    """Whether the residual that was read is new and nothing writes it: the certificate.

    It is what a built-in update made, not what a model or a collective handed over, the built-in
    read returned something else, and the update that is next given it, ``following``, is no
    function from outside, which may write over it.
    """
    alone = following is None or following.call is None
    alone &= not fusion  # a fused kernel may write over the residual too
    return update.call is None and read.facts.plain_norm and alone
