"""Places of a stack: what a stream and a boundary compare to see that the stage is the right one.

There is one object for each, so that comparing takes no call, and a trace that compares them
serves all layers alike.
"""

from __future__ import annotations

from functools import cache

ANY = -1
"""The index of the next stage where it is not known, as after a model wrote the stream itself."""


class Place:
    """Before a stage, in batches of one plan; see `before`."""

    __slots__ = ("index", "plan")

    def __init__(self, index: int, plan: int) -> None:
        self.index = index
        self.plan = plan

    def __reduce__(self) -> tuple[object, tuple[int, int]]:
        """A copy is the same place."""
        return before, (self.index, self.plan)


@cache
def before(index: int, plan: int) -> Place:
    """The place before the stage ``index``, in batches of ``plan``."""
    return Place(index, plan)


class Position:
    """Where a stage is in its stack: how many come before it, and its name for people.

    ``extras`` are the names of what the model adds to its output before anything else takes it.
    ``onward`` is the place behind it, by plan; None where what follows has more to look at.
    """

    __slots__ = ("extras", "index", "name", "onward")

    def __init__(
        self,
        index: int,
        name: str,
        extras: tuple[str, ...] = (),
        onward: tuple[Place | None, ...] = (),
    ) -> None:
        self.index = index
        self.name = name
        self.extras = extras
        self.onward = (None,) * len(onward) if extras else onward

    @property
    def position(self) -> Position:
        """Itself, as of a boundary that is there."""
        return self
