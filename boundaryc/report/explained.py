"""What `boundaryc explain STACK` says of boundaries, as data: all numbers are the cost model's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """How rows lie on one axis of the topology on both sides of a boundary.

    ``before`` and ``after`` are those of the value, ``residual_before`` and ``residual_after`` of
    the residual: ``cut`` (each part has rows of its own), ``whole`` (all parts have the same rows),
    ``owed`` (whole, and a sum over the parts is outstanding), ``none`` where there is no residual.
    """

    axis: str
    parts: int
    before: str
    after: str
    residual_before: str
    residual_after: str


@dataclass(frozen=True, slots=True)
class Work:
    """An operation, or several that one kernel does.

    ``group`` are the axes over which a collective communicates, empty for what sends nothing, and
    ``ranks`` how many ranks that is. ``sizes`` are ``equal``, or ``one per rank`` where rows are
    cut unevenly. ``bytes_per_token`` is what each rank sends for every token of the batch, on
    average; all ranks of the topology send as many times that.
    """

    operation: str
    group: str
    ranks: int
    sizes: str
    collectives: int
    bytes_per_token: float
    kernel: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way between the same layouts, what it sends, and why it was not taken."""

    collectives: int
    bytes_per_token: float
    operations: tuple[str, ...]
    verdict: str


@dataclass(frozen=True, slots=True)
class Way:
    """What runs at a boundary in some batches; ``when`` says in which, empty for all of them.

    ``next_best`` is None where nothing is sent, or where no other way exists. ``no_scatter`` says
    why the sum that is owed does not end in a reduce-scatter, empty where it does or none is owed.
    """

    when: str
    axes: tuple[Axis, ...]
    works: tuple[Work, ...]
    collectives: int
    bytes_per_token: float
    why: str
    next_best: Alternative | None
    no_scatter: str


@dataclass(frozen=True, slots=True)
class Lever:
    """A line of the stack file that decides something here; ``line`` is 0 where it is not written.

    ``path`` is the node, ``text`` the line as it is, ``effect`` what changing it does.
    """

    path: str
    file: str
    line: int
    text: str
    effect: str


@dataclass(frozen=True, slots=True)
class Crossing:
    """One boundary.

    ``place`` says where it lies. ``ways`` are all its alternatives, those of the batch that was
    asked about.
    """

    boundary: str
    place: str
    words: str
    ways: tuple[Way, ...]
    levers: tuple[Lever, ...]


@dataclass(frozen=True, slots=True)
class Total:
    """What the boundaries that are shown send together, in the batches that ``when`` names.

    ``bytes_per_rank`` is that of one forward of the batch that was asked about, pads included; None
    where none was.
    """

    when: str
    collectives: int
    bytes_per_token: float
    sent: tuple[str, ...]
    bytes_per_rank: float | None


@dataclass(frozen=True, slots=True)
class Asked:
    """The batch that was asked about: tokens by group, the rows of all groups with their pads."""

    tokens: tuple[int, ...]
    padding: str
    mode: str
    variant: str
    rows: int
    even: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """The answer: ``what`` names the part of the stack that was asked about.

    ``few_rows`` is up to how many rows of all groups batches count as few; None where both are
    planned alike. ``left`` is the boundary behind a layer, which counts in the next one and is not
    in ``totals``.
    """

    stack: str
    what: str
    topology: str
    ranks: int
    variant: str
    policy: str
    few_rows: int | None
    batch: Asked | None
    totals: tuple[Total, ...]
    crossings: tuple[Crossing, ...]
    left: str
