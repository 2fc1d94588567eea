"""One cell of the proof: a stack on one topology, variant, policy, padding and batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from boundaryc.verify.meddling import MeddlingProgram
from boundaryc.verify.ranks import RankProgram
from boundaryc.verify.scene import Cell, Scene
from boundaryc.verify.world import Call, SimulatedGroups, World

__all__ = ["Cell", "Outcome", "run_cell"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one cell showed. ``failure`` is None where everything held.

    ``collectives`` and ``wire_bytes`` are the largest of any rank for one forward.
    """

    cell: Cell
    error: float
    collectives: int
    wire_bytes: int
    failure: str | None


def run_cell(scene: Scene, *, seed: int | None = None, poison: bool = True) -> Outcome:
    """Runs one cell on simulated ranks and compares every rank at every stage with the oracle."""
    world: World[float] = World(scene.topology.spec.tp, seed=seed, poison=poison)
    program = RankProgram if scene.deeds is None else MeddlingProgram
    return judged(scene.cell, world, lambda groups: program(scene, groups).forward())


def judged(cell: Cell, world: World[float], forward: Callable[[SimulatedGroups], float]) -> Outcome:
    """What ``forward``, which returns a rank's largest error, shows on all ranks of ``world``."""
    try:
        errors = world.run(forward)
    except Exception as error:  # a proof reports every kind of failure of what it judges
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        return Outcome(cell, float("inf"), 0, 0, f"{type(error).__name__}: {error}{notes}")
    traces = world.traces()
    return Outcome(
        cell,
        max(errors),
        max(len(trace) for trace in traces),
        max(sum(_wire(call) for call in trace) for trace in traces),
        None,
    )


def _wire(call: Call) -> int:
    return call.wire_bytes(call.dtype.itemsize)
