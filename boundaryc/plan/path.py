"""A way across a boundary, before it is known what it costs on a mesh, and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from boundaryc.plan.cost import Cost
from boundaryc.plan.ops import AllGather, Capture, Operation, ReduceScatter, ResidualGather
from boundaryc.plan.state import EdgeFacts
from boundaryc.plan.transitions import Step

Sized = ReduceScatter | AllGather | ResidualGather | Capture
"""Operations that take sizes where rows are cut unevenly."""


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """The operations of a boundary in order, with the numbers of their prices.

    What is often asked of these is kept beside them: ``sized`` are the places of those that take
    sizes or might, with the atoms that they move over; ``scatters`` the atoms over which some sum
    ends in a reduce-scatter; ``fixed`` those of which some operation takes all parts to be as long.
    """

    ops: tuple[Operation, ...]
    prices: tuple[int, ...] = ()
    sized: tuple[tuple[int, int], ...] = field(init=False, repr=False)
    scatters: int = field(init=False, repr=False)
    fixed: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sized: list[tuple[int, int]] = []
        scatters = fixed = 0
        for place, op in enumerate(self.ops):
            if isinstance(op, (ReduceScatter, AllGather, ResidualGather, Capture)):
                axes = op.gather if isinstance(op, Capture) else op.axes
                sized.append((place, axes))
                fixed |= 0 if op.variable else axes
                scatters |= axes if isinstance(op, ReduceScatter) else 0
        object.__setattr__(self, "sized", tuple(sized))
        object.__setattr__(self, "scatters", scatters)
        object.__setattr__(self, "fixed", fixed)

    @staticmethod
    def of(steps: Iterable[Step]) -> Way:
        """The way that takes these steps."""
        taken = tuple(steps)
        return Way(tuple([step.op for step in taken]), tuple([step.price for step in taken]))

    def rank(self, ranks: Mapping[int, int]) -> int:
        """What it ranks as where its prices rank so."""
        return sum([ranks[price] for price in self.prices])


@dataclass(frozen=True, slots=True)
class Path:
    """A finished boundary: its operations in order, and what they cost.

    ``sized``, ``scatters`` and ``fixed`` are what they are of a `Way`.
    """

    ops: tuple[Operation, ...]
    cost: Cost
    sized: tuple[tuple[int, int], ...] = field(repr=False, compare=False)
    scatters: int = field(repr=False, compare=False)
    fixed: int = field(repr=False, compare=False)

    @staticmethod
    def of(way: Way, cost: Cost) -> Path:
        """A way at what it costs."""
        return Path(way.ops, cost, way.sized, way.scatters, way.fixed)


def fit(path: Path, facts: EdgeFacts) -> Path:
    """The same path for a batch with other evenness: only the form of its moves may change.

    A move costs the same with fixed and with variable sizes, so a shortest path stays one as long
    as the atoms that may be scattered over are the same.
    """
    fitted: list[Operation] | None = None
    for place, axes in path.sized:
        op = path.ops[place]
        assert isinstance(op, Sized)
        if op.variable is not facts.variable(axes, scatter=isinstance(op, ReduceScatter)):
            fitted = fitted or list(path.ops)
            fitted[place] = _other_form(op)
    return path if fitted is None else Path.of(Way(tuple(fitted)), path.cost)


@lru_cache(maxsize=1024)
def _other_form(op: Sized) -> Sized:
    """The move with sizes instead of without, or the reverse: one object for all plans."""
    return replace(op, variable=not op.variable)
