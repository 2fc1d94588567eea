"""What all shapes of a stack file share: the base class, and limits that several keep."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

MAX_LAYERS = 10_000
MAX_RANKS = 4_096
MAX_WIDTH = 1 << 20
SMALLEST = 1.2e-38
"""Smaller numbers are subnormal in float32, in which norms are computed, or zero."""
MAX_ENTRIES = 256
"""How many stages, topologies or operations a stack has, and how long a list may be."""

Size = Annotated[int, Field(ge=1, le=MAX_RANKS)]
Stages = Annotated[list[str], Field(max_length=MAX_ENTRIES)]
Axis = Literal["attn_dp", "attn_cp", "attn_tp"]
Factor = Annotated[float, Field(gt=0, le=1e6)]


class Shape(BaseModel):
    """Base of all: no unknown keys, no coercion, no changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @classmethod
    def word(cls) -> str:
        """What `boundaryc.language.planned` calls mappings of this shape."""
        return cls.__name__.removesuffix("Shape").lower()

    @field_validator("*", mode="before")
    @classmethod
    def _not_empty(cls, value: object) -> object:
        """Refuse a key without a value, which a field that may be left out would accept."""
        if value is None:
            raise PydanticCustomError("empty", "nothing is written here")
        return value
