"""What all mappings of a stack file have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError


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
