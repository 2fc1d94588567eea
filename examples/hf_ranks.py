"""Runs an example's tiny Hugging Face model cut over simulated ranks, and compares its logits.

python -m examples.hf_ranks qwen3 --sample          the runs of the tests
python -m examples.hf_ranks glm4 --topology tp8_dp2 all runs on one topology
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib import import_module
from types import ModuleType

import torch

from boundaryc.language.model import Stack
from boundaryc.verify.poison import poisoned_allocations
from boundaryc.verify.world import SimulatedGroups, World
from examples.common.parallel import Parallel
from examples.hf.architecture import Architecture
from examples.hf.cases import Case
from examples.hf.editions import compiled, described, edited
from examples.hf.matrix import EVERY, TOPOLOGIES, cases, sample, topologies
from examples.hf.parts import Parts
from examples.hf.program import RankProgram, Scene
from examples.hf.reference import Reference, reference

Compiled = tuple[Stack, ModuleType]


class Harness:
    """An architecture: its model, and its stack file compiled for the topologies of runs."""

    def __init__(self, name: str, device: str = "cpu") -> None:
        self.device = device
        self.architecture: Architecture = import_module(f"examples.{name}.hf").ARCHITECTURE
        self.layers = len(described(name).layers)
        self._topologies = topologies(described(name))
        self._compiled: dict[tuple[str, str], Compiled] = {}

    @cached_property
    def reference(self) -> Reference:
        """The model and what it says about the sequences of all runs."""
        return reference(self.architecture, self.layers, device=self.device)

    @cached_property
    def _parts(self) -> Parts:
        return Parts(self.reference)

    def cases(self, names: Iterable[str] = tuple(TOPOLOGIES)) -> list[Case]:
        """All runs on some topologies."""
        every = (cases(self.architecture, topology, self.layers) for topology in names)
        return [case for found in every for case in found]

    def sample(self) -> list[Case]:
        """A few runs in which every pair of properties occurs."""
        return sample(self.architecture, self.layers)

    def text(self, topology: str, edition: str) -> str:
        """The stack file of runs on a topology."""
        return edited(self.architecture, topology, self._topologies[topology], edition)

    def scene(self, case: Case, made: Compiled | None = None) -> Scene:
        """What the ranks of a run share; ``made`` is another compiled stack than the example's."""
        key = (case.topology, case.edition)
        if made is None and key not in self._compiled:
            self._compiled[key] = compiled(self.text(*key), self.architecture.name)
        stack, package = made or self._compiled[key]
        spec = next(spec for spec in stack.topologies if spec.name == case.topology)
        parallel = Parallel.of(spec)
        return Scene(case, stack, package, self.reference, self._parts, parallel)

    def run(self, case: Case, made: Compiled | None = None) -> float:
        """The largest difference from the model on any rank, of logits and captures."""
        scene = self.scene(case, made)
        world: World[float] = World(scene.parallel.tp, seed=len(str(case)), poison=True)

        def forward(groups: SimulatedGroups) -> float:
            return RankProgram(scene, groups).forward()

        with poisoned_allocations(), torch.inference_mode():
            errors = world.run(forward)
        return max(errors)


def main() -> int:
    """Runs the cases that the command line asks for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="an example with a module hf")
    parser.add_argument("--sample", action="store_true", help="the covering sample only")
    parser.add_argument(
        "--topology", action="append", choices=EVERY, help="all of them if not given"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    harness = Harness(options.name)
    found = harness.sample() if options.sample else harness.cases(options.topology or TOPOLOGIES)
    failures = sum(not ok for ok in _judged(harness, found))
    print(
        f"{len(found) - failures} of {len(found)} runs agree to {harness.reference.tolerance:.1e}"
    )
    return 1 if failures else 0


def _judged(harness: Harness, found: list[Case]) -> Iterator[bool]:
    for case in found:
        error = harness.run(case)
        ok = error <= harness.reference.tolerance
        print(f"{'ok  ' if ok else 'FAIL'} {error:.1e} {case}", flush=True)
        yield ok


if __name__ == "__main__":
    sys.exit(main())
