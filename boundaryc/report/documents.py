"""What commands that publish, check and run print as JSON; their schemas are derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a command could not run as asked, or failed; what is wrong in files is `diagnostics`.

    ``report`` is the file to report where that is a bug of boundaryc, else empty.
    """

    message: str
    report: str


@dataclass(frozen=True, slots=True)
class Counted:
    """How many files became what."""

    written: int
    unchanged: int
    removed: int


@dataclass(frozen=True, slots=True)
class PublishedStack:
    """The files of one stack, by what became of them.

    ``kept`` are not generated any more and were edited by hand, or are in no manifest; ``edited``
    were, and what was compiled takes their place.
    """

    stack: str
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    edited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compilation:
    """What `boundaryc compile` published, or with ``dry_run`` would."""

    dry_run: bool
    summary: Counted
    stacks: tuple[PublishedStack, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A published file that is not as it should be; ``by_hand``: no compilation puts it right."""

    state: str
    path: str
    by_hand: bool
    diff: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """What `boundaryc check` found.

    ``summary`` has how many files were compared and how many are in each state; ``fixes`` are
    commands.
    """

    fresh: bool
    summary: Mapping[str, int]
    findings: tuple[Found, ...]
    fixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sided:
    """One of two that differ, and what it did."""

    who: str
    did: str


@dataclass(frozen=True, slots=True)
class Diverged:
    """A place in which two ranks, or two runs, differ; ``node`` is that of the stack file."""

    where: str
    node: str
    seq: int
    sides: tuple[Sided, ...]


@dataclass(frozen=True, slots=True)
class Traces:
    """What `boundaryc trace compare` found, the first divergence first."""

    agree: bool
    ranks: int
    calls: int
    divergences: tuple[Diverged, ...]


@dataclass(frozen=True, slots=True)
class RunCell:
    """What one run was for: the options of `boundaryc verify` that select it."""

    topology: str
    variant: str
    policy: str
    padding: str
    rows: tuple[int, ...]
    split: str
    entry: str
    many: bool
    mode: str
    cuts: tuple[int, ...]
    halves: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What one run showed.

    ``failure`` is null where everything held, and ``error`` where nothing could be compared.
    ``collectives`` and ``wire_bytes`` are the largest of any rank for one forward.
    """

    stack: str
    cell: RunCell
    error: float | None
    collectives: int
    wire_bytes: int
    failure: str | None


@dataclass(frozen=True, slots=True)
class Verification:
    """What `boundaryc verify` showed, cell by cell."""

    failures: int
    cells: tuple[Judged, ...]


@dataclass(frozen=True, slots=True)
class Recordings:
    """What `boundaryc verify --against` showed: the error at the entry of each layer.

    ``first`` is the first layer whose error exceeds ``tolerance``, null where none does.
    """

    errors: tuple[float, ...]
    tolerance: float
    first: int | None


@dataclass(frozen=True, slots=True)
class Completion:
    """The script that completes command lines in a shell."""

    shell: str
    script: str
