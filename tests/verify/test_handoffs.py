"""Hand-offs: what becomes of an output that a MoE has not finalised, in every way it can go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import BoundaryError, HandoffOutput, MappedGroups, OwedOutput
from boundaryc.verify.run import Prover
from tests.verify.fused import (
    HANDS_ON,
    HEAD,
    WIDTH,
    Forward,
    Handed,
    Noting,
    Rank,
    census,
    forwards,
    outputs,
    plain,
)
from tests.verify.subjects import prover

REFUSED = "^this hand-off was not asked for"


@pytest.fixture(scope="module")
def runs() -> Prover:
    """Attention and a MoE that may hand on, twice."""
    return prover(HEAD + HANDS_ON)


@pytest.fixture(scope="module")
def unfused(runs: Prover) -> tuple[Tensor, Any]:
    """The outputs of all ranks without a provider, and the collectives."""
    ranks, traces = forwards(runs)
    assert ranks[0].flags == [(True, False), (False, False)]
    return outputs(ranks), census(traces)


def declining(log: list[str]) -> Noting:
    """Lets MoEs hand on, and takes nothing."""
    return Noting(log, takes=lambda consumer, contribution: False)


def for_norm(forward: Forward) -> Tensor:
    """A model whose final norm finishes hand-offs, by the kernel of the provider."""
    hidden = forward.run(forward.start())
    ends = next(one for one in forward.rank.stack.fused if one.plan.terminal)
    return forward.end(hidden, handoff_norm=forward.rank.provider.finalize_norm(ends.group))


def test_fused(runs: Prover, unfused: tuple[Tensor, Any]) -> None:
    """The next input and the final norm finish it in one kernel: nothing else does any of it."""
    ranks, traces = forwards(runs, model=for_norm, provider=Noting)

    for rank in ranks:
        assert rank.log == [
            *("fuse experts", "fuse handed attention", "fuse experts", "norm"),
            "fuse handed final",
        ]
        assert rank.flags == [(True, True), (False, True)]
    torch.testing.assert_close(outputs(ranks), unfused[0], rtol=0, atol=1e-12)
    assert census(traces) == unfused[1]
    assert {call.site.function for trace in traces for call in trace} == {"summed"}


def test_declined(runs: Prover, unfused: tuple[Tensor, Any]) -> None:
    """FN-3 and X11: each hand-off is completed once, by what the exit would have done."""
    ranks, traces = forwards(runs, model=for_norm, provider=declining)

    for rank in ranks:
        assert rank.log == [
            *("decline experts", "decline handed attention", "complete", "decline attention"),
            *("decline experts", "norm", "decline handed final", "complete"),
        ]
    assert torch.equal(outputs(ranks), unfused[0])
    assert census(traces) == unfused[1]


@pytest.mark.parametrize("at_the_end", [False, True])
def test_one_that_raises(runs: Prover, unfused: tuple[Tensor, Any], at_the_end: bool) -> None:
    """The error goes through, nothing is finished again, and the next forward is right."""

    class Failing:
        def finalize(self, handoff: Any, residual: Tensor, gamma: Tensor) -> Tensor:
            raise RuntimeError("the kernel failed after it was launched")

    def model(forward: Forward) -> Tensor:
        provider, batch = forward.rank.provider, forward.rank.batch
        hidden = forward.run(forward.start(), None if at_the_end else [0])
        provider.raises = True

        def go_on(hidden: Any) -> Tensor:
            if at_the_end:
                return forward.end(hidden, handoff_norm=Failing())
            x: Tensor = forward.boundary(1, "attention").prepare(hidden, batch)
            return x

        for error, says in ((RuntimeError, "after it was launched"), (BoundaryError, "belong")):
            with pytest.raises(error, match=says):
                go_on(hidden)
        assert "complete" not in forward.rank.log
        provider.raises = False
        return for_norm(forward)

    ranks, traces = forwards(runs, model=model, provider=Noting)

    torch.testing.assert_close(outputs(ranks), unfused[0], rtol=0, atol=1e-12)
    before = 3 if at_the_end else 2  # the sums that ran before the failure, and what it launched
    assert [len(trace) for trace in traces] == [before + len(one) for one in unfused[1]]


def test_completed_before_a_plain_norm(runs: Prover, unfused: tuple[Tensor, Any]) -> None:
    """FN-3, R34: without ``handoff_norm`` it is completed first, and may be captured then."""
    shown: list[Tensor] = []

    def model(forward: Forward) -> Tensor:
        hidden = forward.run(forward.start())
        assert isinstance(hidden, OwedOutput)
        return forward.end(hidden, capture_output=lambda value, *, owned: shown.append(value))

    ranks, traces = forwards(runs, model=model, provider=Noting)

    assert [rank.log[-2:] for rank in ranks] == [["norm", "complete"]] * 2
    torch.testing.assert_close(outputs(ranks), unfused[0], rtol=0, atol=1e-12)
    assert len(shown) == 2
    assert census(traces) == unfused[1]


def test_a_final_norm_that_finishes_shows_nothing(runs: Prover) -> None:
    """With ``handoff_norm`` and a hand-off a capture is refused; the stream is kept."""

    def model(forward: Forward) -> Tensor:
        hidden = forward.run(forward.start())
        with pytest.raises(BoundaryError, match=r"^capture_output and handoff_norm exclude"):
            forward.end(hidden, handoff_norm=object(), capture_output=lambda *_, **__: None)
        assert "complete" not in forward.rank.log
        return forward.end(hidden)

    forwards(runs, model=model, provider=Noting)


def test_a_snapshot_of_it_is_refused(runs: Prover, unfused: tuple[Tensor, Any]) -> None:
    """R34: it is finished once, so it is not shown; the forward goes on."""

    def model(forward: Forward) -> Tensor:
        hidden = forward.run(forward.start(), [0])
        with pytest.raises(BoundaryError, match=r"^a snapshot of a hand-off is not implemented"):
            forward.rank.stack.snapshot(hidden, forward.rank.batch)
        return forward.end(forward.run(hidden, [1]))

    ranks, _ = forwards(runs, model=model, provider=declining)
    assert torch.equal(outputs(ranks), unfused[0])


@pytest.mark.parametrize("how", ["complete_output", "fold", "capture_output", "add_to_output"])
def test_completed_early(runs: Prover, unfused: tuple[Tensor, Any], how: str) -> None:
    """Whoever works on the output completes it, once; the next stage does not do it again."""

    def model(forward: Forward) -> Tensor:
        stack, batch = forward.rank.stack, forward.rank.batch
        hidden = forward.run(forward.start(), [0])
        if how == "capture_output":
            hidden, shown = forward.boundary(1, "attention").capture_output(hidden, batch)
            assert shown.shape == (3, WIDTH)
        elif how == "add_to_output":
            hidden = stack.add_to_output(hidden, batch, torch.zeros(3, WIDTH, dtype=torch.float64))
        else:
            hidden = getattr(stack, how)(hidden, batch)
        forward.rank.log.append("done")
        return forward.end(forward.run(hidden, [1]))

    ranks, traces = forwards(runs, model=model, provider=declining)

    for rank in ranks:
        assert rank.log[:3] == ["decline experts", "complete", "done"]
        assert rank.log.count("complete") == 2
    torch.testing.assert_close(outputs(ranks), unfused[0], rtol=0, atol=1e-12)
    sums = [len(trace) for trace in unfused[1]]
    assert [len(trace) for trace in traces] == [one + (how == "capture_output") for one in sums]


def test_a_model_may_decline(runs: Prover, unfused: tuple[Tensor, Any]) -> None:
    """X11: compute that returns a tensor takes the ordinary exit, sum included."""
    ranks, traces = forwards(runs, provider=declining, hands_on=False)
    assert all("complete" not in rank.log for rank in ranks)
    assert [rank.flags for rank in ranks] == [[(True, True), (False, True)]] * 2
    assert torch.equal(outputs(ranks), unfused[0])
    assert census(traces) == unfused[1]


@pytest.mark.parametrize("provider", [None, lambda log: Noting(log, finalize=False)])
def test_one_that_was_not_asked_for(runs: Prover, provider: Callable[..., Any] | None) -> None:
    """FN-3, X12: `finish` refuses it; so does attention's, which never asks."""

    def model(forward: Forward) -> Tensor:
        batch = forward.rank.batch
        attention, experts = (forward.boundary(0, name) for name in ("attention", "experts"))
        x = attention.prepare(forward.start(), batch)
        with pytest.raises(BoundaryError, match=REFUSED):
            attention.finish(Handed(x, []), batch)
        x = experts.prepare(attention.finish(x, batch), batch)
        with experts.exit(batch) as out:
            assert not out.defer_moe_finalize
        with pytest.raises(BoundaryError, match=REFUSED):
            out.finish(Handed(x, []))
        return x

    forwards(runs, model=model, provider=provider)


