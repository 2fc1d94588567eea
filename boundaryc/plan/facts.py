"""The facts of one edge in one kind of batch: all that its operations may look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from boundaryc.graph.build import ENTRY, FINAL, MERGE, Edge
from boundaryc.graph.policy import Scatter, permitted
from boundaryc.language.model import Quantize, Stack, Stage
from boundaryc.operations import Operation, final_read
from boundaryc.plan.state import EdgeFacts, Widths
from boundaryc.topology import Mesh
from boundaryc.topology.contracts import Regime, may_defer, mixer_input, obeys_policy

SCALE = 4
"""Bytes of one scale of a quantised value."""
GROUP = 128
"""Columns that share a scale."""
ELEMENT = 2
"""Bytes of an element. All widths share it, so only ratios of costs depend on it."""


STATE = 4
"""Bytes of an element of what an operation keeps beside the residual."""
State = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the producer of an edge allows."""

    may_defer: bool = True
    at_producer: bool = False
    joins: bool = False
    sums: bool = False  # the update is a sum that a norm may read before it is rounded
    linear: bool = False
    policy: bool = False
    quantized: int = 0  # bytes of a row of its sum where that may travel quantised
    per_call: bool = False  # the update has inputs of every batch
    state: State = ()


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the consumer of an edge needs."""

    norm: bool
    local: int
    whole: int
    on: int | None
    quantized: int  # bytes of a row of a quantised input
    tensors: int  # how many tensors with rows that is; 0 where it is not quantised
    state: State = ()
    per_call: bool = False  # the read has inputs of every batch


@dataclass(frozen=True, slots=True)
class Standing:
    """What holds of an edge in all batches of a kind, whatever they cut evenly, under any policy.

    ``obeys``: the policy has a say in how the contribution's sum ends.
    """

    facts: EdgeFacts
    obeys: bool


def standing_facts(
    stack: Stack,
    operations: Mapping[str, Operation],
    mesh: Mesh,
    demands: Regime,
    mode: str | None,
    edge: Edge,
) -> Standing:
    """What the planner may know of ``edge`` in a kind of batch, as if it were even."""
    sent = _sent(stack, operations, mesh, edge)
    asked = _asked(stack, operations, mesh, demands, edge)
    ends = edge.consumer == FINAL and edge.producer != ENTRY
    finest = demands.rows | demands.read_local
    width = stack.hidden_size * ELEMENT
    unrounded = stack.norm_of(edge.consumer).accumulate == "fp32"
    fused = unrounded and asked.norm and asked.on is None
    facts = EdgeFacts(
        sizes=mesh.sizes,
        even=mesh.every,
        shards=demands.shards if _orders_tokens(stack, edge) else 0,
        scatter=mesh.every,
        scatter_by_size=False,
        may_defer=sent.may_defer,
        complete_on=demands.rows if ends else None,
        joins_sum=sent.joins,
        update_at_producer=sent.at_producer,
        carries=fused and sent.sums and not sent.at_producer,
        transform_linear=sent.linear,
        captures=_captures(stack, demands, edge),
        read_on=asked.on,
        read_local=asked.local,
        read_whole=asked.whole,
        quantized_sum=sent.quantized if mode == "prefill" else 0,
        quantized_tensors=asked.tensors,
        widths=Widths(
            width,
            width * stack.streams,
            width,
            asked.quantized,
            _bytes(sent.state),
            _bytes(asked.state),
        ),
        merges=edge.merges,
        update_on=finest if sent.per_call else None,
        given_on=demands.rows if sent.per_call or asked.per_call else 0,
        taken_tensors=len(sent.state),
        kept_tensors=len(asked.state),
    )
    return Standing(facts, sent.policy)


class Scattered(NamedTuple):
    """How a sum may end in batches that cut the atoms ``even`` evenly, see `EdgeFacts`."""

    even: int
    scatter: int
    by_size: bool

    def applied(self, facts: EdgeFacts) -> EdgeFacts:
        """The facts of an edge whose sum may end so."""
        # As `_replace` has it, in a third of the time: it is done for every edge and kind of batch.
        sizes, _, shards, _, _, *rest = facts
        return EdgeFacts._make((sizes, self.even, shards, self.scatter, self.by_size, *rest))


def scattered(mesh: Mesh, even: int, policy: str | None, *, variable_scatter: bool) -> Scattered:
    """How a sum may end that obeys a policy, or none, in batches that are so even.

    ``variable_scatter``: groups can reduce-scatter unequal sizes.
    """
    scatter = permitted(policy, variable=variable_scatter)
    return Scattered(even, _scatterable(mesh, scatter, even), scatter.by_size)


def _sent(stack: Stack, operations: Mapping[str, Operation], mesh: Mesh, edge: Edge) -> _Sent:
    if edge.producer == ENTRY or edge.forks:
        return _Sent()
    stage = stack.stage(edge.producer)
    consumer = None if edge.consumer in (FINAL, MERGE) else stack.stage(edge.consumer)
    update = operations[stage.update]
    transform = stage.transform
    return _Sent(
        may_defer=may_defer(stage, consumer, mesh, lora=stack.lora),
        at_producer=update.facts.at_producer or _ends_written(stack, edge),
        joins=update.facts.plain_add and stage.joins_sum and not edge.merges,
        sums=update.call is None,
        per_call=update.facts.per_call,
        state=update.facts.state,
        linear=transform is not None and transform.before_reduce_scatter,
        policy=any(obeys_policy(one) for one in _summed(stack, edge)),
        quantized=0 if stage.quantized_sum is None else _quantized_row(stack.hidden_size),
    )


def _ends_written(stack: Stack, edge: Edge) -> bool:
    """Whether the last update must run at its producer: no norm reads the residual behind it."""
    return edge.consumer == FINAL and not stack.terminal.norm


def _summed(stack: Stack, edge: Edge) -> tuple[Stage, ...]:
    """The stages whose output crosses a boundary: behind a merge there are two."""
    stage = stack.stage(edge.producer)
    if not edge.source.merges or stack.branch is None:
        return (stage,)
    return stage, stack.stage(stack.branch.stages[-1])


def _asked(
    stack: Stack, operations: Mapping[str, Operation], mesh: Mesh, demands: Regime, edge: Edge
) -> _Asked:
    if edge.merges or edge.forks:
        return _Asked(norm=False, local=0, whole=0, on=None, quantized=0, tensors=0)
    if edge.consumer == FINAL:
        return _left(stack, operations, mesh, demands)
    stage = stack.stage(edge.consumer)
    read = operations[stage.read].facts
    local, whole = read.read_local | stage.before_gather, read.read_whole | stage.needs_every_row
    quantized, tensors = _quantized(stack.hidden_size, stage.quantize)
    on = demands.rows | demands.read_local if stage.post_addition or read.per_call else None
    return _Asked(
        norm=read.plain_norm,
        local=demands.read_local | axes_mask(mesh, local),
        whole=axes_mask(mesh, whole),
        on=on,
        quantized=quantized,
        tensors=tensors,
        state=read.state,
        per_call=read.per_call,
    )


def _left(stack: Stack, operations: Mapping[str, Operation], mesh: Mesh, demands: Regime) -> _Asked:
    """What the final read needs."""
    read = operations[final_read(stack)].facts
    return _Asked(
        norm=read.plain_norm,
        local=axes_mask(mesh, read.read_local),
        whole=axes_mask(mesh, read.read_whole),
        on=demands.rows if read.per_call else None,
        quantized=0,
        tensors=0,
        per_call=read.per_call,
    )


def _bytes(state: State) -> int:
    """Bytes of a row of what moves with the residual, which is float32."""
    return sum(width for _, width in state) * STATE


def _quantized_row(width: int) -> int:
    """Bytes of a row of a sum as values and a scale for each 128 of them."""
    return width + -(-width // GROUP) * SCALE


def _quantized(width: int, quantize: Quantize | None) -> tuple[int, int]:
    """Bytes of a row of a quantised input, and how many tensors have such rows; 0 for others.

    A static scale has no rows: it is on every rank already.
    """
    if quantize is None:
        return 0, 0
    scales = {"token": 1, "group128": width // GROUP, "static": 0}[quantize.scale]
    kept = width * ELEMENT if quantize.keep else 0
    return width + scales * SCALE + kept, 1 + bool(scales) + quantize.keep


def _captures(stack: Stack, demands: Regime, edge: Edge) -> tuple[int, ...]:
    """The rows on which each capture of this boundary is kept."""
    declared = {capture.name: capture for capture in stack.captures}
    others = (FINAL, MERGE)
    consumer = None if edge.consumer in others else stack.stage(edge.consumer)
    rows = {"producer": demands.rows, "input": mixer_input(consumer, demands)}
    return tuple(rows[declared[name].rows] for name in edge.target.captures)


def _orders_tokens(stack: Stack, edge: Edge) -> bool:
    """Whether a stage at either end wants its rows in token order; else nothing is permuted."""
    others = (ENTRY, FINAL, MERGE)
    ends = (name for name in (edge.producer, edge.consumer) if name not in others)
    return any(stack.stage(name).order == "token" for name in ends)


def axes_mask(mesh: Mesh, axes: Iterable[str]) -> int:
    """The atoms of several named axes together."""
    mask = 0
    for axis in axes:
        mask |= mesh.mask(axis)
    return mask


def _scatterable(mesh: Mesh, scatter: Scatter, even: int) -> int:
    if scatter.uneven:
        return mesh.every
    return even if scatter.even else 0
