"""Row-wise operations against float64, in every dtype, and without touching their arguments."""

from __future__ import annotations

import pytest
import torch

from boundaryc.runtime import add, add_layer_norm, add_rms_norm, join, layer_norm, rms_norm

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
EPS = 1e-6


def random(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def exact(total: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The norm of ``total`` in float64."""
    total, weight = total.double(), weight.double()
    return torch.nn.functional.rms_norm(total, total.shape[-1:], weight, EPS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_norm_and_add(rows: int, dtype: torch.dtype) -> None:
    """Equal to float64, rounded once; float64 itself is exact; arguments keep their values."""
    x, residual = random(rows, 8, dtype=dtype, seed=1), random(rows, 8, dtype=dtype, seed=2)
    weight = random(8, dtype=dtype, seed=3)
    before = [tensor.clone() for tensor in (x, residual, weight)]
    total = x.double() + residual.double()

    normed = rms_norm(x, weight, EPS)
    added, written = add_rms_norm(x, residual, weight, EPS)

    tolerance = {"rtol": 4e-7, "atol": 4e-7} if dtype is torch.float32 else {}
    if dtype is torch.float64:
        tolerance = {"rtol": 1e-14, "atol": 1e-14}
    torch.testing.assert_close(normed, exact(x, weight).to(dtype), **tolerance)
    torch.testing.assert_close(added, exact(total, weight).to(dtype), **tolerance)
    assert written.equal(total.to(dtype))
    assert add(x, residual).equal(total.to(dtype))
    for tensor, kept in zip((x, residual, weight), before, strict=True):
        assert tensor.equal(kept)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biased", [True, False])
def test_a_layer_norm_is_torchs(dtype: torch.dtype, biased: bool) -> None:
    """Of a tensor and of a sum, for rows far from zero too; rounded once."""
    x, residual = random(5, 8, dtype=dtype, seed=1) + 3, random(5, 8, dtype=dtype, seed=2)
    weight = random(8, dtype=dtype, seed=3)
    bias = random(8, dtype=dtype, seed=4) if biased else None
    wide = {"weight": weight.double() + 1, "bias": None if bias is None else bias.double()}
    total = x.double() * 0.5 + residual.double()

    normed = layer_norm(x, weight, EPS, 1.0, bias)
    added, written = add_layer_norm(x, residual, weight, EPS, 0.5, "fp32", 1.0, bias)

    tolerance = {"rtol": 1e-6, "atol": 1e-6} if dtype is torch.float32 else {}
    if dtype is torch.float64:
        tolerance = {"rtol": 1e-13, "atol": 1e-13}
    for found, exactly in ((normed, x.double()), (added, total)):
        expected = torch.nn.functional.layer_norm(exactly, (8,), **wide, eps=EPS)
        torch.testing.assert_close(found, expected.to(dtype), **tolerance)
    assert written.equal(total.to(dtype))
    with pytest.raises(ValueError, match="has a bias"):
        layer_norm(x, weight, EPS, bias=torch.ones(1))


def test_the_norm_sees_the_unrounded_sum() -> None:
    """1 + 2**-9 has no bfloat16: the residual is rounded, what is normed is not."""
    x = torch.tensor([[2.0**-9, 0.0]], dtype=torch.bfloat16)
    residual = torch.tensor([[1.0, 1.0]], dtype=torch.bfloat16)
    weight = torch.tensor([256.0, 256.0])

    normed, written = add_rms_norm(x, residual, weight, 0.0)
    rounded = rms_norm(written, weight, 0.0)

    assert written.tolist() == [[1.0, 1.0]]
    assert rounded.tolist() == [[256.0, 256.0]]
    expected = exact(x.double() + residual.double(), weight).to(torch.bfloat16)
    assert normed.equal(expected)


def test_a_wide_residual_keeps_its_dtype() -> None:
    """A float32 residual under a bfloat16 model is neither narrowed nor read narrowed."""
    x = random(3, 8, dtype=torch.bfloat16, seed=1)
    residual, weight = random(3, 8, dtype=torch.float32, seed=2), torch.ones(8)

    normed, written = add_rms_norm(x, residual, weight, EPS)

    assert (normed.dtype, written.dtype) == (torch.bfloat16, torch.float32)
    assert written.equal(x.float() + residual)
    assert add(x, residual).equal(written)
    assert join(x, residual).equal(written.bfloat16())
