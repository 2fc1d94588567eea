"""Hyper-connections in torch: HC-1, HC-3, the definition in float64, and Hugging Face's modules."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import (
    hyper_enter,
    hyper_head,
    hyper_mean,
    hyper_read,
    hyper_update,
)
from boundaryc.verify import hyper as definition

STREAMS, WIDTH, ROWS = 4, 16, 7
SETTINGS: dict[str, Any] = {"iterations": 20, "eps": 1e-6, "norm_eps": 1e-5}


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random numbers, equal for equal arguments."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def packed(seed: int, *, head: bool = False) -> Tensor:
    """Parameters of one stage in one matrix, see `verify.hyper`."""
    matrix = drawn(*definition.packed_shape(STREAMS, WIDTH, head=head), seed=seed)
    matrix[:, :-1] *= (STREAMS * WIDTH) ** -0.5
    return matrix


def test_hc1_row_j_of_the_matrix_makes_stream_j() -> None:
    """NVIDIA/Megatron-LM#4957: [1.1, 1.6], where the other reading gives [1.7, 1.3]."""
    mix, streams = torch.tensor([[0.9, 0.1, 0.4, 0.6]]), torch.tensor([[[1.0], [2.0]]])
    out = hyper_update(torch.ones(1, 1), streams, mix, torch.zeros(1, 2))

    torch.testing.assert_close(out, torch.tensor([[[1.1], [1.6]]]))


def test_hc1_an_output_is_weighed_for_each_stream() -> None:
    out = hyper_update(
        torch.full((1, 1), 10.0), torch.tensor([[[1.0], [2.0]]]),
        torch.eye(2).reshape(1, 4), torch.tensor([[0.5, 2.0]]),
    )  # fmt: skip

    assert out.tolist() == [[[6.0], [22.0]]]


def test_the_torch_path_is_the_definition() -> None:
    """A whole stage, stream by stream, in float64; the asymmetric matrix has one orientation."""
    streams, matrix = drawn(ROWS, STREAMS, WIDTH, seed=1), packed(2)
    x, (mix, post) = hyper_read(streams, definition.HyperParameter(matrix), **SETTINGS)
    own, kept = definition.read(streams, matrix, *SETTINGS.values())
    wrong = mix.view(-1, STREAMS, STREAMS).transpose(1, 2).flatten(1)

    torch.testing.assert_close(x, own, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mix, kept[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(post, kept[1], rtol=1e-12, atol=1e-12)
    assert (wrong - kept[0]).abs().max() > 0.01
    output = drawn(ROWS, WIDTH, seed=3)
    after = hyper_update(output, streams, mix, post)
    expected = definition.update(output, streams, *kept)
    torch.testing.assert_close(after, expected, rtol=1e-12, atol=1e-12)


def test_the_matrix_is_balanced() -> None:
    streams = drawn(ROWS, STREAMS, WIDTH, seed=1)
    _, (mix, _) = hyper_read(streams, definition.HyperParameter(packed(2)), **SETTINGS)
    matrix = mix.view(-1, STREAMS, STREAMS)

    for sums in (matrix.sum(dim=1), matrix.sum(dim=2)):
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=1e-4, atol=1e-4)


def test_both_ends_of_a_stack() -> None:
    hidden, streams = drawn(ROWS, WIDTH, seed=1), drawn(ROWS, STREAMS, WIDTH, seed=2)
    entered, head = hyper_enter(hidden, streams=STREAMS), packed(4, head=True)

    assert entered.shape == (ROWS, STREAMS, WIDTH)
    assert all(torch.equal(entered[:, index], hidden) for index in range(STREAMS))
    entered.zero_()
    assert hidden.any()
    torch.testing.assert_close(hyper_mean(streams), streams.mean(dim=1))
    own = hyper_head(streams, definition.HeadParameter(head), eps=1e-6, norm_eps=1e-5)
    expected = definition.head(streams, head, 1e-6, 1e-5)
    torch.testing.assert_close(own, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(rows: int) -> None:
    streams = drawn(rows, STREAMS, WIDTH)
    x, (mix, post) = hyper_read(streams, definition.HyperParameter(packed(2)), **SETTINGS)

    assert (x.shape, mix.shape, post.shape) == ((rows, WIDTH), (rows, 16), (rows, 4))
    assert hyper_update(x, streams, mix, post).shape == streams.shape
    assert hyper_mean(streams).shape == (rows, WIDTH)


def test_a_row_has_the_same_bits_among_others() -> None:
    """So they do not depend on where a plan reads; coefficients of narrow rows are float32."""
    streams = drawn(40, STREAMS, WIDTH, dtype=torch.bfloat16)
    own = definition.HyperParameter(packed(2))
    whole, kept = hyper_read(streams, own, **SETTINGS)
    after = hyper_update(whole, streams, *kept)

    assert whole.dtype == after.dtype == torch.bfloat16
    assert {part.dtype for part in kept} == {torch.float32}
    for part in (slice(0, 1), slice(3, 8), slice(11, 40)):
        x, some = hyper_read(streams[part], own, **SETTINGS)
        assert torch.equal(x, whole[part])
        assert all(torch.equal(a, b[part]) for a, b in zip(some, kept, strict=True))
        assert torch.equal(hyper_update(x, streams[part], *some), after[part])


def _spread(module: torch.nn.Module, seed: int) -> None:
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.copy_(0.3 * drawn(*parameter.shape, seed=seed + index))


def test_hugging_face_glm5_next() -> None:
    """Its own module of one stage, and the update that its decoder layer writes out."""
    models = pytest.importorskip("transformers.models.glm5_next.modeling_glm5_next")
    config = SimpleNamespace(
        hc_mult=STREAMS, hc_sinkhorn_iters=20, hc_eps=1e-6, rms_norm_eps=1e-5, hidden_size=WIDTH
    )
    module = models.Glm5NextTextHyperConnection(config)
    _spread(module, 11)
    streams = drawn(1, ROWS, STREAMS, WIDTH, seed=1, dtype=torch.float32)
    post, comb, collapsed = module(streams)
    x, kept = hyper_read(streams[0], module, **SETTINGS)
    output = drawn(ROWS, WIDTH, seed=3, dtype=torch.float32)
    after = post.unsqueeze(-1) * output.unsqueeze(-2) + torch.matmul(
        comb.transpose(-1, -2), streams
    )

    torch.testing.assert_close(x, collapsed[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kept[1], post[0], rtol=1e-5, atol=1e-5)
    own = hyper_update(output, streams[0], *kept)
    torch.testing.assert_close(own, after[0], rtol=1e-5, atol=1e-5)
    mean = models.Glm5NextTextHyperHead()(streams)[0]
    torch.testing.assert_close(hyper_mean(streams[0]), mean)


def test_hugging_face_learned_head() -> None:
    """The learned contraction of another model."""
    models = pytest.importorskip("transformers.models.deepseek_v4.modeling_deepseek_v4")
    config = SimpleNamespace(hc_mult=STREAMS, hc_eps=1e-6, rms_norm_eps=1e-5, hidden_size=WIDTH)
    head = models.DeepseekV4HyperHead(config)
    _spread(head, 17)
    streams = drawn(1, ROWS, STREAMS, WIDTH, seed=1, dtype=torch.float32)
    own = hyper_head(streams[0], head, eps=1e-6, norm_eps=1e-5)

    expected = head(streams)[0]
    torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-5)
