"""The tiny Hugging Face models cut over simulated ranks: a covering sample of their runs."""

from __future__ import annotations

from functools import cache

import pytest

from examples.hf.architecture import architecture_names
from examples.hf_ranks import Harness


@cache
def harness(name: str) -> Harness:
    """One for each architecture, with its compiled stacks."""
    return Harness(name)


@pytest.mark.parametrize("name", architecture_names())
def test_a_covering_sample_agrees_with_transformers(name: str) -> None:
    """Logits of every rank, and residuals before every layer."""
    judge = harness(name)
    wrong = [
        f"{case}: {error:.1e}"
        for case in judge.sample()
        if not (error := judge.run(case)) <= judge.reference.tolerance
    ]

    assert not wrong
