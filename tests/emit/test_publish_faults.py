"""Publishing on a disk that fails, by a process that is killed: at every single step."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from boundaryc.emit import publish as publishing
from boundaryc.emit.output import Output
from boundaryc.emit.publish import publish
from tests.emit.tiny import NEW, OLD, contents, output, tree


class FaultyDisk:
    """Counts what a publisher asks of the file system, and fails from the ``at``-th call on.

    `stop` says how: an OSError, as on a full or read-only disk, or SystemExit, after which nothing
    works any more, as if the process had been killed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, stop: BaseException) -> None:
        self.calls, self.at, self.stop = 0, at, stop
        for owner, name in (
            (Path, "mkdir"), (Path, "write_bytes"), (Path, "rename"), (Path, "replace"),
            (os, "link"), (os, "unlink"), (os, "rmdir"), (publishing, "exchange"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self.wrap(getattr(owner, name)))
        monkeypatch.setattr(publishing.shutil, "copy2", self.wrap(publishing.shutil.copy2))

    def wrap(self, function: Callable[..., object]) -> Callable[..., object]:
        """``function``, until it fails."""

        def call(*words: object, **named: object) -> object:
            self.calls += 1
            full = isinstance(self.stop, OSError) and function.__name__ in ("unlink", "rmdir")
            if self.calls >= self.at and not full:
                raise self.stop
            return function(*words, **named)

        return call


def no_exchange(one: Path, other: Path) -> bool:
    """What a system does that cannot swap folders."""
    return False


def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Output | None) -> int:
    """How many calls a publication of NEW makes."""
    if before:
        publish(before, tmp_path / "count")
    with monkeypatch.context() as patch:
        disk = FaultyDisk(patch, 10**9, SystemExit())
        publish(output(**NEW), tmp_path / "count")
    return disk.calls


@pytest.mark.parametrize("before", [None, output(**OLD)], ids=["first", "later"])
@pytest.mark.parametrize("swaps", [True, False])
def test_killed_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Output | None, swaps: bool
) -> None:
    """Old or new, whole, after every single step; and the next run makes it new."""
    if not swaps:
        monkeypatch.setattr(publishing, "exchange", no_exchange)
    new, outcomes = output(**NEW), set()
    for at in range(1, steps(tmp_path, monkeypatch, before) + 1):
        out = tmp_path / str(at)
        if before:
            publish(before, out)
        with monkeypatch.context() as patch:
            FaultyDisk(patch, at, SystemExit())
            with pytest.raises(SystemExit):
                publish(new, out)
        if swaps:
            found = {name: text for name, text in contents(out).items() if name[0] != "."}
            assert found in (tree(before), tree(new)), at
            outcomes.add(found == tree(new))
        publish(new, out)
        assert contents(out) == tree(new), at
        assert [path.name for path in out.iterdir()] == ["tiny"]
    if swaps and before:
        assert outcomes == {True, False}


@pytest.mark.parametrize("swaps", [True, False])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, swaps: bool
) -> None:
    """The old tree stays, or the new one is in place; the room that was taken is given back."""
    if not swaps:
        monkeypatch.setattr(publishing, "exchange", no_exchange)
    old, new = output(**OLD), output(**NEW)
    for at in range(1, steps(tmp_path, monkeypatch, old) + 1):
        out = tmp_path / str(at)
        publish(old, out)
        with monkeypatch.context() as patch:
            FaultyDisk(patch, at, OSError(number, os.strerror(number)))
            with contextlib.suppress(OSError):
                publish(new, out)
        found = contents(out)
        shown = {name: text for name, text in found.items() if name[0] != "."}
        if swaps:
            assert shown in (tree(old), tree(new)), at
        assert not (out / ".tiny.boundaryc-new").exists()
        publish(new, out)
        assert contents(out) == tree(new)
