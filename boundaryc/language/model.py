"""What a stack file means: the front end's result and the only thing later phases read.

Every value is resolved: defaults are filled in, sizes are computed and checked, names refer to
something. All sizes are counts of ranks unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from boundaryc.language.spans import Span

StageKind = Literal["attention", "mixer", "ffn"]
Reduction = Literal["partial", "scoped", "local_tail"]
Accumulate = Literal["fp32", "rounded"]
Role = Literal["enter", "update", "read", "transform"]

BUILTIN = "builtin"
"""The fusion provider that is no engine's: the stack's own kernels finish what a MoE hands on."""

SYMMETRIC = "symmetric_memory"
"""The fusion provider that the runtime has: generated kernels over symmetric memory."""

QUIET = MappingProxyType({"quiet": True})
"""Marks a field that `canonical` leaves out at its default.

A stack that does not use what a later version added keeps its text, and so its generated code.
"""


@dataclass(frozen=True, slots=True)
class NormSpec:
    """A norm: that of the stack, or one stage's own.

    `accumulate` says where the sum that a norm reads is rounded: "fp32" carries it unrounded into
    the norm, "rounded" brings it to the residual's dtype first. `weight_offset` is added to the
    weight, in float32. A "layer" norm subtracts the mean, and may have a `bias`; with "none" what
    is read is the residual, and nothing else has a meaning.
    """

    kind: Literal["rms", "layer", "none"]
    eps: float
    accumulate: Accumulate
    weight_offset: float = field(default=0.0, metadata=QUIET)
    bias: bool = field(default=False, metadata=QUIET)


@dataclass(frozen=True, slots=True)
class OperationDecl:
    """A residual operation that the stack file brings along.

    `call` is "package.module:function". `facts` are what its author claims about it. `params` are
    the names of the values it is given when a layer is bound, in call order. `read_local` and
    `read_whole` are axes: rows the read needs still cut, and rows it needs whole. `state` is what a
    read keeps for the update of its stage, by name with the columns of each; `streams` is how many
    streams the residual has that it works on.
    """

    name: str
    role: Role
    call: str
    facts: frozenset[str]
    params: tuple[str, ...]
    read_local: frozenset[str]
    read_whole: frozenset[str]
    state: tuple[tuple[str, int], ...] = field(default=(), metadata=QUIET)
    streams: int = field(default=1, metadata=QUIET)


@dataclass(frozen=True, slots=True)
class Residual:
    """The operations of a residual that is not the plain one of a single stream.

    `enter` is the name of the operation that makes it of the stack's input, `leave` that of the
    final read. `iterations` and `eps` say how hyper-connections balance their mixing matrices.
    """

    kind: Literal["hyper_connections", "custom"]
    streams: int
    enter: str
    leave: str
    iterations: int
    eps: float


@dataclass(frozen=True, slots=True)
class Transform:
    """Work on a stage's output before the update.

    `name` is "scale", "norm" or a custom transform's; `scale` is the factor of the first, else
    None. `before_reduce_scatter` allows it on a partial; only a linear transform has it.
    """

    name: str
    scale: float | None
    before_reduce_scatter: bool


@dataclass(frozen=True, slots=True)
class Quantize:
    """A read that returns values and scales.

    `scale` says what has a scale of its own: each token, each group of 128 numbers of a token, or
    the model ("static"). With `keep` the unquantised input is returned too.
    """

    format: Literal["fp8", "int8"]
    scale: Literal["token", "group128", "static"]
    keep: bool

    @property
    def params(self) -> tuple[str, ...]:
        """What the model binds for it, beside what the read itself takes."""
        return ("input_scale",) if self.scale == "static" else ()


@dataclass(frozen=True, slots=True)
class Additive:
    """A replicated term of a stage's output, in which it counts once.

    Who adds it: "rank0", the first rank of the sum; "divided", every rank its share; "after_sum",
    every rank, once the sum is complete.
    """

    name: str
    multiplicity: Literal["rank0", "divided", "after_sum"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One unit of model computation and how it meets the residual.

    `read` is "norm", "raw", "hyper_read" or a custom operation's name; `update` is "add",
    "scaled_add", "hyper_update" or a custom one's. `order` is the order of tokens in which the
    stage takes and returns whole rows.
    With `joins_sum` the residual may be added to a partial, which rounds it as the sum is rounded.
    `update_scale` is the factor of "scaled_add", else None. `before_gather` and `needs_every_row`
    are axes over which the rows of a built-in read are still cut, or are whole; a custom read says
    so itself. `quantized_sum` is the format in which the sum of its output may travel in a prefill,
    None where it may not. With `post_addition` the model adds a tensor between update and read.
    `additive` is ordered by name. Without `defer` a scoped sum is never left to the next stage.
    With `latent_input` the model makes a latent of the input, which is gathered where the input is
    not. Without `gathers_tp_input` a token mixer takes all rows of its attention-TP ranks in every
    batch; else it gathers, wherever that suits it, what a batch scatters over them. `norm` is its
    own norm, of what it reads and of its output; None where it has the stack's. A MoE whose
    `finalize` is "deferred" may hand on output that it has not finalised.
    """

    name: str
    kind: StageKind
    sparse: bool
    reduction: Reduction
    read: str
    update: str
    order: Literal["shard", "token"] = "shard"
    joins_sum: bool = False
    update_scale: float | None = field(default=None, metadata=QUIET)
    transform: Transform | None = field(default=None, metadata=QUIET)
    before_gather: frozenset[str] = field(default=frozenset(), metadata=QUIET)
    needs_every_row: frozenset[str] = field(default=frozenset(), metadata=QUIET)
    quantize: Quantize | None = field(default=None, metadata=QUIET)
    quantized_sum: Literal["fp8", "int8"] | None = field(default=None, metadata=QUIET)
    post_addition: bool = field(default=False, metadata=QUIET)
    additive: tuple[Additive, ...] = field(default=(), metadata=QUIET)
    defer: bool = field(default=True, metadata=QUIET)
    latent_input: bool = field(default=False, metadata=QUIET)
    finalize: Literal["here", "deferred"] = field(default="here", metadata=QUIET)
    gathers_tp_input: bool = field(default=True, metadata=QUIET)
    norm: NormSpec | None = field(default=None, metadata=QUIET)


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
    collective costs before its first byte, `bandwidth_gb_s` what a rank sends per second. Without
    `variable_scatter` groups can reduce-scatter equal sizes only.
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
    variable_scatter: bool = field(default=True, metadata=QUIET)

    @property
    def alpha(self) -> int:
        """Bytes a rank could send in the latency of one collective."""
        return round(self.latency_us * self.bandwidth_gb_s * 1000)


