"""Whether all ranks run the same thing, asked before they can hang: ``BOUNDARYC_CHECK=1``.

Ranks gather a fixed number of bytes each, so that even ranks that loaded different trees meet in
equal calls, and every rank finds the same two that differ. The variable must be set on all ranks or
on none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256

import torch

from boundaryc.runtime.collectives import Collective, GroupProvider
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.mesh import Axes, Mesh

CHECK_VARIABLE = "BOUNDARYC_CHECK"

_DIGEST = 32
_TEXT = 4096
_LONGEST = 300
"""Characters of one value that are compared as they are; of longer ones a digest follows."""

Statement = Mapping[str, object]
"""What a rank states, by name; all ranks name the same things in the same order."""


class Handshake:
    """Compares statements over all ranks of a stage, or over each of its groups."""

    __slots__ = ("_device", "_groups")

    def __init__(self, groups: tuple[tuple[Collective, tuple[int, ...]], ...], device: str) -> None:
        self._groups = groups
        self._device = device

    def compare(self, when: str, statement: Statement) -> None:
        """BoundaryError on every rank of a group in which two differ, naming them and both values.

        ``when`` says what is about to happen, for people.
        """
        row = _row(statement)
        found = ""
        for group, members in self._groups:
            difference = self._difference(when, row, group, members)
            found = found or difference
        # Who shares no group with the two that differ must hear of it, or it would wait for them.
        for group, _ in self._groups if len(self._groups) > 1 else ():
            heard = [_text(other) for other in self._gather(_encoded(found), group)]
            found = next(filter(None, heard), "")
        if found:
            raise BoundaryError(found)

    def _difference(
        self, when: str, row: torch.Tensor, group: Collective, members: tuple[int, ...]
    ) -> str:
        rows = self._gather(row, group)
        for place in range(1, group.size):
            if not rows[place, :_DIGEST].equal(rows[0, :_DIGEST]):
                ranks = (members[0], members[place])
                return _explained(when, ranks, _text(rows[0]), _text(rows[place]))
        return ""

    def _gather(self, row: torch.Tensor, group: Collective) -> torch.Tensor:
        return group.all_gather(row.to(self._device)).cpu()


class RememberedGroups:
    """A group provider that keeps what it gave, in order."""

    def __init__(self, provider: GroupProvider) -> None:
        self.rank = provider.rank
        self.given: list[tuple[Collective, tuple[int, ...]]] = []
        self._provider = provider

    def collective(self, mesh: Mesh, axes: Axes) -> Collective:
        """The provider's group."""
        group = self._provider.collective(mesh, axes)
        self.given.append((group, mesh.members(self.rank, axes)))
        return group


def is_asked_for() -> bool:
    """Whether the environment asks for handshakes."""
    return os.environ.get(CHECK_VARIABLE, "") not in ("", "0")


def whole_stage(provider: GroupProvider, ranks: int) -> Handshake | None:
    """A handshake over all ranks of the stage; None where the provider has no such group.

    It must not depend on what a rank loaded: where the provider knows the stage's ``size`` that is
    taken, else ``ranks``. Tensors go to the provider's ``device``, else to the CPU.
    """
    size = int(getattr(provider, "size", ranks))
    mesh = Mesh((("stage", size, "attn_tp"),))
    try:
        group = provider.collective(mesh, mesh.names)
    except ValueError:  # an engine that gives its own groups need not give this one
        return None
    return Handshake(((group, mesh.members(provider.rank, mesh.names)),), device_of(provider))


def device_of(provider: GroupProvider) -> str:
    """The type of device that the provider's tensors are on."""
    return str(getattr(provider, "device", "cpu"))


def _row(statement: Statement) -> torch.Tensor:
    return _encoded("\n".join(f"{name}: {_shown(value)}" for name, value in statement.items()))


def _encoded(text: str) -> torch.Tensor:
    """Text as uint8 [1, fixed]: a digest of all of it, then as much as fits."""
    content = text.encode()
    padded = (sha256(content).digest() + content)[: _DIGEST + _TEXT].ljust(_DIGEST + _TEXT, b"\0")
    return torch.frombuffer(bytearray(padded), dtype=torch.uint8).view(1, -1)


def _text(row: torch.Tensor) -> str:
    """What `_encoded` was given, from a row [fixed]."""
    return bytes(row[_DIGEST:].tolist()).rstrip(b"\0").decode(errors="replace")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}... (sha256 {sha256(text.encode()).hexdigest()[:16]})"


def _explained(when: str, ranks: tuple[int, int], first: str, second: str) -> str:
    lines = [f"ranks {ranks[0]} and {ranks[1]} differ before {when}:"]
    for one, other in zip(first.split("\n"), second.split("\n"), strict=False):
        name, _, value = one.partition(": ")
        if one != other:
            against = other.partition(": ")[2]
            lines.append(f"  {name}: rank {ranks[0]} has {value}, rank {ranks[1]} has {against}")
    return "\n".join(lines)
