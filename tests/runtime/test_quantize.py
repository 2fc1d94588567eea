"""Quantised reads: values and float32 scales, safe for no rows and for rows of zeros."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import dequantize, quantize_fp8, quantize_int8


def random(rows: int, width: int = 256, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Random numbers of very different sizes by row, the last row zero."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn((rows, width), generator=generator)
    if rows:
        x = x * torch.logspace(-4, 3, rows)[:, None]
        x[-1] = 0
    return x.to(dtype)


@pytest.mark.parametrize("rows", [0, 1, 6])
@pytest.mark.parametrize("granularity", ["token", "group128"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_fp8_is_close_in_every_block(rows: int, granularity: str, dtype: torch.dtype) -> None:
    """Each number within a sixteenth of itself or a little of its block; the peak is exact."""
    x = random(rows, dtype=dtype)
    before = x.clone()
    values, scales = quantize_fp8(x, granularity)  # type: ignore[arg-type]

    assert x.equal(before)
    assert values.dtype is torch.float8_e4m3fn
    assert values.shape == x.shape
    assert scales.dtype is torch.float32
    assert scales.shape == (rows, 1 if granularity == "token" else 2)
    restored = dequantize(values, scales)
    blocks = x.float().unflatten(1, (scales.shape[1], -1))
    peaks = blocks.abs().amax(-1, keepdim=True)
    error = (restored.unflatten(1, (scales.shape[1], -1)) - blocks).abs()
    assert (error <= blocks.abs() / 16 + peaks * 2**-9 / 448).all()
    largest = values.float().unflatten(1, (scales.shape[1], -1)).abs().amax(-1, keepdim=True)
    assert largest[peaks > 0].eq(448).all()
    assert restored.isfinite().all()


@pytest.mark.parametrize("rows", [0, 1, 6])
def test_int8_by_token(rows: int) -> None:
    """Within half a step of the row's scale, the peak 127 of either sign."""
    x = random(rows)
    values, scales = quantize_int8(x)

    assert (values.dtype, scales.dtype) == (torch.int8, torch.float32)
    assert scales.shape == (rows, 1)
    assert ((dequantize(values, scales) - x.float()).abs() <= scales * 0.5001).all()
    peaks = values.int().abs().amax(-1)
    assert peaks[x.float().abs().amax(-1) > 0].eq(127).all()


def test_a_static_scale_saturates() -> None:
    """Numbers beyond 448 scales are the largest ones, never NaN."""
    x = torch.tensor([[1.0, -2.0, 1000.0, -1e6]])
    scale = torch.tensor(0.5)
    values, scales = quantize_fp8(x, "static", scale)

    assert scales is scale
    assert dequantize(values, scales).tolist() == [[1.0, -2.0, 224.0, -224.0]]


def test_rows_of_zeros_and_of_the_smallest_numbers() -> None:
    """Zeros stay zeros with scale 1; subnormal scales do not divide by nothing."""
    x = torch.zeros((3, 128))
    x[1] = torch.finfo(torch.float32).tiny * 1e-5
    x[2] = 1e-30
    for values, scales in (
        quantize_fp8(x, "token"),
        quantize_fp8(x, "group128"),
        quantize_int8(x),
    ):
        restored = dequantize(values, scales)
        assert scales[0].item() == 1.0
        assert restored[0].eq(0).all()
        assert restored.isfinite().all()
        torch.testing.assert_close(restored[2], x[2], rtol=0.01, atol=0)


def test_what_does_not_fit_is_refused() -> None:
    """A width that is not whole groups, and a scale where none or one is needed."""
    with pytest.raises(ValueError, match="200 columns are not whole groups of 128"):
        quantize_fp8(random(2, 200), "group128")
    with pytest.raises(ValueError, match="given for `static`"):
        quantize_fp8(random(2), "static")
    with pytest.raises(ValueError, match="given for `static`"):
        quantize_fp8(random(2), "token", torch.tensor(1.0))


@pytest.mark.parametrize(
    "scale",
    [
        torch.ones(1),
        torch.ones(5, 1),
        torch.tensor(0.5, dtype=torch.float64),
        torch.tensor(0.5, dtype=torch.bfloat16),
        torch.tensor(0.5, device="meta"),
        0.5,
    ],
)
def test_a_static_scale_is_one_float32_number(scale: Any) -> None:
    with pytest.raises(ValueError, match=r"`input_scale` is a float32 tensor \[\] on cpu, not"):
        quantize_fp8(torch.ones(5, 128), "static", scale)
