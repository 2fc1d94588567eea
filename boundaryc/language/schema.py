"""The shape of a stack file, as pydantic models.

They know keys, types and ranges, nothing about meaning. A key or word that the language has and
this version does not build is listed beside the ones it builds (`planned`, `later`), so that it is
rejected by name and not as a spelling mistake. Nothing but this package sees these classes.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

MAX_LAYERS = 10_000
MAX_RANKS = 4_096
MAX_WIDTH = 1 << 20
MAX_ENTRIES = 256
"""How many stages, topologies or operations a stack has, and how long a list may be."""

Size = Annotated[int, Field(ge=1, le=MAX_RANKS)]
Stages = Annotated[list[str], Field(max_length=MAX_ENTRIES)]
Axis = Literal["attn_dp", "attn_cp", "attn_tp"]
Fact = Literal[
    "plain_add",
    "plain_norm",
    "row_wise",
    "linear",
    "at_producer",
    "outlives_producer",
    "joins_sum",
]


def later(*words: str) -> dict[str, Any]:
    """Words that a field will accept one day; kept out of the JSON schema."""
    return {"planned": list(words)}


class Shape(BaseModel):
    """Base of all: no unknown keys, no coercion, no changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    planned: ClassVar[frozenset[str]] = frozenset()

    @field_validator("*", mode="before")
    @classmethod
    def _not_empty(cls, value: object) -> object:
        """Refuse a key without a value, which a field that may be left out would accept."""
        if value is None:
            raise PydanticCustomError("empty", "nothing is written here")
        return value


class NormShape(Shape):
    """`norm`: what the stages and the end of the stack normalise with."""

    planned: ClassVar[frozenset[str]] = frozenset({"weight_offset", "bias"})

    kind: Literal["rms"] = Field(
        description="the norm's formula", json_schema_extra=later("layer", "none")
    )
    eps: float = Field(gt=0, lt=1, description="added to the mean square, like 1.0e-6")
    accumulate: Literal["fp32", "rounded"] = Field(
        default="fp32", description="whether the sum enters the norm unrounded (fp32) or rounded"
    )


class StageShape(Shape):
    """One entry of `stages`."""

    planned: ClassVar[frozenset[str]] = frozenset(
        {"adds", "defer", "finalize", "gathers_tp_input", "latent_input", "norm"}
        | {"post_residual_addition", "quantize", "quantized_sum", "scale", "transform"}
    )

    kind: Literal["attention", "ffn"] = Field(
        description="what the stage computes", json_schema_extra=later("mixer")
    )
    sparse: bool = Field(default=False, description="whether an ffn is a MoE")
    reduction: Literal["partial", "scoped", "local_tail"] | None = Field(
        default=None, description="who completes the stage's sum"
    )
    read: str = Field(default="norm", description="how the stage reads the residual")
    update: str = Field(default="add", description="how its output joins the residual")
    order: Literal["shard", "token"] = Field(
        default="shard",
        description="the order in which an attention wants its rows under context parallelism",
    )
    joins_sum: Literal["allow", "never"] = Field(
        default="never", description="whether one rank may add the residual before the sum"
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

    planned: ClassVar[frozenset[str]] = frozenset({"variable_scatter"})

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


class OperationShape(Shape):
    """One entry of `operations`."""

    planned: ClassVar[frozenset[str]] = frozenset({"state", "streams"})

    role: Literal["update", "read"] = Field(
        description="where the operation is used", json_schema_extra=later("enter", "transform")
    )
    call: str = Field(description="package.module:function")
    facts: list[Fact] = Field(
        default=[],
        max_length=MAX_ENTRIES,
        description="what the operation promises",
        json_schema_extra=later("writes_stream", "rewrites_residual", "quantized_sum", "per_call"),
    )
    params: list[str] = Field(
        default=[], max_length=MAX_ENTRIES, description="what it is given, in call order"
    )
    read_local: list[Axis] = Field(
        default=[], max_length=MAX_ENTRIES, description="axes its rows must still be cut over"
    )
    read_whole: list[Axis] = Field(
        default=[], max_length=MAX_ENTRIES, description="axes its rows must be whole over"
    )


class PolicyShape(Shape):
    """`policy`: which reduction policy a name stands for."""

    planned: ClassVar[frozenset[str]] = frozenset({"drafts"})

    auto: Literal["ar", "rs", "rsv", "rs+rsv"] = Field(
        default="rs+rsv", description="what `auto` means for this stack"
    )


Variant = Literal["ordinary", "context_parallel", "input_scattered", "sequence_parallel"]


class StackShape(Shape):
    """A whole file."""

    planned: ClassVar[frozenset[str]] = frozenset(
        {"branch", "captures", "drafts", "extras", "fusion", "lora", "overlap", "pipeline"}
        | {"residual", "residual_dtype", "segments", "terminal"}
    )

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
    policy: PolicyShape = Field(
        default=PolicyShape(), description="which reduction policy `auto` stands for"
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


def _strip(annotation: object) -> object:
    """An annotation without `| None` and without what Annotated adds."""
    if get_origin(annotation) is Annotated:
        return _strip(get_args(annotation)[0])
    some = [arm for arm in get_args(annotation) if arm is not type(None)]
    optional = type(None) in get_args(annotation) and len(some) == 1
    return _strip(some[0]) if optional else annotation
