"""What each stage takes and leaves on one topology in one batch variant.

This is the only place that knows what a stage kind or a batch variant *means*: it turns both into
sets of atoms, and everything downstream sees nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.language.model import Stage, TopologySpec
from boundaryc.topology import Mesh

ORDINARY = "ordinary"
SEQUENCE_PARALLEL = "sequence_parallel"
VARIANTS = (ORDINARY, SEQUENCE_PARALLEL)


@dataclass(frozen=True, slots=True)
class Contract:
    """One way a stage may run: the rows it takes and returns, and the sum its output owes."""

    rows_in: int
    rows_out: int
    owes: int


@dataclass(frozen=True, slots=True)
class Regime:
    """What one batch variant asks of every boundary of a stack.

    ``rows`` are the rows on which the stack is entered and left. Every read runs on rows that are
    sharded at least over ``read_local``, and the residual rests on at least those.
    """

    variant: str
    rows: int
    read_local: int


def inapplicable(variant: str, mesh: Mesh) -> str | None:
    """Why a variant has no meaning on this mesh, or None where it has one."""
    if variant == SEQUENCE_PARALLEL and not mesh.mask("attn_tp"):
        return "attn_tp is 1, so there are no token slices to keep"
    return None


def regime(variant: str, mesh: Mesh) -> Regime:
    """The demands of a batch variant on this mesh."""
    rows = mesh.mask("attn_dp")
    slices = mesh.every if variant == SEQUENCE_PARALLEL else 0
    return Regime(variant, rows, slices & ~rows)


def contracts(
    stage: Stage, spec: TopologySpec, mesh: Mesh, demands: Regime
) -> tuple[Contract, ...]:
    """Every way ``stage`` may run; the planner picks one. Never empty."""
    if stage.kind == "attention":
        return (Contract(demands.rows, demands.rows, mesh.mask("attn_tp")),)
    if stage.sparse:
        return _experts(spec, mesh)
    return _dense(spec, mesh, demands)


def _experts(spec: TopologySpec, mesh: Mesh) -> tuple[Contract, ...]:
    if spec.moe.all_to_all:
        return (Contract(mesh.every, mesh.every, 0),)
    owes = mesh.mask("moe_output")
    return tuple(Contract(rows, rows, owes) for rows in _subsets(mesh.mask("moe_dp")))


def _dense(spec: TopologySpec, mesh: Mesh, demands: Regime) -> tuple[Contract, ...]:
    owes = mesh.mask("dense")
    if spec.dense_tp == spec.tp:
        return (Contract(0, 0, owes),)
    # A narrower FFN is replicated outside its own ranks, so it stays on rows that are at least as
    # fine as the attention's: gathering them would only repeat work.
    free = mesh.every & ~owes & ~demands.rows
    return tuple(
        Contract(demands.rows | extra, demands.rows | extra, owes) for extra in _subsets(free)
    )


def _subsets(mask: int) -> tuple[int, ...]:
    """All subsets of a mask, smallest number first.

    >>> _subsets(0b101)
    (0, 1, 4, 5)
    """
    subsets, part = [0], 0
    while part != mask:
        part = (part - mask) & mask
        subsets.append(part)
    return tuple(subsets)
