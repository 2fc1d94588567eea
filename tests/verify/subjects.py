"""Stacks compiled in memory, for tests that run them on simulated ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.language import loads
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.result import StackPlan
from boundaryc.verify.cells import Cell
from boundaryc.verify.modules import import_package
from boundaryc.verify.run import Prover

HEAD = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  experts: {kind: ffn, sparse: true}
layers: {count: 4, default: [attention, experts]}
"""


def compiled(text: str) -> tuple[StackPlan, dict[str, str]]:
    """The plan of a stack and the files it is emitted as, which are the caller's own."""
    plan, files = _compiled(text)
    return plan, dict(files)


@lru_cache(maxsize=32)
def _compiled(text: str) -> tuple[StackPlan, Mapping[str, str]]:
    """The same, once for all tests of a file that damage one stack in many ways."""
    plan = plan_stack(loads(text))
    return plan, emit(plan, Origin("sample.yaml", "boundaryc compile", "0" * 64)).files


def share(cells: Sequence[Cell], number: int, of: int) -> list[Cell]:
    """The share ``number`` of ``of`` of the cells.

    Stacks of one test that take their shares in turns run every cell together, with less time.
    """
    return list(cells[number % of :: of])


def prover(text: str, damage: Callable[[dict[str, str]], None] | None = None) -> Prover:
    """A prover of a stack, its generated files damaged first if so asked."""
    plan, files = compiled(text)
    if damage is not None:
        damage(files)
    return Prover(plan, import_package(files, "sample"))
