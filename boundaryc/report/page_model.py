"""What `boundaryc report` shows, as data: `explain`, `graph` and `cost` of a whole stack at once.

Plans of several topologies, variants and policies have most of what they say in common, so that is
kept in lists and referred to by its place in them: every list says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.report.costs import Costs
from boundaryc.report.drawing import Drawing
from boundaryc.report.explained import Lever, Way


@dataclass(frozen=True, slots=True)
class ReportedAxis:
    """An axis of a topology and how many parts it has."""

    axis: str
    parts: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A batch variant that has no meaning on a topology, and why."""

    variant: str
    why: str


@dataclass(frozen=True, slots=True)
class ReportedTopology:
    """A topology; ``line`` is that of the stack file on which it begins."""

    name: str
    ranks: int
    line: int
    axes: tuple[ReportedAxis, ...]
    variants: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class ReportedWay:
    """What runs at a boundary in some batches; ``sends`` are its collectives, empty for none."""

    sends: str
    way: Way


@dataclass(frozen=True, slots=True)
class ReportedCrossing:
    """A boundary under one plan. ``ways`` and ``levers`` are places in the report's lists.

    ``functions`` has, for each of the ways, what it runs as in the module of the variant.
    """

    boundary: str
    place: str
    words: str
    ways: tuple[int, ...]
    functions: tuple[tuple[str, ...], ...]
    levers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportedBatch:
    """A batch of so many tokens, dealt out evenly; ``rows`` are those with pads.

    ``runs`` has, for each boundary, which of its ways runs, by its place in the crossing's.
    """

    tokens: int
    rows: int
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportedPlan:
    """One topology, variant and policy.

    ``crossings`` has, for each boundary of the stack, its place in the report's list. ``few_rows``
    is up to how many rows batches count as few; None where both are planned alike. ``batches`` are
    those of the report's numbers of tokens that such a batch can have.
    """

    topology: str
    variant: str
    policy: str
    few_rows: int | None
    crossings: tuple[int, ...]
    batches: tuple[ReportedBatch, ...]


@dataclass(frozen=True, slots=True)
class ReportedOrigin:
    """What a statement comes from besides what its whole file does.

    ``nodes`` are places in the report's levers.
    ``ends`` are the stages they serve: two for a boundary, one for what is left at the end of one,
    none for what serves all.
    """

    name: str
    says: str
    ends: tuple[str, ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportedLines:
    """Lines ``first`` to ``last`` of a file, with the place of their origin in the report's."""

    first: int
    last: int
    origin: int


@dataclass(frozen=True, slots=True)
class ReportedFile:
    """A generated module.

    ``topology`` and ``variant`` are empty where it serves all. ``text`` are its lines, as places in
    the report's code. The first of ``lines`` is the whole file, the others are its statements.
    """

    path: str
    topology: str
    variant: str
    text: tuple[int, ...]
    lines: tuple[ReportedLines, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A stack.

    ``text`` is its file, ``auto`` the policy that ``auto`` stands for. ``boundaries`` has, for each
    edge of ``graph``, the boundaries that it stands for, by their place in a plan's crossings.
    ``code`` are the lines of all files, each once.
    """

    stack: str
    file: str
    text: str
    boundaryc: str
    tokens: tuple[int, ...]
    policies: tuple[str, ...]
    auto: str
    topologies: tuple[ReportedTopology, ...]
    graph: Drawing
    boundaries: tuple[tuple[int, ...], ...]
    plans: tuple[ReportedPlan, ...]
    crossings: tuple[ReportedCrossing, ...]
    ways: tuple[ReportedWay, ...]
    levers: tuple[Lever, ...]
    files: tuple[ReportedFile, ...]
    code: tuple[str, ...]
    origins: tuple[ReportedOrigin, ...]
    costs: Costs
