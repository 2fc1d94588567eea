"""What stands for the parameters of a boundary that was not given any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from boundaryc.runtime.errors import BoundaryError


class Unbound(tuple[Any, ...]):
    """No parameters, of a layer that has some: whoever takes them is told that they lack.

    Generated code and boundaries unpack parameters where they use them, so that finding out costs
    a bound boundary nothing. ``stage`` is the place of its stage, for people.
    """

    stage: str

    def __new__(cls, stage: str) -> Unbound:
        """Those of one boundary."""
        made = super().__new__(cls)
        made.stage = stage
        return made

    def __iter__(self) -> Iterator[Any]:
        """BoundaryError."""
        raise BoundaryError(
            f"the boundary of {self.stage} is not bound: call `bind` of its layer with the "
            "parameters of that layer, as in `stack.layer(index).bind(...)`, and use the "
            "boundaries of what it returns"
        )

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Unbound, (self.stage,)
