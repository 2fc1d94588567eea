"""Stacks that end without a norm: what leaves them is the written residual."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.language import loads
from boundaryc.plan.compose import plan_stack
from boundaryc.runtime import BoundaryError
from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.modules import import_package
from boundaryc.verify.run import Prover
from boundaryc.verify.world import SimulatedGroups, World
from tests.plan.simulated import Unit
from tests.verify.fused import HEAD
from tests.verify.subjects import prover

UNNORMED = """\
stages:
  attention: {kind: attention}
  experts: {kind: ffn, sparse: true}
  gated: {kind: ffn, update: gated}
operations:
  gated: {role: update, call: "tests.emit.operations:gated_add",
          facts: [row_wise, outlives_producer], params: [gate]}
layers: {pattern: "EEG", stages: {E: [attention, experts], G: [attention, gated]}}
captures: {eagle: {after: [0, 2]}}
topologies: {tp2: {tp: 2}, tp4_dp2: {tp: 4, attn_dp: 2}, tp4_cp2: {tp: 4, attn_cp: 2}}
variants: [ordinary, sequence_parallel, context_parallel]
terminal: {norm: false}
pipeline: {payload: partial}
overlap: {two_batch: true}
"""


@pytest.fixture(scope="module")
def runs() -> Prover:
    """A stack whose last update is no addition, has a parameter, and is captured."""
    return prover(HEAD + UNNORMED)


def test_every_rank_leaves_with_what_the_oracle_says(runs: Prover) -> None:
    """The residual on the stack's rows, in every kind of batch, also after work in between."""
    for number, cell in enumerate(covering(list(matrix(runs.subject.plan, Selection())))[::4]):
        deeds = number if number % 2 else None
        outcome = runs.run(cell, schedule=number, deeds=deeds)
        assert outcome.failure is None, f"{cell}: {outcome.failure}"


def test_a_norm_that_no_one_reads_is_not_there(runs: Prover) -> None:
    """The last update runs at its producer, and the final norm is refused."""
    draft = (
        "drafts: {next: {layers: {count: 1, default: [attention, mlp]}, terminal: {norm: NORM}}}\n"
    )
    rest = """\
stages: {attention: {kind: attention}, mlp: {kind: ffn}}
layers: {count: 1, default: [attention, mlp]}
topologies: {tp2: {tp: 2}}
"""
    for norm in ("true", "false"):
        whole = loads(HEAD + rest + draft.replace("NORM", norm))
        assert whole.terminal.norm
        plan = plan_stack(whole.drafts[0])
        files = emit(plan, Origin("sample.yaml", "boundaryc compile", "0" * 64)).files
        package = import_package(files, "next")
        assert ("UnnormedStack" in files["tp2/__init__.py"]) == (norm == "false")
        _ends(package, normed=norm == "true")


def _ends(package: Any, *, normed: bool) -> None:
    """R26 and R37 of a stack of one layer: left in one of the two ways, once."""

    def program(groups: SimulatedGroups) -> Tensor:
        stack = package.load("tp2", groups)
        layer = stack.layer(0).bind(attention=Unit(64), mlp=Unit(64))
        batch = stack.batch(rows_per_dp=[3], padding="sum_len", mode="decode")
        stack.start(batch)
        hidden = torch.ones(3, 64, dtype=torch.float64)
        with pytest.raises(BoundaryError):
            stack.take_output(hidden, batch)
        hidden = layer.attention.prepare(hidden, batch)
        hidden = layer.attention.finish(torch.full_like(hidden, 2.0), batch)
        with pytest.raises(BoundaryError, match="follows the last stage"):
            stack.take_output(hidden, batch)
        behind, batch.stream.behind = batch.stream.behind, None  # as where that is not known
        with pytest.raises(BoundaryError, match="write the residual update"):
            stack.take_output(hidden, batch)
        batch.stream.behind = behind
        hidden = layer.mlp.prepare(hidden, batch)
        with layer.mlp.exit(batch) as out:
            hidden = out.reduce_output(torch.full_like(hidden, 3.0))
        hidden = out.finish(hidden)
        if normed:
            with pytest.raises(BoundaryError, match="write the residual update"):
                stack.take_output(hidden, batch)
            hidden = stack.fold(hidden, batch)
        else:
            with pytest.raises(BoundaryError, match="this stack ends without a norm"):
                stack.norm(hidden, batch, Unit(64))
        with pytest.raises(BoundaryError, match="does not belong"):
            stack.take_output(hidden.clone(), batch)
        result: Tensor = stack.take_output(hidden, batch)
        with pytest.raises(BoundaryError):
            stack.take_output(hidden, batch)
        return result

    for value in World[Tensor](2, seed=1).run(program):
        assert value.eq(1 + 2 * 2 + 2 * 3).all()


def test_what_is_broken_is_found() -> None:
    """An end without its last update fails the check above."""

    def damage(files: dict[str, str]) -> None:
        path = "tp2/ordinary.py"
        assert "stream.residual = gated_add(" in files[path]
        files[path] = files[path].replace("stream.residual = gated_add(", "_ = gated_add(")

    outcome = prover(HEAD + UNNORMED, damage).run(Cell("tp2", "ordinary", "ar", "sum_len", (3,)))
    assert outcome.failure is not None
