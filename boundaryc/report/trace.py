"""Compares the traces that ranks wrote under ``BOUNDARYC_TRACE`` and finds where they part.

Between the ranks of one run, all members of a group must make equal calls in equal order. Between
two runs every rank must make the calls that it made before. Needs nothing but the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

from boundaryc.report.documents import Diverged, Sided, Traces

VERSION = 1
LOADED = ("topology", "manifest", "policy", "layers")
"""What the first line of a trace says about what its rank loaded."""


class TraceError(ValueError):
    """A folder without traces, or a file that is none."""


@dataclass(frozen=True, slots=True)
class Call:
    """One collective of one rank; the fields are those that the runtime's trace documents."""

    seq: int
    group_seq: int
    op: str
    group: str
    members: tuple[int, ...]
    rows: int
    tail: tuple[int, ...]
    sizes: tuple[int, ...] | None
    dtype: str
    bytes: int
    boundary: str
    function: str
    site: str

    def __str__(self) -> str:
        sizes = "" if self.sizes is None else f", sizes {list(self.sizes)}"
        shape = [self.rows, *self.tail]
        return (
            f"{self.op}({self.group}) of {shape} {self.dtype}{sizes} "
            f"at {self.boundary or self.function} ({self.site})"
        )

    def agreed(self, rank: int) -> tuple[object, ...]:
        """What all members of the group must have in common, for the call of ``rank``."""
        rows: object = self.rows
        if self.op == "all_gather":
            index = self.members.index(rank)
            right = self.sizes is None or self.rows == self.sizes[index]
            rows = None if self.sizes is not None and right else self.rows
        return (self.op, self.members, self.tail, self.sizes, self.dtype, self.boundary, rows)

    def repeated(self) -> tuple[object, ...]:
        """What must be the same in another run; lines of code and their names may move."""
        return (
            self.op,
            self.group,
            self.members,
            self.rows,
            self.tail,
            self.sizes,
            self.dtype,
            self.boundary,
        )

    @property
    def node(self) -> str:
        """The nodes of the YAML file that this call serves, such as ``stages.mlp``."""
        source, arrow, target = self.boundary.partition(" -> ")
        if arrow:
            return f"{_nodes(source, ' or ')} -> {_nodes(target, ' or ')}"
        stage = re.match(r"(.+?)_(?:leave|reduce)(?:_|$)", self.function)
        return _nodes(stage[1], "_or_") if stage else "unknown"