def test_the_flag_ends_with_its_exit(runs: Prover) -> None:
    """X11, X13: it is true inside the exit alone, also where compute raises."""

    def model(forward: Forward) -> Tensor:
        batch = forward.rank.batch
        hidden = forward.boundary(0, "attention").prepare(forward.start(), batch)
        hidden = forward.boundary(0, "attention").finish(hidden, batch)
        experts = forward.boundary(0, "experts")
        x: Tensor = experts.prepare(hidden, batch)
        out, seen = experts.exit(batch), []
        with suppress(KeyError), out:
            seen.append(batch.exit.defer_moe_finalize)
            raise KeyError
        assert seen == [True]
        assert batch.exit is None
        with pytest.raises(BoundaryError, match="failed"):
            out.finish(x)
        return x

    forwards(runs, model=model, provider=Noting)


def test_without_rows_nothing_is_handed_on(runs: Prover) -> None:
    """X03: a batch of no rows completes at its exit, and no kernel is asked."""
    ranks, traces = forwards(runs, model=for_norm, provider=Noting, rows=(0,))
    assert [rank.flags for rank in ranks] == [[(True, False), (False, False)]] * 2
    assert [rank.log for rank in ranks] == [["norm"]] * 2
    assert len({tuple(one) for one in census(traces)}) == 1


