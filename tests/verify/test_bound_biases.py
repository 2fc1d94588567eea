"""A layer norm is bound with a bias where its stack file declares one, and only there."""

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
norm: {kind: layer, eps: 1.0e-5}
stages:
  attention: {kind: attention, norm: {kind: layer, eps: 1.0e-5, bias: true}, transform: norm}
  mlp: {kind: ffn}
  gate: {kind: ffn, norm: {kind: rms, eps: 1.0e-5}}
  named: {kind: ffn, read: mine}
operations:
  mine: {role: read, call: "tests.verify.operations:plain_read", params: [scale],
         facts: [plain_norm, row_wise]}
layers: {count: 1, default: [attention, mlp, gate, named]}
topologies: {tp1: {tp: 1}}
"""
"""Norms with a bias and without one, and one that cannot have any; the final norm has none."""
FINAL = STACK.replace(
    "norm: {kind: layer, eps: 1.0e-5}\n", "norm: {kind: layer, eps: 0.5, bias: true}\n"
)
RMS = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages: {attention: {kind: attention, transform: norm}, mlp: {kind: ffn}}
layers: {count: 1, default: [attention, mlp]}
topologies: {tp1: {tp: 1}}
"""
PLAIN, BIASED = LayerNorm(64, bias=False), LayerNorm(64)
AGREED = {
    "attention": BIASED,
    "attention_output_norm": BIASED,
    "mlp": PLAIN,
    "gate": RMSNorm(64),
    "named_scale": PLAIN,
}


def loaded(text: str) -> Any:
    """The stack of a file, on one rank."""
    return import_package(compiled(text)[1], "sample").load("tp1", SingleGroups())


@pytest.fixture(scope="module")
def stack() -> Any:
    """The stack with norms of every kind."""
    return loaded(STACK)


def test_norms_that_agree_are_bound(stack: Any) -> None:
    """What is no layer norm is not looked at."""
    stack.layer(0).bind(**AGREED)
    stack.layer(0).bind(**AGREED | {"gate": BIASED})


@pytest.mark.parametrize("name", ["mlp", "named_scale"])
def test_a_bias_that_is_not_declared_is_refused(stack: Any, name: str) -> None:
    """It would be left out; an operation that equals the norm is no exception."""
    with pytest.raises(
        BoundaryError, match=f"^{name} is bound to a norm with a bias.*`bias: true`"
    ):
        stack.layer(0).bind(**AGREED | {name: BIASED})


@pytest.mark.parametrize("name", ["attention", "attention_output_norm"])
@pytest.mark.parametrize("norm", [PLAIN, RMSNorm(64)], ids=["none", "no_attribute"])
def test_a_declared_bias_that_is_missing_is_refused(stack: Any, name: str, norm: Any) -> None:
    """A bias of None and no attribute of that name are the same."""
    with pytest.raises(BoundaryError, match=f"^{name} is bound to a norm without a bias"):
        stack.layer(0).bind(**AGREED | {name: norm})


@pytest.mark.parametrize("name", ["attention", "mlp"])
@pytest.mark.parametrize("bias", [True, 0.5, [0.0] * 64], ids=["flag", "number", "list"])
def test_a_bias_that_is_no_tensor_is_refused(stack: Any, name: str, bias: object) -> None:
    """Whether the file declares one or not."""
    norm = SimpleNamespace(weight=torch.ones(64), bias=bias)
    kind = type(bias).__name__
    with pytest.raises(
        BoundaryError, match=f"^{name} is bound to a norm whose bias is of type {kind}"
    ):
        stack.layer(0).bind(**AGREED | {name: norm})


@pytest.mark.parametrize(
    ("text", "agreed", "other", "shown"),
    [(STACK, PLAIN, BIASED, "with a bias"), (FINAL, BIASED, PLAIN, "without a bias")],
    ids=["undeclared", "declared"],
)
def test_the_final_norm_must_agree_and_the_stream_is_kept(
    text: str, agreed: Any, other: Any, shown: str
) -> None:
    """After the refusal the same output goes through the norm that is declared."""
    stack = loaded(text.replace("[attention, mlp, gate, named]", "[gate]").replace(*UNUSED))
    batch = stack.batch(rows_per_dp=[2], padding="sum_len", mode="decode")
    with torch.inference_mode():
        stack.start(batch)
        boundary = stack.layer(0).bind(gate=AGREED["gate"]).gate
        hidden = boundary.prepare(torch.ones(2, 64), batch)
        with boundary.exit(batch) as output:
            hidden = torch.ones(2, 64)
        hidden = output.finish(hidden)
        with pytest.raises(BoundaryError, match=f"^the final norm is bound to a norm {shown}"):
            stack.norm(hidden, batch, other)
        assert stack.norm(hidden, batch, agreed).shape == (2, 64)


UNUSED = (
    STACK[STACK.index("  attention:") : STACK.index("layers:")],
    "  gate: {kind: ffn, norm: {kind: rms, eps: 1.0e-5}}\n",
)
"""All stages and operations, and the one stage that is enough for the end of a stack."""


def test_stacks_of_rms_norms_have_no_checks() -> None:
    """They are generated as if there were none, and take any module with a weight."""
    files = compiled(RMS)[1]
    assert not [name for name, text in files.items() if "bias" in text or "LayerNorm" in text]
    norm = LayerNorm(64, eps=1e-6)
    loaded(RMS).layer(0).bind(attention=norm, attention_output_norm=norm, mlp=norm)