@dataclass(frozen=True, slots=True)
class Trace:
    """What one rank wrote: what it loaded, and its calls in order."""

    path: Path
    about: Mapping[str, Any]
    calls: tuple[Call, ...]

    @property
    def rank(self) -> int:
        """The rank inside its pipeline stage."""
        return int(self.about["rank"])

    @property
    def stage(self) -> int:
        """The first rank of its pipeline stage in the whole job."""
        return int(self.about["world_rank"]) - self.rank

    def identity(self) -> tuple[object, ...]:
        """What tells stacks apart that one process runs side by side."""
        return (*self.family(), self.about.get("topology", ""), self.about.get("layers", ""))

    def family(self) -> tuple[object, ...]:
        """The stack and the pipeline stage."""
        return (self.about.get("stack", ""), self.stage)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that differ: who, what it did there, and else the last thing it did."""

    who: str
    did: str


@dataclass(frozen=True, slots=True)
class Divergence:
    """A place where two sequences part. ``seq`` is how many calls a rank made before it."""

    where: str
    node: str
    first: Side
    second: Side
    seq: int

    def __str__(self) -> str:
        lines = [self.where, *([f"  YAML: {self.node}"] if self.node else [])]
        lines += [f"  {side.who}: {side.did}" for side in (self.first, self.second)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class TraceReport:
    """The outcome of a comparison; ``divergences`` in the order in which they happened."""

    ranks: int
    calls: int
    divergences: tuple[Divergence, ...]

    @property
    def agree(self) -> bool:
        """Whether nothing differs."""
        return not self.divergences

    @property
    def first(self) -> Divergence | None:
        """The first divergence: later ones mostly follow from it."""
        return self.divergences[0] if self.divergences else None

    def __str__(self) -> str:
        counted = f"{self.ranks} traces, {self.calls} collectives"
        if self.first is None:
            return f"no divergence in {counted}"
        more = len(self.divergences) - 1
        rest = f"\n{more} more, which may follow from it" if more else ""
        return f"first divergence in {counted}:\n{self.first}{rest}"

    def document(self) -> Traces:
        """The report for programs."""
        divergences = tuple(
            Diverged(
                one.where,
                one.node,
                one.seq,
                tuple(Sided(side.who, side.did) for side in (one.first, one.second)),
            )
            for one in self.divergences
        )
        return Traces(self.agree, self.ranks, self.calls, divergences)


def compare(dir_a: str | Path, dir_b: str | Path | None = None) -> TraceReport:
    """Compares the ranks of the run in ``dir_a``, or that run with the one in ``dir_b``.

    Raises TraceError for a folder without traces and for a file that is none. A last line that a
    killed process left unfinished is ignored.
    """
    first = read_traces(Path(dir_a))
    if dir_b is None:
        traces = first
        found = [one for ranks in _stages(first) for one in _between_ranks(ranks)]
    else:
        second = read_traces(Path(dir_b))
        traces, found = (*first, *second), list(_between_runs(first, second))
    calls = sum(len(trace.calls) for trace in traces)
    return TraceReport(len(traces), calls, tuple(sorted(found, key=lambda one: one.seq)))


def read_traces(folder: Path) -> tuple[Trace, ...]:
    """All traces of a folder, by rank. Raises TraceError."""
    traces = [_read(path) for path in sorted(folder.glob("*.jsonl"))]
    if not traces:
        raise TraceError(f"{folder}: no traces (*.jsonl)")
    return tuple(sorted(traces, key=lambda trace: int(trace.about["world_rank"])))


def _read(path: Path) -> Trace:
    lines = path.read_text(encoding="utf-8").split("\n")
    unfinished = lines.pop()  # "" where the last line is whole
    records: list[Mapping[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise TraceError(f"{path}:{number}: not a record: {error}") from error
    if not records or records[0].get("trace") != VERSION:
        cut = ", cut off in its first line" if unfinished and not records else ""
        raise TraceError(f"{path}: not a trace of version {VERSION}{cut}")
    try:
        calls = tuple(_call(record) for record in records[1:])
    except (KeyError, TypeError) as error:
        raise TraceError(f"{path}: a record lacks {error}") from error
    return Trace(path, records[0], calls)


def _call(record: Mapping[str, Any]) -> Call:
    values: dict[str, Any] = {}
    for field in fields(Call):
        value = record[field.name]
        values[field.name] = tuple(value) if isinstance(value, list) else value
    return Call(**values)


def _stages(traces: Iterable[Trace]) -> Iterator[dict[int, Trace]]:
    """The ranks of each pipeline stage of each stack."""
    traces = tuple(traces)
    for key in (Trace.family, Trace.identity):
        found: dict[tuple[object, ...], dict[int, Trace]] = {}
        for trace in traces:
            found.setdefault(key(trace), {}).setdefault(trace.rank, trace)
        if sum(map(len, found.values())) == len(traces):
            return iter(found.values())
    raise TraceError("the folder holds more than one run: two traces are of one rank and stack")


def _between_ranks(ranks: Mapping[int, Trace]) -> Iterator[Divergence]:
    base = min(ranks)
    for rank, trace in ranks.items():
        yield from _loaded(f"rank {base}", ranks[base].about, f"rank {rank}", trace.about)
    groups = {(call.group, call.members) for trace in ranks.values() for call in trace.calls}
    for label, members in sorted(groups):
        present = [rank for rank in members if rank in ranks]
        for other in present[1:]:
            found = _in_group(ranks, label, members, (present[0], other))
            if found is not None:
                yield found
                break


def _in_group(
    ranks: Mapping[int, Trace], label: str, members: tuple[int, ...], pair: tuple[int, int]
) -> Divergence | None:
    """The first call of a group in which two of its members differ."""
    one, other = (
        [call for call in ranks[rank].calls if (call.group, call.members) == (label, members)]
        for rank in pair
    )
    for index, (left, right) in enumerate(zip_longest(one, other)):
        if left and right and left.agreed(pair[0]) == right.agreed(pair[1]):
            continue
        call = left or right
        first = _side(f"rank {pair[0]}", left, ranks[pair[0]])
        second = _side(f"rank {pair[1]}", right, ranks[pair[1]])
        where = f"group {label}, ranks {list(members)}, call {index}"
        return Divergence(where, call.node, first, second, _first_seq(left, right))
    return None


def _between_runs(first: Iterable[Trace], second: Iterable[Trace]) -> Iterator[Divergence]:
    one = {(*trace.identity(), trace.rank): trace for trace in first}
    other = {(*trace.identity(), trace.rank): trace for trace in second}
    for key in sorted(one.keys() | other.keys(), key=str):
        left, right = one.get(key), other.get(key)
        if left is None or right is None:
            there = left or right
            assert there is not None
            sides = (Side("run A", _present(left)), Side("run B", _present(right)))
            yield Divergence(f"rank {there.rank} ({there.path.name})", "", *sides, -1)
            continue
        yield from _loaded("run A", left.about, "run B", right.about, same=("manifest", "policy"))
        yield from _of_rank(left, right)


def _of_rank(left: Trace, right: Trace) -> Iterator[Divergence]:
    for index, (one, other) in enumerate(zip_longest(left.calls, right.calls)):
        if one and other and one.repeated() == other.repeated():
            continue
        call = one or other
        sides = (_side("run A", one, left), _side("run B", other, right))
        yield Divergence(f"rank {left.rank}, call {index}", call.node, *sides, index)
        return


def _loaded(
    who: str,
    about: Mapping[str, Any],
    other: str,
    against: Mapping[str, Any],
    same: tuple[str, ...] = (),
) -> Iterator[Divergence]:
    """What two ranks loaded differently; ``same`` may differ between runs."""
    for name in LOADED:
        one, two = about.get(name, ""), against.get(name, "")
        if one != two and name not in same:
            sides = (Side(who, str(one)), Side(other, str(two)))
            yield Divergence(f"{name} that was loaded", "", *sides, -1)


def _side(who: str, call: Call | None, trace: Trace) -> Side:
    if call is not None:
        return Side(who, str(call))
    if not trace.calls:
        return Side(who, "no such call; it made none at all")
    return Side(who, f"no such call; its last one is {trace.calls[-1]}")


def _present(trace: Trace | None) -> str:
    return "traced" if trace else "no trace"


def _first_seq(*calls: Call | None) -> int:
    return min(call.seq for call in calls if call is not None)


def _nodes(names: str, between: str) -> str:
    special = {"start": "start", "final norm": "norm", "end of the stack": "terminal"}
    return ", ".join(special.get(name, f"stages.{name}") for name in names.split(between))
