"""Collectives of real runs: generated code on simulated ranks, and what each call sent."""

from __future__ import annotations

from fractions import Fraction

from boundaryc.verify.ranks import RankProgram
from boundaryc.verify.run import Prover
from boundaryc.verify.scene import Cell
from boundaryc.verify.world import Call, World

ELEMENT = 2
"""Bytes of an element in a model; the simulation computes in float64."""


def traced(ready: Prover, cell: Cell) -> list[list[Call]]:
    """The collectives of every rank, in order."""
    scene = ready.scene(cell)
    world: World[float] = World(scene.topology.spec.tp)
    world.run(lambda groups: RankProgram(scene, groups).forward())
    return world.traces()


def sent(traces: list[list[Call]]) -> Fraction:
    """The bytes that all ranks together sent, to first order."""
    return sum((_bytes(call) for trace in traces for call in trace), Fraction())


def _bytes(call: Call) -> Fraction:
    members, rows = len(call.group), call.shape[0]
    if call.kind == "all_gather":
        rows = sum(call.sizes) if call.sizes else rows * members
    width = ELEMENT
    for extent in call.shape[1:]:
        width *= extent
    times = 2 if call.kind == "all_reduce" else 1
    return Fraction(times * (members - 1) * rows * width, members)


def texts(trace: list[Call]) -> list[str]:
    """Each collective of a rank as plans write it; a placed sum is an all-reduce."""
    return [f"{call.kind}({call.label})" for call in trace]
