"""A small sample of the soak: processes that are killed, and that run at the same time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.emit import soak


@pytest.fixture
def field(tmp_path: Path) -> soak.Field:
    """Two versions of a stack."""
    return soak.Field(tmp_path)


def test_killed(field: soak.Field) -> None:
    """The tree is the old one or the new one, and `check` says which."""
    dice = random.Random(7)

    assert soak.killed_compilations(field, 2, dice).total() == 2
    assert soak.killed_publishers(field, 3, dice).total() == 3


def test_at_once(field: soak.Field) -> None:
    """Two compilations into one folder."""
    field.reset()

    assert soak.pairs(field, 1, random.Random(7)).total() == 1


def test_a_torn_tree_is_found(field: soak.Field) -> None:
    """The judge sees a file of the other version, a missing one, and one too many."""
    field.reset()
    folder = field.out / field.outputs[0].stack
    assert field.judge() == 0
    for name, data in (("rowwise.py", field.trees[1]["rowwise.py"]), ("more.py", b"")):
        field.reset()
        (folder / name).write_bytes(data)
        with pytest.raises(soak.Torn):
            field.judge()
        (folder / name).unlink()
    field.reset()
    (folder / "layers.py").unlink()
    with pytest.raises(soak.Torn):
        field.judge()
