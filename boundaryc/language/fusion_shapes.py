"""The shapes of `fusion` and `terminal`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boundaryc.language.base_shape import Shape

MAX_PROVIDERS = 16

Finalize = Literal["here", "deferred"]


class FusionShape(Shape):
    """`fusion`: who may complete sums together with the add and the norm behind them."""

    providers: list[str] = Field(
        min_length=1,
        max_length=MAX_PROVIDERS,
        description="names of fusion providers, in the order in which they are tried",
    )


class TerminalShape(Shape):
    """`terminal`: how a stack ends."""

    norm: bool = Field(default=True, description="whether the stack ends in its final norm")
    finalize: Finalize = Field(
        default="here", description="whether the final norm may finish the output of the last MoE"
    )
