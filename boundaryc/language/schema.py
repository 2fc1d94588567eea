"""The shape of a stack file, as pydantic models.

They know keys, types and ranges, nothing about meaning, and nothing about what is built: see
`boundaryc.language.planned`. Nothing but this package sees these classes.
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BeforeValidator, Discriminator, Field, Tag

from boundaryc.language.base_shape import Shape
from boundaryc.language.fusion_shapes import Finalize, FusionShape, TerminalShape
from boundaryc.language.layer_shapes import CaptureShape, ExtraShape
from boundaryc.language.limits import MAX_ENTRIES, MAX_LAYERS, MAX_WIDTH, Axis, Factor, Size, Stages
from boundaryc.language.norm_shape import NormShape
from boundaryc.language.operation_shapes import OperationShape, ResidualShape


class ScaledAddShape(Shape):
    """An `update` with a factor."""

    scaled_add: Factor = Field(description="the factor of the output")


class ScaleShape(Shape):
    """A `transform` with a factor."""

    scale: Factor = Field(description="the factor of the output")


def _word_or_factor(value: object) -> str:
    return "factor" if isinstance(value, dict | Shape) else "word"


TAGS = frozenset({"word", "factor"})
"""What pydantic puts into the places of errors beside what is in the file."""


class QuantizeShape(Shape):
    """`quantize` of a stage."""

    format: Literal["fp8", "int8"] = Field(description="the type of the values")
    scale: Literal["token", "group128", "static"] = Field(
        description="what has a scale of its own: a token, 128 numbers of it, or the model"
    )
    keep: bool = Field(default=False, description="whether the unquantised input comes as well")


class StageShape(Shape):
    """One entry of `stages`."""

    kind: Literal["attention", "mixer", "ffn"] = Field(description="what the stage computes")
    sparse: bool = Field(default=False, description="whether an ffn is a MoE")
    reduction: Literal["partial", "scoped", "local_tail"] | None = Field(
        default=None, description="who completes the stage's sum"
    )
    read: str = Field(default="norm", description="how the stage reads the residual")
    update: Annotated[
        Annotated[str, Tag("word")] | Annotated[ScaledAddShape, Tag("factor")],
        Discriminator(_word_or_factor),
    ] = Field(default="add", description="how its output joins the residual")
    order: Literal["shard", "token"] = Field(
        default="shard",
        description="the order in which an attention wants its rows under context parallelism",
    )
    joins_sum: Literal["allow", "never"] = Field(
        default="never", description="whether one rank may add the residual before the sum"
    )
    transform: (
        Annotated[
            Annotated[str, Tag("word")] | Annotated[ScaleShape, Tag("factor")],
            Discriminator(_word_or_factor),
        ]
        | None
    ) = Field(default=None, description="work on the output before the update, like {scale: 0.5}")
    before_reduce_scatter: bool = Field(
        default=False,
        description="whether a linear transform may run on the partial, before it is scattered",
    )
    before_gather: list[Axis] = Field(
        default=[],
        max_length=MAX_ENTRIES,
        description="axes that the rows of a built-in read must still be cut over",
    )
    needs_every_row: list[Axis] = Field(
        default=[],
        max_length=MAX_ENTRIES,
        description="axes that the rows of a built-in read must be whole over",
    )
    norm: NormShape | None = Field(default=None, description="its own norm, if not the stack's")
    quantize: QuantizeShape | None = Field(
        default=None, description="the input as values and scales, like {format: fp8, scale: token}"
    )
    quantized_sum: Literal["fp8", "int8"] | None = Field(
        default=None, description="as what the sum of a prefill may travel, if not in full"
    )
    post_addition: bool = Field(
        default=False, description="whether the model adds a tensor after the update"
    )
    additive: dict[str, Literal["rank0", "divided", "after_sum"]] = Field(
        default={},
        max_length=MAX_ENTRIES,
        description="replicated terms of the output by name, and which ranks add them",
    )
    latent_input: bool = Field(
        default=False, description="whether an attention takes its latent input from the model"
    )
    defer: bool = Field(
        default=True, description="whether a scoped sum may be left to the next stage"
    )
    gathers_tp_input: bool = Field(
        default=True, description="whether a token mixer gathers scattered rows of its input itself"
    )
    finalize: Finalize = Field(
        default="here", description="whether a MoE may hand on output that it has not finalised"
    )


class LayersShape(Shape):
    """`layers`, in either form: counted or as a pattern."""

    count: int | None = Field(
        default=None, ge=1, le=MAX_LAYERS, description="how many layers the stack has"
    )
    default: Stages | None = Field(
        default=None, description="the stages of every layer that `at` does not name"
    )
    at: dict[str, Stages] = Field(
        default={},
        max_length=MAX_LAYERS,
        description='stages by layer index (0) or inclusive range ("3-5")',
    )
    pattern: str | None = Field(
        default=None, description="one character per layer", min_length=1, max_length=MAX_LAYERS
    )
    stages: dict[str, Stages] | None = Field(
        default=None,
        max_length=MAX_ENTRIES,
        description="what each character of the pattern stands for",
    )


class MoeShape(Shape):
    """`moe` of a topology."""

    dp: Size = Field(default=1, description="groups of ranks with tokens of their own")
    ep: Size = Field(default=1, description="ranks the experts are spread over")
    tp: Size | None = Field(default=None, description="ranks that share one expert")
    all_to_all: bool = Field(default=False, description="whether dispatch is inside compute")


def _no_lookalike(value: object) -> object:
    """Keep `true` and `1.0` from passing for 1, as they do where a literal is compared by `==`."""
    return str(value).lower() if isinstance(value, bool | float) else value


class LinkShape(Shape):
    """`link` of a topology: what its ranks send through."""

    latency_us: float = Field(
        default=10.0, ge=0, le=1e6, description="microseconds before a collective's first byte"
    )
    bandwidth_gb_s: float = Field(
        default=300.0, ge=0.001, le=1e6, description="gigabytes that one rank sends per second"
    )


class TopologyShape(Shape):
    """One entry of `topologies`."""

    tp: Size = Field(description="ranks of one pipeline stage")
    attn_dp: Size = Field(default=1, description="attention data-parallel groups")
    attn_cp: Size = Field(default=1, description="context-parallel shards of a token set")
    dense_tp: Annotated[Literal[1, "attn_tp", "tp"], BeforeValidator(_no_lookalike)] = Field(
        default="tp", description="ranks that share one dense ffn"
    )
    moe: MoeShape | None = Field(default=None, description="how a MoE uses the ranks")
    link: LinkShape = Field(
        default=LinkShape(), description="decides between fewer collectives and fewer bytes"
    )
    variable_scatter: bool = Field(
        default=True, description="whether groups can reduce-scatter unequal sizes"
    )


class PolicyShape(Shape):
    """`policy`: which reduction policy a name stands for."""

    auto: Literal["ar", "rs", "rsv", "rs+rsv"] = Field(
        default="rs+rsv", description="what `auto` means for this stack"
    )


class BranchShape(Shape):
    """`branch`: stages beside another one."""

    beside: str = Field(description="the stage whose input the branch takes, and which it joins")
    stages: list[str] = Field(
        min_length=1, max_length=MAX_ENTRIES, description="the stages of the branch, in order"
    )
    merges_sum: Literal["allow", "never"] = Field(
        default="never",
        description="whether two outputs that owe the same sum may be added before it",
    )


class DraftShape(Shape):
    """One entry of `drafts`."""

    layers: LayersShape = Field(description="which stages each layer of the draft has")
    stages: dict[str, StageShape] = Field(
        default={},
        max_length=MAX_ENTRIES,
        description="stages of the draft alone, also in place of the main stack's",
    )
    entry: Literal["complete", "partial"] = Field(
        default="complete", description="whether what enters the draft is still to be summed"
    )
    policy: PolicyShape | None = Field(
        default=None, description="what `auto` means for the draft, if not the same"
    )
    terminal: TerminalShape = Field(
        default=TerminalShape(), description="how the draft ends, like {norm: false}"
    )


class OverlapShape(Shape):
    """`overlap` of the stack."""

    two_batch: bool = Field(description="whether a batch may be split into two that interleave")


class PipelineShape(Shape):
    """`pipeline`: cuts between layers."""

    payload: Literal["partial", "complete"] = Field(
        default="partial", description="whether a sum may be owed while its parts travel"
    )


Variant = Literal["ordinary", "context_parallel", "input_scattered", "sequence_parallel"]


class StackShape(Shape):
    """A whole file."""

    boundaryc: Literal[1] = Field(description="the version of the language: 1")
    stack: str = Field(description="the stack's name, also of the generated package")
    hidden_size: int = Field(ge=1, le=MAX_WIDTH, description="width of the residual")
    norm: NormShape = Field(description="the norm, like {kind: rms, eps: 1.0e-6}")
    stages: dict[str, StageShape] = Field(
        min_length=1, max_length=MAX_ENTRIES, description="the compute stages by name"
    )
    layers: LayersShape = Field(description="which stages each layer has")
    topologies: dict[str, TopologyShape] = Field(
        min_length=1,
        max_length=MAX_ENTRIES,
        description="the sets of ranks to compile for, by name",
    )
    variants: list[Variant] = Field(
        default=["ordinary"],
        min_length=1,
        max_length=MAX_ENTRIES,
        description="the kinds of batch",
    )
    operations: dict[str, OperationShape] = Field(
        default={},
        max_length=MAX_ENTRIES,
        description="the stack's own residual operations by name",
    )
    residual: ResidualShape | None = Field(
        default=None,
        description="operations for all stages, like {kind: hyper_connections, streams: 4}",
    )
    policy: PolicyShape = Field(
        default=PolicyShape(), description="which reduction policy `auto` stands for"
    )
    captures: dict[str, CaptureShape] = Field(
        default={},
        max_length=MAX_ENTRIES,
        description="residuals to keep by name, like {eagle3: {after: [2, 20]}}",
    )
    extras: dict[str, ExtraShape] = Field(
        default={},
        max_length=MAX_ENTRIES,
        description='what the model adds between layers, like {deepstack: {after: ["0-2"]}}',
    )
    drafts: dict[str, DraftShape] = Field(
        default={},
        max_length=MAX_ENTRIES,
        description="draft stacks by name; they inherit what they do not say",
    )
    pipeline: PipelineShape | None = Field(
        default=None, description="what travels between pipeline stages, like {payload: partial}"
    )
    segments: bool = Field(
        default=False, description="whether a forward may run some layers now and others later"
    )
    branch: BranchShape | None = Field(
        default=None,
        description="stages beside another one, like {beside: experts, stages: [mlp]}",
    )
    terminal: TerminalShape = Field(
        default=TerminalShape(), description="how the stack ends, like {norm: false}"
    )
    fusion: FusionShape | None = Field(
        default=None, description="fused sums, like {providers: [flashinfer]}"
    )
    overlap: OverlapShape | None = Field(
        default=None, description="two-batch overlap, like {two_batch: true}"
    )
    lora: bool = Field(
        default=False, description="whether each stage's input says which tokens its rows are"
    )


def shape_at(path: tuple[str | int, ...]) -> type[Shape] | None:
    """The model of the mapping at `path`; None where a mapping has free keys or is no mapping."""
    here: object = StackShape
    for part in path:
        if isinstance(here, type) and issubclass(here, Shape):
            field = here.model_fields.get(str(part))
            here = _strip(field.annotation) if field else None
        elif get_origin(here) in (dict, list):
            here = _strip(get_args(here)[-1])
        else:
            return None
    return here if isinstance(here, type) and issubclass(here, Shape) else None


def plain_path(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The place of an error of pydantic's as a path of the file."""
    path: tuple[str | int, ...] = ()
    for index, part in enumerate(loc):
        alternative = index and part in TAGS and loc[index - 1] in ("update", "transform")
        if alternative and path[-1] == loc[index - 1] and shape_at(path[:-1]) is StageShape:
            continue
        path = (*path, part)
    return path


def _strip(annotation: object) -> object:
    """An annotation without what Annotated adds; of alternatives the one that has keys, if any."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _strip(get_args(annotation)[0])
    if origin not in (Union, UnionType):
        return annotation
    some = [_strip(arm) for arm in get_args(annotation) if arm is not type(None)]
    shapes = [arm for arm in some if isinstance(arm, type) and issubclass(arm, Shape)]
    return (shapes or some)[0]
