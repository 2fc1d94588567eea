"""Generated code runs: every choice with every other, on simulated ranks, against an oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundaryc.plan.compose import plan_stack
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.modules import forget, import_package
from boundaryc.verify.run import Prover
from tests.emit.compiled import MOE, WIDE, compiled


@pytest.mark.parametrize("source", [MOE, WIDE], ids=lambda source: source.stem)
def test_every_rank_computes_what_the_oracle_does(source: Path) -> None:
    """Custom operations, rounding, updates at the producer and all moves among them."""
    built = compiled(source)
    plan = plan_stack(built.stack)
    package = import_package(built.output.files, built.stack.name)
    try:
        outcomes = list(Prover(plan, package).prove(covering(list(matrix(plan, Selection())))))
    finally:
        forget(package)

    assert len(outcomes) > 100
    assert [str(one.cell) for one in outcomes if one.failure] == []
