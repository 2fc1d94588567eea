"""A record of every collective in order: what a rank asked for, and which boundary asked.

`TracedGroups` wraps a group provider and gives each record to a sink before the collective runs,
so that the last record of a rank that hangs is the call it hangs in. With ``BOUNDARYC_TRACE=DIR`` a
stack does this by itself and writes one file a rank; without it nothing is wrapped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

import torch.distributed as dist
from torch import Tensor

from boundaryc.runtime.collectives import Collective, GroupProvider, Sizes
from boundaryc.runtime.mesh import Axes, Mesh

TRACE_VARIABLE = "BOUNDARYC_TRACE"
TRACE_VERSION = 1

Record = Mapping[str, object]
"""What JSON can hold; the keys are those of `TracedGroups`."""

Sink = Callable[[Record], None]
"""Takes the records of one rank, in order."""

_OWN = __name__.rpartition(".")[0]  # the runtime's own frames are never the caller


class TracedGroups:
    """A group provider whose collectives report to ``sink`` before they run.

    The first record describes the rank: ``trace`` (the version of this format), ``rank`` inside its
    pipeline stage, ``world_rank`` in the job, and what ``about`` adds. Each collective adds one:
    ``seq`` and ``group_seq`` (how many this rank, and this group on it, ran before), ``op``,
    ``group`` (its label) and ``members`` (ranks), the tensor's ``rows``, ``tail`` (its other
    dimensions), ``dtype`` and ``bytes``, the ``sizes`` passed or null, ``boundary`` (such as
    ``attention -> experts``, else what the function's docstring begins with), ``function`` and
    ``site`` (file and line inside the generated package).
    """

    def __init__(self, provider: GroupProvider, sink: Sink, *, about: Record | None = None) -> None:
        self.rank = provider.rank
        self._provider = provider
        self._sink = sink
        self._calls = 0
        described = {"trace": TRACE_VERSION, "rank": self.rank, "world_rank": world_rank(provider)}
        sink({**described, **(about or {})})

    @property
    def device(self) -> str:
        """The type of device that tensors are on."""
        return str(getattr(self._provider, "device", "cpu"))

    @property
    def size(self) -> int:
        """Ranks of the stage, where the provider knows them; AttributeError where it does not."""
        return int(getattr(self._provider, "size"))  # noqa: B009 - no part of the protocol

    def collective(self, mesh: Mesh, axes: Axes) -> Collective:
        """The provider's group, traced."""
        group = self._provider.collective(mesh, axes)
        return TracedCollective(self, group, mesh.label(axes), mesh.members(self.rank, axes))

    def record(self, call: dict[str, object]) -> None:
        """Gives one record to the sink."""
        self._sink({"seq": self._calls, **call})
        self._calls += 1


class TracedCollective:
    """One group of a `TracedGroups`."""

    __slots__ = ("_calls", "_group", "_groups", "_label", "_members", "rank", "size")

    def __init__(
        self, groups: TracedGroups, group: Collective, label: str, members: tuple[int, ...]
    ) -> None:
        self._groups = groups
        self._group = group
        self._label = label
        self._members = members
        self._calls = 0
        self.rank = group.rank
        self.size = group.size

    def all_reduce(self, x: Tensor) -> Tensor:
        """As the group's."""
        self._record("all_reduce", x, None)
        return self._group.all_reduce(x)

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """As the group's."""
        self._record("all_gather", x, sizes)
        return self._group.all_gather(x, sizes)

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """As the group's."""
        self._record("reduce_scatter", x, sizes)
        return self._group.reduce_scatter(x, sizes)

    def _record(self, op: str, x: Tensor, sizes: Sizes | None) -> None:
        call: dict[str, object] = {
            "group_seq": self._calls,
            "op": op,
            "group": self._label,
            "members": list(self._members),
            "rows": x.shape[0],
            "tail": list(x.shape[1:]),
            "sizes": None if sizes is None else list(sizes),
            "dtype": str(x.dtype).removeprefix("torch."),
            "bytes": x.numel() * x.element_size(),
        }
        self._calls += 1
        self._groups.record(call | caller(sys._getframe(2)))


class FileSink:
    """Writes records as JSON lines, each flushed before the collective runs."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("w", encoding="utf-8")

    def __call__(self, record: Record) -> None:
        """Appends one line."""
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()


def world_rank(provider: GroupProvider) -> int:
    """This rank's number in the whole job, where torch knows it, else inside its stage."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return provider.rank


def traced_by_environment(provider: GroupProvider, about: Record) -> GroupProvider:
    """``provider`` itself, traced into a file of the folder that ``BOUNDARYC_TRACE`` names.

    The file is named after ``stack``, ``topology`` and ``layers`` of ``about`` and the rank in the
    job; one that is there is written anew.
    """
    folder = os.environ.get(TRACE_VARIABLE, "")
    if not folder:
        return provider
    place = "-".join(str(about[key]) for key in ("stack", "topology", "layers"))
    path = Path(folder) / f"{place}-rank{world_rank(provider)}.jsonl"
    return TracedGroups(provider, FileSink(path), about=about)


def outside(frame: FrameType | None) -> FrameType | None:
    """The first frame outside the runtime: that of a generated function, or of the model."""
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(f"{_OWN}."):
        frame = frame.f_back
    return frame


def caller(frame: FrameType | None) -> dict[str, object]:
    """Which boundary called, from the first frame outside the runtime: boundary, function, site."""
    frame = outside(frame)
    if frame is None:
        return {"boundary": "", "function": "", "site": ""}
    name = frame.f_code.co_name
    path = "/".join(str(frame.f_globals.get("__name__", "")).split(".")[-2:])
    doc = getattr(frame.f_globals.get(name), "__doc__", None) or ""
    return {
        "boundary": _boundary(doc.partition("\n")[0]),
        "function": name,
        "site": f"{path}.py:{frame.f_lineno}",
    }


def _boundary(line: str) -> str:
    """The edge that a generated docstring begins with, else what it says before a colon."""
    edge = line.partition(":")[0].rstrip(".")
    source, to, target = edge.removeprefix("From ").partition(" to ")
    if edge.startswith("From ") and to:
        return f"{source.partition(',')[0]} -> {target.removeprefix('the ')}"
    return edge
