"""Forwards with fusion providers whose every call is noted, in numbers of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from boundaryc.runtime import FusedAttentionInput, FusedMlpInput, FusionPlan, HandoffOutput
from boundaryc.verify.fusing import summed
from boundaryc.verify.run import Prover
from boundaryc.verify.world import Call, SimulatedGroups, World
from tests.plan.simulated import Unit

WIDTH, EPS = 64, 1e-6

HEAD = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
"""
HANDS_ON = """\
stages:
  attention: {kind: attention}
  experts: {kind: ffn, sparse: true, finalize: deferred}
layers: {count: 2, default: [attention, experts]}
topologies: {tp2: {tp: 2}, tp4: {tp: 4}}
fusion: {providers: [kernels]}
terminal: {finalize: deferred}
"""


class Handed(HandoffOutput):
    """A part of an output that notes when it is finished."""

    def __init__(self, part: Tensor, log: list[str]) -> None:
        self.part, self.log = part, log

    def complete(self) -> Tensor:
        """The part, noted."""
        self.log.append("complete")
        return self.part


@dataclass
class Noting:
    """A provider that notes what it is asked; ``takes`` says by consumer what its kernel takes."""

    log: list[str] = field(default_factory=list)
    takes: Callable[[str, Any], bool] = lambda consumer, contribution: True
    finalize: bool = True
    all_reduce: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    raises: bool = False

    def attention_input(self, plan: FusionPlan) -> Sequence[FusedAttentionInput]:
        """Its kernel."""
        return [
            FusedAttentionInput("own", plan.sum_group, partial(self._run, plan), **self.options)
        ]

    def ffn_input(self, plan: FusionPlan) -> Sequence[FusedMlpInput]:
        """Its kernel."""
        return [FusedMlpInput("own", plan.sum_group, partial(self._run, plan), **self.options)]

    def can_defer_finalize(self, plan: FusionPlan, batch: Any) -> bool:
        """As the test says."""
        return self.finalize

    def can_defer_all_reduce(self, plan: FusionPlan, batch: Any) -> bool:
        """As the test says."""
        return self.all_reduce

    def finalize_norm(self, group: Any) -> Any:
        """A final norm of this provider's."""
        return Ending(self, group)

    def _run(
        self,
        plan: FusionPlan,
        contribution: Any,
        residual: Any,
        weight: Any,
        group: Any,
        batch: Any,
    ) -> tuple[Tensor, Tensor] | None:
        handed = "handed " * isinstance(contribution, HandoffOutput)
        if not self.takes(plan.consumer, contribution):
            self.log.append(f"decline {handed}{plan.consumer}")
            return None
        self.log.append(f"fuse {handed}{plan.consumer}")
        if isinstance(contribution, Handed):
            contribution = contribution.part
        done = summed(contribution, residual, weight, group, EPS)
        if self.raises:
            raise RuntimeError("the kernel failed after it was launched")
        return done


@dataclass
class Ending:
    """A final norm that finishes hand-offs."""

    provider: Noting
    group: Any

    def finalize(self, handoff: Any, residual: Tensor, gamma: Tensor) -> Tensor | None:
        """As the provider takes the end of the stack."""
        if not self.provider.takes("final", handoff):
            self.provider.log.append("decline handed final")
            return None
        self.provider.log.append("fuse handed final")
        return summed(handoff.part, residual, gamma, self.group, EPS)[0]


@dataclass
class Rank:
    """One rank's forward: what its provider noted, its output, and the batch."""

    log: list[str]
    output: Any = None
    batch: Any = None
    stack: Any = None
    provider: Any = None
    flags: list[tuple[bool, bool]] = field(default_factory=list)


Model = Callable[["Forward"], Any]


@dataclass
class Forward:
    """A forward on one rank that a test steers: ``hands_on`` where an exit asks for a hand-off."""

    rank: Rank
    layers: Sequence[Sequence[str]]
    number: int
    hands_on: bool = True
    dtype: torch.dtype = torch.float64
    bound: Any = None

    def start(self) -> Any:
        """The stack's input."""
        batch, stack = self.rank.batch, self.rank.stack
        stack.start(batch)
        rows = torch.arange(batch.stack_rows * WIDTH, dtype=self.dtype)
        return torch.sin(rows).view(-1, WIDTH)

    def run(self, hidden: Any, layers: Sequence[int] | None = None) -> Any:
        """Some layers, all by default."""
        for index in range(len(self.layers)) if layers is None else layers:
            for name in self.layers[index]:
                boundary = self.boundary(index, name)
                hidden = self.stage(boundary, name, boundary.prepare(hidden, self.rank.batch))
        return hidden

    def boundary(self, index: int, name: str) -> Any:
        """One boundary, bound."""
        norms = {one: self.bound or Unit(WIDTH) for one in self.layers[index]}
        return getattr(self.rank.stack.layer(index).bind(**norms), name)

    def stage(self, boundary: Any, name: str, x: Tensor) -> Any:
        """Computes and leaves a stage."""
        part = torch.tanh(x) * (self.number + 1) / 8
        if not hasattr(boundary, "exit") or name == "attention":
            return boundary.finish(part, self.rank.batch)
        with boundary.exit(self.rank.batch) as out:
            self.rank.flags.append((out.fuse_mlp_allreduce, out.defer_moe_finalize))
            if out.defer_moe_finalize and self.hands_on:
                return_ = Handed(part, self.rank.log)
            else:
                return_ = out.reduce_output(part)
            self.tail(out)
        return out.finish(return_)

    def tail(self, out: Any) -> None:
        """What a model adds that every rank holds whole."""

    def end(self, hidden: Any, **options: Any) -> Tensor:
        """The final norm."""
        self.rank.log.append("norm")
        out: Tensor = self.rank.stack.norm(hidden, self.rank.batch, Unit(WIDTH), **options)
        return out


def plain(forward: Forward) -> Tensor:
    """A model that does nothing in between."""
    return forward.end(forward.run(forward.start()))


def forwards(
    runs: Prover,
    topology: str = "tp2",
    model: Model = plain,
    *,
    provider: Callable[[list[str]], Any] | None = None,
    policy: str = "auto",
    fusion: bool = True,
    rows: Sequence[int] = (3,),
    **settings: Any,
) -> tuple[list[Rank], list[list[Call]]]:
    """Runs ``model`` on every rank; what each did, and its collectives."""
    world: World[Rank] = World(runs.subject.topology(topology).spec.tp, seed=5, poison=True)

    def program(groups: SimulatedGroups) -> Rank:
        rank = Rank([])
        rank.stack = runs.subject.package.load(topology, groups, policy=policy, fusion=fusion)
        if provider is not None:
            rank.provider = provider(rank.log)
            rank.stack.attach("kernels", rank.provider)
        rank.batch = rank.stack.batch(rows_per_dp=rows, padding="sum_len", mode="decode")
        layers = runs.subject.plan.stack.layers
        rank.output = model(Forward(rank, layers, groups.rank, **settings))
        return rank

    return world.run(program), world.traces()


def outputs(ranks: Sequence[Rank]) -> Tensor:
    """The outputs of all ranks."""
    return torch.stack([rank.output for rank in ranks])


def census(traces: list[list[Call]]) -> list[list[tuple[str, str, tuple[int, ...]]]]:
    """The collectives of each rank in order, whoever started them."""
    return [[(call.kind, call.label, call.shape) for call in trace] for trace in traces]
