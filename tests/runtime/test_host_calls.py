"""A decoder layer's boundaries are few Python calls, counted rather than timed."""

from __future__ import annotations

from pathlib import Path

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