def test_what_completes_to_no_tensor(runs: Prover) -> None:
    """A producer that gives something else is told so, and the next forward is right."""

    class Broken(Handed):
        def complete(self) -> Any:
            return None

    def model(forward: Forward) -> Any:
        batch = forward.rank.batch
        hidden = forward.boundary(0, "attention").prepare(forward.start(), batch)
        hidden = forward.boundary(0, "attention").finish(hidden, batch)
        experts = forward.boundary(0, "experts")
        x = experts.prepare(hidden, batch)
        with experts.exit(batch) as out:
            pass
        with pytest.raises(BoundaryError, match="completes to a tensor, not a NoneType"):
            forward.rank.stack.complete_output(out.finish(Broken(x, [])), batch)
        return plain(forward)

    done, _ = forwards(runs, model=model, provider=declining)
    right, _ = forwards(runs, provider=declining)
    assert torch.equal(outputs(done), outputs(right))


class Doubling:
    """A group of two that both bring the same."""

    rank, size = 0, 2

    def all_reduce(self, x: Tensor) -> Tensor:
        """Twice what this rank brings."""
        return x + x


@pytest.mark.parametrize("takes", [True, False])
def test_x20_it_traces_without_a_break(runs: Prover, takes: bool) -> None:
    """X20: an exit that defers, and the next stage behind it, in one graph."""
    stack = runs.subject.package.load("tp2", MappedGroups(0, {"tp": Doubling()}))
    stack.attach("kernels", Noting(takes=lambda consumer, _: takes))
    batch = stack.batch(rows_per_dp=[3], padding="sum_len", mode="decode")
    forward = Forward(Rank([], stack=stack, batch=batch), runs.subject.plan.stack.layers, 0)
    first, second = (forward.boundary(index, "attention") for index in (0, 1))
    experts = forward.boundary(0, "experts")

    def step(x: Tensor) -> Tensor:
        stack.start(batch)
        x = experts.prepare(first.finish(first.prepare(x, batch), batch), batch)
        with experts.exit(batch) as out:
            y: Any = Handed(x * 0.5, []) if out.defer_moe_finalize else out.reduce_output(x)
        found: Tensor = second.prepare(out.finish(y), batch)
        return found

    x = torch.rand(3, WIDTH, dtype=torch.float64)
    traced = torch.compile(step, fullgraph=True, backend="eager")
    torch.testing.assert_close(traced(x.clone()), step(x.clone()), rtol=0, atol=1e-12)


class TopK(HandoffOutput):
    """Eight expert outputs of each row, not yet weighed and added."""

    def __init__(self, weights: Tensor, experts: Tensor) -> None:
        self.weights, self.experts = weights, experts

    def complete(self) -> Tensor:
        """Added in float32, rounded once."""
        total = (self.weights.float() * self.experts.float()).sum(dim=1)
        return total.to(torch.bfloat16)


@pytest.mark.parametrize("deferred", [True, False])
def test_fn1_a_deferred_finalize_is_as_exact(runs: Prover, deferred: bool) -> None:
    """NVIDIA/TensorRT-LLM#16778: weights 1 and seven times 2^-9, lost in bfloat16 steps."""
    weights = torch.tensor([1.0] + [2.0**-9] * 7, dtype=torch.bfloat16).view(1, 8, 1)

    def fused(log: list[str]) -> Any:
        return Finishing(log, finalize=deferred)

    class Finishing(Noting):
        """A kernel that finishes what it is handed as ``complete`` does."""

        def _run(self, plan: Any, contribution: Any, residual: Any, *rest: Any) -> Any:
            if isinstance(contribution, TopK):
                contribution = contribution.complete()
            return super()._run(plan, contribution, residual, *rest)

    class TopKForward(Forward):
        def stage(self, boundary: Any, name: str, x: Tensor) -> Any:
            batch = self.rank.batch
            if name == "attention":
                return boundary.finish(torch.zeros_like(x), batch)
            ones = torch.ones(x.shape[0], 8, WIDTH, dtype=torch.bfloat16)
            mine = TopK(weights * (self.number == 0), ones)
            with boundary.exit(batch) as out:
                assert out.defer_moe_finalize is deferred
                y: Any = mine if deferred else out.reduce_output(mine.complete())
            return out.finish(y)

    def model(forward: Forward) -> Tensor:
        own = TopKForward(forward.rank, forward.layers, forward.number, dtype=torch.bfloat16)
        own.bound = _Weight()
        hidden = own.start() * 0
        hidden = own.run(hidden, [0])
        own.boundary(1, "attention").prepare(hidden, own.rank.batch)
        return own.rank.batch.stream.residual

    ranks, _ = forwards(runs, model=model, provider=fused)
    assert outputs(ranks).dtype == torch.bfloat16
    assert outputs(ranks).eq(1.015625).all()


class _Weight:
    weight = torch.ones(WIDTH, dtype=torch.bfloat16)
