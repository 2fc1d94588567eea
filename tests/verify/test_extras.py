"""Extra contributions of the stack file: each is added once, and captures and cuts see it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.language import loads
from boundaryc.runtime import BoundaryError, SingleGroups
from boundaryc.verify.cells import Cell
from boundaryc.verify.fixture import Parameter
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.modules import forget
from boundaryc.verify.overlap import overlapped
from boundaryc.verify.ranks import RankProgram
from boundaryc.verify.run import Prover
from boundaryc.verify.world import World
from tests.verify.extras_stacks import EXTRAS
from tests.verify.subjects import compiled, prover
from tests.verify.test_branch_cells import PARALLEL
from tests.verify.test_operations import HEAD, SMALL, VARIANTS

ADDS = "extras: {deepstack: {after: [0, 2]}}\n"
PLAIN = """\
stages: {attention: {kind: attention, read: raw}, mlp: {kind: ffn, read: raw}}
layers: {pattern: "DAD", stages: {D: [attention, mlp], A: [attention]}}
topologies: {tp1: {tp: 1}}
pipeline: {payload: partial}
"""
HALVES = PLAIN.replace("tp1: {tp: 1}", "tp2: {tp: 2}") + "overlap: {two_batch: true}\n"


@pytest.fixture(scope="module")
def alone() -> Iterator[Any]:
    """The package of a small stack for one rank, with an extra after its first and last layer."""
    subject = prover(HEAD + PLAIN + ADDS + "overlap: {two_batch: true}\n")
    yield subject.subject.package
    forget(subject.subject.package)


class _Run:
    """A forward on one rank whose attention leaves 1 and whose FFN leaves 10."""

    def __init__(self, package: Any, layers: range | None = None, dtype: Any = torch.float64):
        self.stack = package.load("tp1", SingleGroups(), layers=layers)
        self.batch = self.stack.batch(rows_per_dp=[2], padding="unpadded", mode="prefill")
        self.stack.start(self.batch)
        self.dtype = dtype

    def filled(self, value: float) -> Tensor:
        return torch.full((self.batch.stack_rows, 64), value, dtype=self.dtype)

    def layer(self, index: int, hidden: Any, value: float = 10.0) -> Any:
        layer = self.stack.layer(index).bind()
        layer.attention.prepare(hidden, self.batch)
        hidden = layer.attention.finish(self.filled(1.0), self.batch)
        if index != 1:
            layer.mlp.prepare(hidden, self.batch)
            with layer.mlp.exit(self.batch) as exit_:
                pass
            hidden = exit_.finish(self.filled(value))
        return hidden

    def end(self, hidden: Any) -> Tensor:
        self.stack.norm(hidden, self.batch, Parameter(self.filled(1.0)[0]), capture_output=self)
        return self.seen

    def __call__(self, value: Tensor, *, owned: bool) -> None:
        self.seen = value.clone()


def test_every_rank_adds_them_where_the_file_says() -> None:
    """In every variant; captures behind a layer show what was added to it."""
    subject = prover(HEAD + EXTRAS + SMALL + VARIANTS)
    cells = covering(list(matrix(subject.subject.plan, Selection())))
    assert len({cell.variant for cell in cells}) == 4
    found = [subject.run(cell, deeds=at if at % 2 else None) for at, cell in enumerate(cells[::5])]
    assert [f"{one.cell}: {one.failure}" for one in found if one.failure] == []


def test_an_extra_beside_a_branch() -> None:
    """It is added to what the merge leaves."""
    subject = prover(PARALLEL.replace("SAYS", "allow") + "extras: {deepstack: {after: [1]}}\n")
    for topology, rows in (("tp2", (3,)), ("tp4_dp2", (0, 2))):
        outcome = subject.run(Cell(topology, "ordinary", "rs+rsv", "sum_len", rows))
        assert outcome.failure is None


def test_halves_of_a_batch_add_their_own() -> None:
    """Two-batch overlap: each half adds its rows, also where only some layers are split."""
    subject = prover(HEAD + HALVES + ADDS)
    for layers in (None, range(1, 2), range(1)):
        cell = Cell("tp2", "ordinary", "ar", "sum_len", (5,))
        overlapped(subject, cell, (2,), layers=layers)


def test_each_is_added_once(alone: Any) -> None:
    """The numbers, and that what a batch is without changes nothing."""
    run = _Run(alone)
    hidden = run.layer(0, run.filled(100.0))
    hidden = run.stack.add_extras(hidden, run.batch, deepstack=run.filled(0.25))
    with pytest.raises(TypeError, match=r"^deepstack: not added to this output"):
        run.stack.add_extras(hidden, run.batch, deepstack=run.filled(0.25))
    hidden = run.layer(2, run.layer(1, hidden))
    same = run.stack.add_extras(hidden, run.batch, deepstack=None)
    assert same is hidden
    assert run.end(same).eq(123.25).all()


def test_one_that_is_left_out_is_refused_wherever_the_output_goes(alone: Any) -> None:
    """By the next stage, the final norm, the end without one, and a pipeline cut."""
    missing = "^deepstack is added to the output of `mlp` of layer {} before {}: call add_extras"
    run = _Run(alone)
    hidden = run.layer(0, run.filled(1.0))
    with pytest.raises(BoundaryError, match=missing.format(0, "`attention` of layer 1")):
        run.layer(1, hidden)
    with pytest.raises(TypeError, match=r"^missing: deepstack; None for one"):
        run.stack.add_extras(hidden, run.batch)
    with pytest.raises(TypeError, match=r"^vision: not added to this output; .*: deepstack$"):
        run.stack.add_extras(hidden, run.batch, vision=None)
    hidden = run.stack.add_extras(hidden, run.batch, deepstack=None)
    hidden = run.layer(2, run.layer(1, hidden))
    with pytest.raises(BoundaryError, match=missing.format(2, "the final norm")):
        run.end(hidden)
    with pytest.raises(BoundaryError, match=missing.format(2, "the end of the stack")):
        run.stack.take_output(run.stack.fold(hidden, run.batch), run.batch)
    cut = _Run(alone, range(1))
    hidden = cut.layer(0, cut.filled(1.0))
    with pytest.raises(BoundaryError, match=missing.format(0, "to_pp")):
        cut.stack.to_pp(hidden, cut.batch)
    written = cut.stack.written(cut.filled(5.0), cut.batch)
    assert cut.stack.to_pp(written, cut.batch)["residual"].eq(5).all()


def test_a_batch_is_not_split_or_merged_without_them(alone: Any) -> None:
    """What is split has all of its extras, and so has what is merged."""
    missing = "^deepstack is added to the output of `mlp` of layer 0 before {}: call add_extras"
    run = _Run(alone)
    hidden = run.layer(0, run.filled(1.0))
    with pytest.raises(BoundaryError, match=missing.format("its split")):
        run.stack.split(hidden, run.batch, run.batch.split((1,)))
    run = _Run(alone)
    halves = [copy(run), copy(run)]
    children = run.batch.split((1,))
    given = run.stack.split(run.filled(1.0), run.batch, children)
    left = []
    for half, half.batch, hidden in zip(halves, children, given, strict=True):
        left.append(half.layer(0, hidden))
    with pytest.raises(BoundaryError, match=missing.format("the merge")):
        run.stack.merge(left, children, run.batch)


@pytest.mark.parametrize("payload", ["partial", "complete"])
@pytest.mark.parametrize("given", [True, False])
def test_the_form_of_a_payload_does_not_depend_on_what_is_given(payload: str, given: bool) -> None:
    """Both sides know it before: of owed outputs, and of those whose update has run."""
    text = HEAD + EXTRAS + "topologies: {tp2: {tp: 2}}\nvariants: [ordinary]\n"
    subject = prover(f"{text}pipeline: {{payload: {payload}}}\n")
    for cut in range(1, 6):
        cell = Cell("tp2", "ordinary", "ar", "sum_len", (3,), cuts=(cut,))
        assert _told_and_sent(subject, cell, given=given) == []


def _told_and_sent(subject: Prover, cell: Cell, *, given: bool) -> list[str]:
    wrong: list[str] = []

    class Program(RankProgram):
        def _cross(self, index: int, hidden: Any) -> Any:
            told = {(one.name, one.rows) for one in self.stack.payload(self.batch, incoming=False)}
            own, send = self.stack, self.stack.to_pp

            def to_pp(hidden: Any, batch: Any) -> Any:
                sent = send(hidden, batch)
                shapes = {(name, tensor.shape[0]) for name, tensor in sent.items()}
                wrong.extend([f"{told} {shapes}"] if told != shapes else [])
                return sent

            own.to_pp = to_pp
            return super()._cross(index, hidden)

        def _stage(self, *where: Any) -> Any:
            add = type(self.stack).add_extras

            def none(hidden: Any, batch: Any, **extras: Any) -> Any:
                return add(self.stack, hidden, batch, **dict.fromkeys(extras))

            if not given:
                self.stack.add_extras = none
            return super()._stage(*where)

        def _compare(self, *seen: Any) -> None:
            if given:
                super()._compare(*seen)

    scene = subject.scene(cell)
    World(scene.topology.spec.tp).run(lambda groups: Program(scene, groups).forward())
    return wrong


def test_ex1_an_extra_is_added_before_the_residual(alone: Any) -> None:
    """(h + extra) + residual with each sum rounded: 1.015625 in bfloat16."""
    run = _Run(alone, dtype=torch.bfloat16)
    hidden = run.layer(0, run.filled(2.0**-8 - 1.0), 1.0)
    hidden = run.stack.add_extras(hidden, run.batch, deepstack=run.filled(2.0**-7))
    assert run.stack.snapshot(hidden, run.batch).eq(1.015625).all()


def test_only_stacks_with_extras_name_them() -> None:
    """Beside the hashes, their layers are all that differs in generated code."""
    plain, with_extras = (compiled(HEAD + PLAIN + more)[1] for more in ("", ADDS))
    changed = {path for path in plain if plain[path] != with_extras[path]}
    own = {path for path in changed if path.endswith(".py") and not path.endswith("__init__.py")}
    assert not own
    text = with_extras["tp1/__init__.py"]
    assert '    extras = (("deepstack", 0, 0), ("deepstack", 2, 2))\n' in text
    assert "extras" not in plain["tp1/__init__.py"]
    assert loads(HEAD + PLAIN + ADDS).extras[0].layers == (0, 2)
