"""What `test_gloo_ranks` runs on real ranks: the cells of a proof, one process a rank."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

from boundaryc.verify.cells import Cell
from boundaryc.verify.meddling import MeddlingProgram
from boundaryc.verify.ranks import RankProgram
from boundaryc.verify.run import Prover
from boundaryc.verify.world import SimulatedGroups
from tests.runtime.ranks import RecordingGroups
from tests.verify.subjects import prover


@cache
def _prover(text: str) -> Prover:
    return prover(text)


def forwards(
    rank: int, text: str, cells: Sequence[tuple[Cell, int | None]]
) -> list[tuple[float, list[str]]]:
    """The largest error of each cell and its collectives; MismatchError where a value is wrong.

    With a seed the model uses outputs between stages.
    """
    found = []
    for cell, deeds in cells:
        scene: Any = _prover(text).scene(cell, deeds)
        groups = RecordingGroups()
        program = RankProgram if deeds is None else MeddlingProgram
        error = program(scene, cast(SimulatedGroups, groups)).forward()
        found.append((error, groups.log))
    return found
