"""Limits and kinds of value that several mappings of a stack file share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

MAX_LAYERS = 10_000
MAX_RANKS = 4_096
MAX_WIDTH = 1 << 20
MAX_ENTRIES = 256
"""How many stages, topologies or operations a stack has, and how long a list may be."""

Size = Annotated[int, Field(ge=1, le=MAX_RANKS)]
Stages = Annotated[list[str], Field(max_length=MAX_ENTRIES)]
Axis = Literal["attn_dp", "attn_cp", "attn_tp"]
Factor = Annotated[float, Field(gt=0, le=1e6)]
