"""The shapes of what happens at certain layers: `captures` and `extras`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from boundaryc.language.base_shape import Shape
from boundaryc.language.limits import MAX_ENTRIES, MAX_LAYERS


def _layer(value: object) -> object:
    """Refuse what is neither an index nor a range, in one error."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("expected", "{what}", {"what": 'a layer, like 2 or "2-5"'})
    return value


Index = Annotated[
    int | str,
    BeforeValidator(_layer),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "integer", "minimum": 0, "maximum": MAX_LAYERS - 1},
                {"type": "string", "pattern": "^(0|[1-9][0-9]*)-[1-9][0-9]*$"},
            ]
        }
    ),
]
Layers = Annotated[list[Index], Field(min_length=1, max_length=MAX_ENTRIES)]


class CaptureShape(Shape):
    """One entry of `captures`."""

    after: Layers | None = Field(
        default=None, description='layers whose result is kept, like [2, "5-7"]'
    )
    before: Layers | None = Field(
        default=None, description='layers whose start is kept, like [2, "5-7"]'
    )
    rows: Literal["producer", "input"] = Field(
        default="producer", description="on whose rows: the producer's or those of the next input"
    )
    travels: bool = Field(
        default=False, description="whether it goes on to later pipeline stages with the stream"
    )


class ExtraShape(Shape):
    """One entry of `extras`."""

    after: Layers = Field(description='layers to whose result it is added, like [2, "5-7"]')
