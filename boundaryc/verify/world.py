"""Many ranks in one process: each a greenlet, meeting in checked collectives.

A rank runs until it calls a collective whose group is not complete, then another one runs. When
nobody can run the ranks have deadlocked, and that is known at once. Every call is compared on all
members of its group before any data moves, so a mismatch is an error that names both sides rather
than a hang or a wrong sum.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor

from boundaryc.runtime import quantize
from boundaryc.runtime.mesh import Axes, Mesh

Result = TypeVar("Result")

_PASSED = {__file__, quantize.__file__}


class WorldError(Exception):
    """Ranks that do not agree on what they do: a mismatch or a deadlock."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a collective is called: a generated function, the line, the boundary it serves."""

    path: str
    line: int
    function: str
    edge: str

    def __str__(self) -> str:
        where = f"{self.path}:{self.line} in {self.function}"
        return f"{where} ({self.edge})" if self.edge else where


@dataclass(frozen=True, slots=True)
class Call:
    """One rank's side of one collective."""

    kind: str
    group: tuple[int, ...]
    label: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    sizes: tuple[int, ...] | None
    site: Site

    def agreed(self) -> tuple[object, ...]:
        """What must be equal on all members: the same line of code with matching data.

        Equal calls from different places are two collectives that happen to meet.
        """
        rows = self.shape if self.kind != "all_gather" else self.shape[1:]
        return (self.kind, self.dtype, rows, self.sizes, self.site)

    def __str__(self) -> str:
        sizes = "" if self.sizes is None else f", sizes {list(self.sizes)}"
        kind = f"{self.kind}({self.label})"
        return f"{kind} of {list(self.shape)} {self.dtype}{sizes} at {self.site}"

    def wire_bytes(self, element: int) -> int:
        """Bytes this rank sends, to first order (see the planner's cost model)."""
        members, wide = len(self.group), self.shape[0]
        if self.kind == "all_gather":
            wide = sum(self.sizes) if self.sizes else self.shape[0] * members
        times = 2 if self.kind == "all_reduce" else 1
        width = element
        for extent in self.shape[1:]:
            width *= extent
        return times * (members - 1) * wide * width // members


@dataclass(slots=True)
class _Meeting:
    """A group whose members are arriving at their next collective."""

    calls: dict[int, tuple[Call, Tensor]] = field(default_factory=dict)


@dataclass(slots=True)
class _Rank:
    task: greenlet
    results: list[Tensor] = field(default_factory=list)
    waiting: tuple[int, ...] | None = None
    trace: list[Call] = field(default_factory=list)
    outcome: object = None


class World(Generic[Result]):
    """A set of simulated ranks.

    ``seed`` None runs the ranks in order; a number draws the next one at random, so that nothing
    can rest on one schedule. ``poison`` overwrites what a collective may overwrite.
    """

    def __init__(self, size: int, *, seed: int | None = None, poison: bool = False) -> None:
        self.size = size
        self.poison = poison
        self._draw = None if seed is None else random.Random(seed)
        self._ranks: list[_Rank] = []
        self._meetings: dict[tuple[int, ...], _Meeting] = {}

    def run(self, program: Callable[[SimulatedGroups], Result]) -> list[Result]:
        """Runs ``program`` on every rank and returns its results in rank order.

        An exception of a rank is raised here with the rank's number as a note; WorldError for a
        mismatch or a deadlock.
        """
        hub = getcurrent()
        self._meetings.clear()
        self._ranks = [
            _Rank(greenlet(lambda rank=rank: self._main(program, rank), hub))
            for rank in range(self.size)
        ]
        ready = list(range(self.size))
        while ready:
            place = 0 if self._draw is None else self._draw.randrange(len(ready))
            rank = ready.pop(place)
            self._ranks[rank].task.switch()
            ready.extend(self._complete(self._ranks[rank]))
        if any(not rank.task.dead for rank in self._ranks):
            raise WorldError(self._deadlock())
        return [rank.outcome for rank in self._ranks]  # type: ignore[misc]

    def traces(self) -> list[list[Call]]:
        """The collectives of each rank in order, of the last run."""
        return [rank.trace for rank in self._ranks]

    def _main(self, program: Callable[[SimulatedGroups], Result], rank: int) -> None:
        try:
            self._ranks[rank].outcome = program(SimulatedGroups(self, rank))
        except Exception as error:
            error.add_note(f"on simulated rank {rank} of {self.size}")
            raise

    def call(self, rank: int, call: Call, value: Tensor) -> Tensor:
        """One rank's collective; returns when all members have met."""
        own = self._ranks[rank]
        own.trace.append(call)
        self._meetings.setdefault(call.group, _Meeting()).calls[rank] = (call, value)
        own.waiting = call.group
        parent = own.task.parent
        assert parent is not None
        parent.switch()
        return own.results.pop()

    def _complete(self, arrived: _Rank) -> Sequence[int]:
        """If the rank that just stopped completed a meeting, carries it out."""
        group = arrived.waiting
        if group is None:
            return ()
        meeting = self._meetings[group]
        if len(meeting.calls) < len(group):
            return ()
        del self._meetings[group]
        calls = [meeting.calls[rank][0] for rank in group]
        self._check(group, calls)
        values = [meeting.calls[rank][1] for rank in group]
        for rank, result in zip(group, _carry_out(calls[0], values), strict=True):
            self._ranks[rank].results.append(result)
            self._ranks[rank].waiting = None
        if self.poison and calls[0].kind == "all_reduce":
            for value in values:
                value.fill_(float("nan"))
        return group

    def _check(self, group: tuple[int, ...], calls: list[Call]) -> None:
        for rank, call in zip(group, calls, strict=True):
            if call.agreed() != calls[0].agreed():
                raise WorldError(
                    f"ranks {group[0]} and {rank} of group {list(group)} differ:\n"
                    f"  rank {group[0]}: {calls[0]}\n  rank {rank}: {call}"
                )
            wrong = _wrong_size(call, len(group), group.index(rank))
            if wrong:
                raise WorldError(f"rank {rank}: {call}: {wrong}")

    def _deadlock(self) -> str:
        lines = ["deadlock: no rank can run"]
        for number, rank in enumerate(self._ranks):
            if rank.task.dead:
                last = f"finished; last call: {rank.trace[-1]}" if rank.trace else "finished"
                lines.append(f"  rank {number}: {last}")
            else:
                lines.append(f"  rank {number}: waits in {rank.trace[-1]}")
        for group, meeting in self._meetings.items():
            missing = [rank for rank in group if rank not in meeting.calls]
            lines.append(f"  group {list(group)} waits for ranks {missing}")
        return "\n".join(lines)


