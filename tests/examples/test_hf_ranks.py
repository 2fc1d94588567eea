"""The tiny Hugging Face models cut over simulated ranks: a covering sample of their runs."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from examples.hf.architecture import architecture_names
from examples.hf_ranks import Harness


@cache
def harness(name: str) -> Harness:
    """One for each architecture, with its compiled stacks."""
    return Harness(name)


@pytest.mark.parametrize("name", architecture_names())
def test_a_covering_sample_agrees_with_transformers(name: str) -> None:
    """Logits of every rank, and residuals before every layer.

    Architectures take the compiled stacks of their covering samples in turns, half of them each,
    so that every stack is run by many.
    """
    torch.set_num_threads(1)
    judge, sample = harness(name), harness(name).sample()
    stacks = sorted({(case.topology, case.edition) for case in sample})
    own = stacks[architecture_names().index(name) % 2 :: 2]
    wrong = [
        f"{case}: {error:.1e}"
        for case in sample
        if (case.topology, case.edition) in own
        and not (error := judge.run(case)) <= judge.reference.tolerance
    ]

    assert not wrong
