"""What a stack file means: the front end's result and the only thing later phases read.

Every value is resolved: defaults are filled in, sizes are computed and checked, names refer to
something. All sizes are counts of ranks unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from boundaryc.language.spans import Span

StageKind = Literal["attention", "ffn"]
Reduction = Literal["partial", "scoped", "local_tail"]
Accumulate = Literal["fp32", "rounded"]
Role = Literal["enter", "update", "read", "transform"]


@dataclass(frozen=True, slots=True)
class NormSpec:
    """The norm of every stage and of the end of the stack.

    `accumulate` says where the sum that a norm reads is rounded: "fp32" carries it unrounded into
    the norm, "rounded" brings it to the residual's dtype first.
    """

    kind: Literal["rms"]
    eps: float
    accumulate: Accumulate


@dataclass(frozen=True, slots=True)
class OperationDecl:
    """A residual operation that the stack file brings along.

    `call` is "package.module:function". `facts` are what its author claims about it. `params` are
    the names of the values it is given when a layer is bound, in call order. `read_local` and
    `read_whole` are axes: rows the read needs still cut, and rows it needs whole.
    """

    name: str
    role: Role
    call: str
    facts: frozenset[str]
    params: tuple[str, ...]
    read_local: frozenset[str]
    read_whole: frozenset[str]


@dataclass(frozen=True, slots=True)
class Stage:
    """One unit of model computation and how it meets the residual.

    `read` is "norm", "raw" or a custom operation's name; `update` is "add" or a custom one's.
    `order` is the order of tokens in which the stage takes and returns whole rows. With
    `joins_sum` the residual may be added to a partial, which rounds it as the sum is rounded.
    """

    name: str
    kind: StageKind
    sparse: bool
    reduction: Reduction
    read: str
    update: str
    order: Literal["shard", "token"] = "shard"
    joins_sum: bool = False


@dataclass(frozen=True, slots=True)
class MoeSpec:
    """How a MoE uses the ranks: dp * ep * tp is the topology's tp.

    With `all_to_all` the experts' dispatch is inside compute: the stage takes each rank's own rows
    and its output is complete.
    """

    dp: int
    ep: int
    tp: int
    all_to_all: bool


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """The ranks of one pipeline stage: tp = attn_dp * attn_cp * attn_tp.

    `dense_tp` is how many ranks share one dense FFN: 1, `attn_tp` or `tp`. `latency_us` is what a
    collective costs before its first byte, `bandwidth_gb_s` what a rank sends per second.
    """

    name: str
    tp: int
    attn_dp: int
    attn_cp: int
    attn_tp: int
    dense_tp: int
    moe: MoeSpec
    latency_us: float = 10.0
    bandwidth_gb_s: float = 300.0

    @property
    def alpha(self) -> int:
        """Bytes a rank could send in the latency of one collective."""
        return round(self.latency_us * self.bandwidth_gb_s * 1000)


@dataclass(frozen=True, slots=True)
class Stack:
    """A decoder stack, resolved.

    `stages` are in the order of their first use, `topologies` by (tp, attn_dp, name), `operations`
    by name, `variants` in the language's order: reordering keys of the file changes nothing.
    `layers` has one tuple of stage names per layer. `policy_auto` is the reduction policy that
    "auto" stands for. `source` is the name the file was loaded under. `spans` maps a node's path
    ("stages.mlp", "topologies.tp4.moe", "layers") to where it is written; a node that was left out
    has none. Equality and hashing ignore `source` and `spans`: they are not meaning.
    """

    name: str
    hidden_size: int
    norm: NormSpec
    stages: tuple[Stage, ...]
    layers: tuple[tuple[str, ...], ...]
    topologies: tuple[TopologySpec, ...]
    variants: tuple[str, ...]
    operations: tuple[OperationDecl, ...]
    policy_auto: str
    source: str = field(compare=False)
    spans: Mapping[str, Span] = field(compare=False, repr=False)

    def stage(self, name: str) -> Stage:
        """The stage called `name`. Raises KeyError when there is none."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    def span(self, path: str) -> Span | None:
        """Where `path` is written, or the nearest node around it that is; None if nothing is."""
        while path:
            if path in self.spans:
                return self.spans[path]
            path = path.rpartition(".")[0]
        return None
