"""The tiny Hugging Face models cut over simulated ranks: a covering sample of their runs."""

from __future__ import annotations

from functools import cache
from importlib import import_module

import pytest

from boundaryc.runtime import BoundaryError
from boundaryc.verify.world import SimulatedGroups, World
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


def test_a_norm_with_another_eps_is_refused() -> None:
    """What norms of transformers say of themselves is compared with the stack file."""
    layer = harness("llama").reference.model.model.layers[0]
    stack = import_module("generated.llama").load("tp4", SimulatedGroups(World[None](4), 0))
    norms = {"attention": layer.input_layernorm, "mlp": layer.post_attention_layernorm}
    stack.layer(0).bind(**norms)
    other = type(layer.input_layernorm)(64, eps=0.5)

    with pytest.raises(
        BoundaryError, match=r"^mlp is bound to a norm whose `.*eps.*` is 0\.5, and"
    ):
        stack.layer(0).bind(**norms | {"mlp": other})