class SimulatedGroups:
    """The group provider of one simulated rank."""

    def __init__(self, world: World[object] | World[Result], rank: int) -> None:
        self.rank = rank
        self._world = world

    def collective(self, mesh: Mesh, axes: Axes) -> SimulatedCollective:
        """The group of the ranks that agree with this one on all atoms but ``axes``."""
        group = mesh.members(self.rank, axes)
        return SimulatedCollective(self._world, self.rank, group, mesh.label(axes))


class SimulatedCollective:
    """One rank's handle of a simulated group."""

    def __init__(
        self, world: World[object] | World[Result], rank: int, group: tuple[int, ...], label: str
    ) -> None:
        self.rank = group.index(rank)
        self.size = len(group)
        self._world, self._global, self._group, self._label = world, rank, group, label

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of ``x`` over the group."""
        return self._call("all_reduce", x, None)

    def all_gather(self, x: Tensor, sizes: tuple[int, ...] | None = None) -> Tensor:
        """The rows of all members in group order."""
        return self._call("all_gather", x, sizes)

    def reduce_scatter(self, x: Tensor, sizes: tuple[int, ...] | None = None) -> Tensor:
        """This rank's rows of the sum of ``x``."""
        return self._call("reduce_scatter", x, sizes)

    def _call(self, kind: str, x: Tensor, sizes: tuple[int, ...] | None) -> Tensor:
        call = Call(kind, self._group, self._label, tuple(x.shape), x.dtype, sizes, _site())
        return self._world.call(self._global, call, x)


def _site() -> Site:
    """The caller of a collective: the first frame outside this module and of no part of a sum."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in _PASSED:
        frame = frame.f_back
    code = frame.f_code
    doc = code.co_consts[0] if code.co_consts and isinstance(code.co_consts[0], str) else ""
    edge = re.match(r"From (\w+)(?:, [\w ]+,)? to (?:the )?([\w ]+?)[.:]", doc)
    words = f"{edge[1]} -> {edge[2]}" if edge else ""
    return Site(code.co_filename, frame.f_lineno, code.co_name, words)


def _wrong_size(call: Call, members: int, index: int) -> str | None:
    if call.sizes is not None and len(call.sizes) != members:
        return f"{len(call.sizes)} sizes for {members} members"
    if call.kind == "all_gather" and call.sizes and call.sizes[index] != call.shape[0]:
        return f"has {call.shape[0]} rows where its size says {call.sizes[index]}"
    if call.kind == "reduce_scatter":
        if call.sizes is not None and sum(call.sizes) != call.shape[0]:
            return f"sizes add up to {sum(call.sizes)}, not to its {call.shape[0]} rows"
        if call.sizes is None and call.shape[0] % members:
            return f"{call.shape[0]} rows do not divide over {members} members"
    return None


def _carry_out(call: Call, values: list[Tensor]) -> list[Tensor]:
    if call.kind == "all_gather":
        if call.sizes is None and len({value.shape[0] for value in values}) > 1:
            raise WorldError(f"{call}: members have {[v.shape[0] for v in values]} rows, not equal")
        gathered = torch.cat(values)
        return [gathered.clone() for _ in values]
    total = values[0].clone()
    for value in values[1:]:
        total += value
    if call.kind == "all_reduce":
        return [total.clone() for _ in values]
    sizes = call.sizes or (total.shape[0] // len(values),) * len(values)
    return [part.clone() for part in total.split(list(sizes))]
