"""A norm is bound with the eps of its stack file, with which generated code computes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import LayerNorm, RMSNorm

from boundaryc.runtime import BoundaryError, SingleGroups
from boundaryc.verify.modules import import_package
from tests.verify.subjects import compiled

STACK = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention, transform: norm}
  mlp: {kind: ffn, norm: {kind: layer, eps: 1.0e-5, bias: true}}
  named: {kind: ffn, read: mine}
  scaled: {kind: ffn, read: other}
operations:
  mine: {role: read, call: "tests.verify.operations:plain_read", params: [scale],
         facts: [plain_norm, row_wise]}
  other: {role: read, call: "tests.verify.operations:scaled_read", params: [scale],
          facts: [row_wise]}
layers: {count: 1, default: [attention, mlp, named, scaled]}
topologies: {tp1: {tp: 1}}
"""
"""Norms with two eps, an operation that equals the norm, and one that has none of the file's."""

STREAMS = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
residual: {kind: hyper_connections, streams: 2}
stages: {attention: {kind: attention}, mlp: {kind: ffn}}
layers: {count: 1, default: [attention, mlp]}
topologies: {tp1: {tp: 1}}
"""
USUAL, OTHER = RMSNorm(64, eps=1e-6), RMSNorm(64, eps=1e-5)
AGREED = {
    "attention": USUAL,
    "attention_output_norm": USUAL,
    "mlp": LayerNorm(64, eps=1e-5),
    "named_scale": USUAL,
    "scaled_scale": OTHER,
}


def loaded(text: str) -> Any:
    """The stack of a file, on one rank."""
    return import_package(compiled(text)[1], "sample").load("tp1", SingleGroups())


@pytest.fixture(scope="module")
def stack() -> Any:
    """The stack with norms of two eps."""
    return loaded(STACK)


def like(name: str, value: object) -> Any:
    """Something with a weight, and what other libraries call eps."""
    return SimpleNamespace(weight=torch.ones(64), **{name: value})


def test_norms_that_agree_are_bound(stack: Any) -> None:
    """What an operation of one's own takes is not looked at, where that is not the file's norm."""
    stack.layer(0).bind(**AGREED)
    stack.layer(0).bind(**AGREED | {"scaled_scale": USUAL})


@pytest.mark.parametrize("name", ["attention", "attention_output_norm", "named_scale"])
def test_another_eps_is_refused(stack: Any, name: str) -> None:
    """The norm before a stage, that of its output, and of an operation that equals the norm."""
    with pytest.raises(BoundaryError) as caught:
        stack.layer(0).bind(**AGREED | {name: OTHER})

    assert str(caught.value) == (
        f"{name} is bound to a norm whose `eps` is 1e-05, and the stack file says 1e-06, which is "
        "what the boundary computes with: write `eps: 1e-05` in the `norm` of its stage and "
        "compile, or bind a norm with the file's"
    )


def test_an_eps_of_a_stages_own(stack: Any) -> None:
    with pytest.raises(BoundaryError, match=r"^mlp is bound to a norm whose `eps` is 1e-06"):
        stack.layer(0).bind(**AGREED | {"mlp": LayerNorm(64, eps=1e-6)})


def test_the_norms_of_streams_too() -> None:
    hyper = like("hc_scale", None)
    given = {"attention_hyper": hyper, "mlp_hyper": hyper, "attention": USUAL}
    streams = loaded(STREAMS).layer(0)
    streams.bind(**given, mlp=USUAL)
    with pytest.raises(BoundaryError, match=r"^mlp is bound to a norm whose `eps` is 1e-05"):
        streams.bind(**given, mlp=OTHER)


@pytest.mark.parametrize("name", ["variance_epsilon", "eps"])
def test_other_libraries(stack: Any, name: str) -> None:
    """Hugging Face's, vLLM's and SGLang's norms have another name for it."""
    stack.layer(0).bind(**AGREED | {"attention": like(name, 1e-6)})
    stack.layer(0).bind(**AGREED | {"attention": like(name, float(torch.tensor(1e-6)))})
    with pytest.raises(BoundaryError, match=f"^attention is bound to a norm whose `{name}` is 0.1"):
        stack.layer(0).bind(**AGREED | {"attention": like(name, 0.1)})


def test_what_shows_no_number_is_bound(stack: Any) -> None:
    """What has the weight need not be a norm; without one torch's goes by the dtype."""
    for norm in (SimpleNamespace(weight=torch.ones(64)), RMSNorm(64), like("eps", "small")):
        stack.layer(0).bind(**AGREED | {"attention": norm})
