"""What each stage takes and leaves on one topology in one batch variant.

This is the only place that knows what a stage kind or a batch variant *means*: it turns both into
sets of atoms, and everything downstream sees nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.language.model import Stage, TopologySpec
from boundaryc.topology.mesh import Mesh, Sizes, build_mesh

ORDINARY = "ordinary"
CONTEXT_PARALLEL = "context_parallel"
INPUT_SCATTERED = "input_scattered"
SEQUENCE_PARALLEL = "sequence_parallel"
VARIANTS = (ORDINARY, CONTEXT_PARALLEL, INPUT_SCATTERED, SEQUENCE_PARALLEL)


@dataclass(frozen=True, slots=True)
class Contract:
    """One way a stage may run: the rows it takes and returns, and the sum its output owes.

    ``by_token``: both are in token order where that differs from the order of the shards.
    """

    rows_in: int
    rows_out: int
    owes: int
    by_token: bool = False


@dataclass(frozen=True, slots=True)
class Regime:
    """What one batch variant asks of every boundary of a stack.

    ``rows`` are the rows on which the stack is entered and left, and ``attention_in`` those that
    a token mixer takes which gathers its input itself. Every read runs on rows that are sharded at
    least over ``read_local``, and the residual rests on at least those. ``shards`` are atoms whose
    parts interleave tokens.
    ``entries`` are the sums that the stack's input may still owe, by the name of that fact: a stack
    declared ``entry: partial`` always owes its sum over attention TP.
    """

    variant: str
    rows: int
    attention_in: int
    read_local: int
    shards: int
    entries: tuple[tuple[str, int], ...]


def mesh_of(spec: TopologySpec) -> Mesh:
    """The mesh of a topology. Raises TopologyError."""
    return build_mesh(
        Sizes(spec.tp, spec.attn_dp, spec.attn_cp, spec.attn_tp, spec.dense_tp, spec.moe.dp)
    )


def inapplicable(variant: str, spec: TopologySpec, mesh: Mesh) -> str | None:
    """Why a variant has no meaning on this topology, or None where it has one."""
    heads = mesh.mask("attn_tp")
    if variant == SEQUENCE_PARALLEL and not heads:
        return "attn_tp is 1, so there are no token slices to keep"
    if variant == CONTEXT_PARALLEL and not mesh.mask("attn_cp"):
        return "attn_cp is 1, so there are no token shards"
    if variant == INPUT_SCATTERED:
        if not heads:
            return "attn_tp is 1, so there is nothing to scatter the input over"
        if mesh.every != heads:
            return "attention is data or context parallel"
        if spec.moe.all_to_all:
            return "expert dispatch is inside compute"
    return None


def regime(variant: str, mesh: Mesh, entry: str = "complete") -> Regime:
    """The demands of a batch variant on this mesh, in a stack whose file says ``entry``."""
    rows, heads, shards, local = mesh.mask("attn_dp"), mesh.mask("attn_tp"), 0, 0
    entries: tuple[tuple[str, int], ...] = (("complete", 0),)
    attention_in = rows
    if variant == CONTEXT_PARALLEL:
        shards = mesh.mask("attn_cp")
        attention_in = rows = rows | shards
    elif variant == SEQUENCE_PARALLEL:
        local = mesh.every & ~rows
    elif variant == INPUT_SCATTERED:
        attention_in = rows | heads
        entries = (*entries, ("partial", heads))
    if entry == "partial":
        entries = (("partial", heads),)
    return Regime(variant, rows, attention_in, local, shards, entries)


def contracts(
    stage: Stage, spec: TopologySpec, mesh: Mesh, demands: Regime
) -> tuple[Contract, ...]:
    """Every way ``stage`` may run; the planner picks one. Never empty."""
    if stage.kind in ("attention", "mixer"):
        owes = mesh.mask("attn_tp")
        if stage.order == "token" and demands.shards:
            whole = demands.rows & ~demands.shards
            return (Contract(whole, whole, owes, by_token=True),)
        return (Contract(mixer_input(stage, demands), demands.rows, owes),)
    if stage.sparse:
        return _experts(spec, mesh)
    return _dense(spec, mesh, demands)


def mixer_input(stage: Stage | None, demands: Regime) -> int:
    """The rows of a token mixer's input in the order of the shards, of any one's for None."""
    gathers = stage is None or stage.gathers_tp_input
    return demands.attention_in if gathers else demands.rows


def may_defer(stage: Stage, consumer: Stage | None, mesh: Mesh, *, lora: bool = False) -> bool:
    """Whether the sum that ``stage`` owes may be left to its consumer.

    A local tail is added after the sum, so compute must see the sum. Between two mixers the sum
    is completed at the exit where attention is data parallel. With ``lora`` an FFN keeps its sum,
    as an adapter adds to its output.
    """
    if stage.reduction == "local_tail" or not stage.defer or (lora and stage.kind == "ffn"):
        return False
    mixers = stage.kind == "mixer" and consumer is not None and consumer.kind != "ffn"
    return not (mixers and mesh.mask("attn_dp"))


def obeys_policy(stage: Stage) -> bool:
    """Whether the reduction policy may choose how the stage's sum ends."""
    return stage.kind == "ffn" and stage.reduction != "partial"


def _experts(spec: TopologySpec, mesh: Mesh) -> tuple[Contract, ...]:
    if spec.moe.all_to_all:
        return (Contract(mesh.every, mesh.every, 0),)
    owes = mesh.mask("moe_output")
    return tuple(Contract(rows, rows, owes) for rows in _prefixes(mesh, 0, mesh.mask("moe_dp")))


def _dense(spec: TopologySpec, mesh: Mesh, demands: Regime) -> tuple[Contract, ...]:
    owes = mesh.mask("dense")
    if spec.dense_tp == spec.tp:
        return (Contract(0, 0, owes),)
    # A narrower FFN is replicated outside its own ranks, so it stays on rows that are at least as
    # fine as the attention's: gathering them would only repeat work.
    choices = _prefixes(mesh, demands.rows, mesh.every & ~owes)
    return tuple(Contract(rows, rows, owes) for rows in choices)


def _prefixes(mesh: Mesh, least: int, most: int) -> tuple[int, ...]:
    """Rows cut over some of the outermost atoms: at least over ``least``, within ``most``.

    Other sets of atoms would leave a rank with rows that are no contiguous run of its group's.
    """
    prefixes = ((1 << length) - 1 for length in range(len(mesh.atoms) + 1))
    return tuple(mask for mask in prefixes if not least & ~mask and not mask & ~most)
