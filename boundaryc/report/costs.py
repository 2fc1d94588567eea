"""`boundaryc cost`: what a stack sends on each topology, side by side, best first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from boundaryc.graph.build import Edge
from boundaryc.language import Stack
from boundaryc.plan.cost import Cost
from boundaryc.plan.result import StackPlan, Table
from boundaryc.report.deployment import AskedError, dealt, load_of, policy_of
from boundaryc.report.explain import crossed, sent_by
from boundaryc.report.text import number, table, wrapped


@dataclass(frozen=True, slots=True)
class CostLine:
    """One topology, variant and policy with one number of tokens.

    ``tokens`` are those of all attention-DP groups together, dealt out evenly, ``rows`` the same
    with pads, and ``size`` is ``few`` or ``many`` where these are planned differently, else empty.
    Bytes are what each rank sends, on average. A layer is the one that the stack has most often.
    ``microseconds`` is what the link takes for a forward: latency for each collective, and bytes by
    bandwidth; nothing was timed.
    """

    tokens: int
    topology: str
    ranks: int
    variant: str
    policy: str
    size: str
    rows: int
    layer_collectives: int
    layer_bytes: float
    forward_collectives: int
    forward_bytes: float
    microseconds: float


@dataclass(frozen=True, slots=True)
class Costs:
    """All of them: by tokens, then best first.

    ``layer`` are the stages of the layer that the stack has most often, and ``layers`` how many it
    has of it. ``dispatch`` are the topologies whose experts are dispatched inside compute, which is
    not counted. ``left_out`` says why something that was asked for has no line.
    """

    stack: str
    layer: tuple[str, ...]
    layers: int
    padding: str
    lines: tuple[CostLine, ...]
    dispatch: tuple[str, ...]
    left_out: tuple[str, ...]


def costs(
    plans: Sequence[StackPlan], tokens: Sequence[int], policies: Sequence[str], padding: str
) -> Costs:
    """What plans of one stack, each of one topology, send.

    Raises AskedError for a policy that there is not.
    """
    stack = plans[0].stack
    layer, count = Counter(stack.layers).most_common(1)[0]
    lines: list[CostLine] = []
    left_out: dict[str, None] = {}
    for plan in plans:
        for policy in dict.fromkeys(policy_of(stack, one) for one in policies):
            for some in tokens:
                found, missing = _lines(plan, policy, some, padding)
                lines += found
                left_out |= dict.fromkeys(missing)
    lines.sort(key=lambda one: (tokens.index(one.tokens), one.microseconds, one.forward_bytes))
    specs = [plan.topologies[0].spec for plan in plans]
    dispatch = tuple(one.name for one in specs if one.moe.all_to_all)
    return Costs(stack.name, layer, count, padding, tuple(lines), dispatch, tuple(left_out))


def _lines(
    plan: StackPlan, policy: str, tokens: int, padding: str
) -> tuple[list[CostLine], list[str]]:
    """A line for every variant that such a batch runs in, and why it does not run in others."""
    topology = plan.topologies[0]
    found, missing = [], []
    for variant in topology.row_multiples:
        name = f"{variant} on {topology.spec.name}"
        try:
            load = load_of(topology, variant, dealt(tokens, topology.spec.attn_dp), padding)
        except AskedError as problem:
            missing.append(f"{name}: {problem}")
            continue
        if load.variant != variant:
            missing.append(f"{name}: {tokens} tokens are too few to be dealt out")
            continue
        planned = topology.tables[policy][load.column]
        found.append(_line(plan, policy, tokens, variant, planned, load.rows, load.column))
    return found, missing


def _line(
    plan: StackPlan,
    policy: str,
    tokens: int,
    variant: str,
    planned: Table,
    rows: int,
    column: int,
) -> CostLine:
    topology, graph = plan.topologies[0], plan.graph
    spec = topology.spec
    layers = [crossed(graph, index) for index in range(len(graph.walk))]
    layer = _sum(planned, _usual(plan.stack, layers))
    forward = _sum(planned, [edge for edges in layers for edge in edges])
    forward = forward.plus(_sum(planned, [graph.last]))
    few = topology.columns[column].few
    per_rank = Fraction(rows, spec.tp)
    bytes_ = forward.wire * per_rank
    took = forward.collectives * spec.latency_us + float(bytes_) / (spec.bandwidth_gb_s * 1000)
    return CostLine(
        tokens=tokens,
        topology=spec.name,
        ranks=spec.tp,
        variant=variant,
        policy=policy,
        size={None: "", True: "few", False: "many"}[few],
        rows=rows,
        layer_collectives=layer.collectives,
        layer_bytes=float(layer.wire * per_rank),
        forward_collectives=forward.collectives,
        forward_bytes=float(bytes_),
        microseconds=round(took, 3),
    )


def _usual(stack: Stack, layers: Sequence[tuple[Edge, ...]]) -> tuple[Edge, ...]:
    """The boundaries of the layer that the stack has most often, as it is mostly entered.

    Of several that are as frequent the last, which what stands before the stack has no part in.
    """
    stages = Counter(stack.layers).most_common(1)[0][0]
    same = [edges for own, edges in zip(stack.layers, layers, strict=True) if own == stages]
    return Counter(reversed(same)).most_common(1)[0][0]


def _sum(planned: Table, edges: Sequence[Edge]) -> Cost:
    whole, known = Cost(), {edge: sent_by(planned[edge]) for edge in set(edges)}
    for edge in edges:
        whole = whole.plus(known[edge])
    return whole


def text(found: Costs, width: int) -> Iterator[str]:
    """All of it for people; ``width`` is that of the terminal, 0 for none."""
    head = (
        f"{found.stack}: bytes that each rank sends, on average, and what the link takes for them; "
        f"a layer is {', '.join(found.layer) or 'an empty one'} ({found.layers} in the stack)"
    )
    yield from wrapped(head, width)
    for tokens in dict.fromkeys(one.tokens for one in found.lines):
        yield ""
        yield f"{number(tokens)} token{'s' * (tokens != 1)}, {found.padding}"
        rows = [_row(one) for one in found.lines if one.tokens == tokens]
        yield from table(_HEAD, rows, width, "  ")
    if found.dispatch:
        names = ", ".join(found.dispatch)
        yield from wrapped(f"not counted, as it is inside compute: dispatch on {names}", width)
    for why in found.left_out:
        yield from wrapped(f"left out: {why}", width)


_HEAD = (
    "topology",
    "ranks",
    "variant",
    "policy",
    "plan",
    "rows",
    "coll/layer",
    "bytes/layer",
    "coll/forward",
    "bytes/forward",
    "us/forward",
)


def _row(one: CostLine) -> tuple[str, ...]:
    return (
        one.topology,
        str(one.ranks),
        one.variant,
        one.policy,
        one.size,
        number(one.rows),
        str(one.layer_collectives),
        number(one.layer_bytes),
        number(one.forward_collectives),
        number(one.forward_bytes),
        number(round(one.microseconds, 1)),
    )
