"""A decoder layer's boundaries are few Python calls, counted rather than timed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.host import LIMITS
from benchmarks.host_layers import CASES, HAND_WRITTEN, Case, Subject, compiled

WIDTH, TOKENS = 64, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stacks of all cases, compiled."""
    found = tmp_path_factory.mktemp("host")
    compiled(found, WIDTH)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_layer_is_few_python_calls(folder: Path, case: Case) -> None:
    """Norms, exits and collectives included, each of which is one."""
    subject = Subject(case, folder, WIDTH, TOKENS)
    with torch.inference_mode():
        calls = subject.calls()

    assert sum(calls.values()) <= LIMITS[case.topology][1], dict(calls)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_layer_does_what_a_person_writes(folder: Path, case: Case) -> None:
    """The same bits as straight-line code for this stack on this topology."""
    subject = Subject(case, folder, WIDTH, TOKENS)
    with torch.inference_mode():
        ours, written = subject.generated(), subject.straight(HAND_WRITTEN)()

    assert all(map(torch.equal, ours, written))


def stored(value: object) -> Any:
    """A value that was pickled and read again."""
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("again", [copy.deepcopy, stored])
def test_copies_of_layers_are_as_short(folder: Path, again: Callable[[object], Any]) -> None:
    """A model that is copied or pickled with its boundaries: as few calls, the same bits."""
    subject = Subject(CASES[0], folder, WIDTH, TOKENS)
    with torch.inference_mode():
        calls, expected = subject.calls(), subject.generated()
        subject.layers = again(subject.layers)
        found = subject.generated()

        assert subject.calls() == calls
    assert all(map(torch.equal, found, expected))
