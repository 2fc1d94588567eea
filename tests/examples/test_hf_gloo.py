"""Tiny Hugging Face models on four ranks of torch.distributed, on what is committed."""

from __future__ import annotations

import pytest

from examples.hf.gloo import cases, measure
from examples.hf_ranks import Harness

NAMES = ("nemotron_h", "glm5_next")


def test_committed_boundaries_agree_with_transformers(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Logits of every rank, with uneven and empty ranks, in prefill and decode."""
    errors = measure(NAMES, tmp_path_factory.mktemp("gloo"))

    assert {name for name, _ in errors} == set(NAMES)
    assert len(errors) == sum(len(cases(Harness(name))) for name in NAMES)
    assert [f"{name} {case}" for (name, case), error in errors.items() if not error <= 1e-9] == []