@dataclass(frozen=True, slots=True)
class Capture:
    """A residual that is kept for other parts of the model.

    `layers` ascend. "after" a layer is the residual that its output has updated, which is the one
    "before" the next layer; after the last layer it is what the final norm reads. `rows` are those
    of the producer or those of the input that is read. One that `travels` goes on to later pipeline
    stages; others stay on the ranks that took them.
    """

    name: str
    layers: tuple[int, ...]
    where: Literal["after", "before"]
    rows: Literal["producer", "input"]
    travels: bool = field(default=False, metadata=QUIET)


@dataclass(frozen=True, slots=True)
class Extra:
    """A contribution of the model's own that is added once after each of `layers`, which ascend.

    It is added to the output of the layer's last stage before its update, or to the residual where
    that update runs at the producer.
    """

    name: str
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """Stages beside another one, in every layer that has it.

    The first of `stages` computes on the input that was read for `beside`, the output of the last
    is added to that of `beside`, whose update adds both. With `merges_sum` two outputs that owe the
    same sum may be added before it, which rounds the addition as the sum is rounded.
    """

    beside: str
    stages: tuple[str, ...]
    merges_sum: bool


@dataclass(frozen=True, slots=True)
class Terminal:
    """How a stack ends: in its final norm, or without one, as what its last update has written.

    With `finalize` "deferred" the final norm may finish what the last stage has not finalised.
    """

    norm: bool = True
    finalize: Literal["here", "deferred"] = "here"


TERMINAL = Terminal()
"""The end of a stack that says nothing about it."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A decoder stack, resolved.

    `norm` is that of the end of the stack and of every stage without its own. `stages` are in the
    order of their first use, `topologies` by (tp, attn_dp, name), `operations` by name, `variants`
    in the language's order: reordering keys of the file changes nothing.
    `layers` has one tuple of stage names per layer, which may be empty; the stages of a branch
    follow the one that they are beside. `policy_auto` is the reduction policy that "auto" stands
    for. `source` is the name the file was loaded under. `spans` maps a node's path ("stages.mlp",
    "topologies.tp4.moe", "layers") to where it is written; a node that was left out has none.
    Equality and hashing ignore `source` and `spans`: they are not meaning. `captures`, `extras` and
    `drafts` are ordered by name. `entry` says whether what enters the stack is complete. `pipeline`
    is what the payload of cuts between layers is, None where there are none; with `segments` a
    forward may stop between layers and go on later. With `two_batch` a batch may be split into two
    that overlap, with `lora` every stage's input says which tokens its rows are. `residual` is None
    for the plain one of a single stream. `fusion` names the fusion providers in order, `BUILTIN`
    perhaps among them. A draft is called `<stack>_<draft>`, has only the stages and operations that
    it uses, an end of its own, no captures, no extras, no cuts, no segments and no drafts, and its
    paths are those of a stack file of its own.
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
    captures: tuple[Capture, ...] = field(default=(), metadata=QUIET)
    extras: tuple[Extra, ...] = field(default=(), metadata=QUIET)
    drafts: tuple[Stack, ...] = field(default=(), metadata=QUIET)
    branch: Branch | None = field(default=None, metadata=QUIET)
    entry: Literal["complete", "partial"] = field(default="complete", metadata=QUIET)
    pipeline: Literal["partial", "complete"] | None = field(default=None, metadata=QUIET)
    segments: bool = field(default=False, metadata=QUIET)
    two_batch: bool = field(default=False, metadata=QUIET)
    lora: bool = field(default=False, metadata=QUIET)
    residual: Residual | None = field(default=None, metadata=QUIET)
    fusion: tuple[str, ...] = field(default=(), metadata=QUIET)
    terminal: Terminal = field(default=TERMINAL, metadata=QUIET)

    @property
    def streams(self) -> int:
        """How many streams the residual of a token has."""
        return self.residual.streams if self.residual else 1

    @property
    def family(self) -> tuple[Stack, ...]:
        """All stacks of the file, each a package of its own: this one, then its drafts."""
        return (self, *self.drafts)

    def stage(self, name: str) -> Stage:
        """The stage called `name`. Raises KeyError when there is none."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    def norm_of(self, name: str) -> NormSpec:
        """The norm of the stage called `name`, and of the end of the stack if it is no stage."""
        own = (stage.norm for stage in self.stages if stage.name == name)
        return next(own, None) or self.norm

    def span(self, path: str) -> Span | None:
        """Where `path` is written, or the nearest node around it that is; None if nothing is."""
        while path:
            if path in self.spans:
                return self.spans[path]
            path = path.rpartition(".")[0]
        return None
