"""What `boundaryc diff` finds, as data: every output is written from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["added", "removed", "renamed", "changed"]


@dataclass(frozen=True, slots=True)
class Change:
    """Something that a stack file declares, or that callers use, and that is not as it was.

    ``of`` says what it is (``topology``, ``stage``, ``variant``, ``entry point`` ...) and ``name``
    which, with the key behind a dot where one of several keys has changed; empty where there is
    only one. ``before`` and ``after`` are empty where there is nothing. ``breaks`` says why callers
    break, empty where they do not.
    """

    kind: Kind
    of: str
    name: str
    before: str
    after: str
    breaks: str = ""

    @property
    def what(self) -> str:
        """It in words: ``removed topology tp8``."""
        return " ".join(filter(None, [self.kind, self.of, self.name]))


@dataclass(frozen=True, slots=True)
class Ran:
    """What runs at a boundary.

    ``steps`` are its operations in order, those that one kernel does by the name of the kernel;
    ``collectives`` are the steps that send, and ``kernels`` what does the others (``torch`` for a
    few operations of torch's).
    """

    steps: tuple[str, ...]
    collectives: tuple[str, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is so: a topology, a variant, policies and batches; empty for all of them.

    ``bytes_before`` and ``bytes_after`` are what each rank sends for every token of the batch, on
    average; None where the boundary is not met, and for payloads.
    """

    topology: str
    variant: str
    policies: tuple[str, ...]
    when: str
    bytes_before: float | None = None
    bytes_after: float | None = None


@dataclass(frozen=True, slots=True)
class BoundaryChange:
    """A boundary at which something else runs, or as much with other bytes.

    ``before`` or ``after`` is None where the stack does not meet it.
    """

    boundary: str
    before: Ran | None
    after: Ran | None
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class PayloadChange:
    """A pipeline cut over which other tensors travel.

    A tensor is its name, the axes that cut its rows, and its other sizes. Both sides of a cut must
    run the same version, so this always breaks.
    """

    boundary: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    places: tuple[Place, ...]
    breaks: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """A generated module whose text differs: the lines of a unified diff."""

    path: str
    state: Kind
    added: int
    removed: int
    diff: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StackChange:
    """One stack that means something else; ``before`` or ``after`` is empty where there is none."""

    stack: str
    before: str
    after: str
    changes: tuple[Change, ...]
    boundaries: tuple[BoundaryChange, ...]
    payloads: tuple[PayloadChange, ...]
    files: tuple[FileChange, ...]

    def breaking(self) -> Iterator[tuple[str, str]]:
        """What breaks callers, each with the reason."""
        for one in self.changes:
            if one.breaks:
                yield one.what, one.breaks
        for cut, why in {each.boundary: each.breaks for each in self.payloads}.items():
            yield f"changed payload of a cut at {cut}", why


@dataclass(frozen=True, slots=True)
class Skipped:
    """A stack that is not compared, as it is no valid one in ``old``: its file there, and why."""

    source: str
    why: str


@dataclass(frozen=True, slots=True)
class Differences:
    """The answer: all stacks of ``old`` and ``new`` that differ.

    ``compared`` are the names of all of them; ``breaking`` is how many changes break callers. Both
    sides are planned by this boundaryc: what a stack means now, not what was compiled then.
    ``skipped`` are those that it was asked to leave out where they are wrong in ``old``.
    """

    old: str
    new: str
    compared: tuple[str, ...]
    breaking: int
    stacks: tuple[StackChange, ...]
    skipped: tuple[Skipped, ...] = ()
