"""Rounding is declared: where a sum is rounded, and that nothing else is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import add, add_rms_norm, rms_norm


def bf16(*values: float) -> Tensor:
    """One row."""
    return torch.tensor([values], dtype=torch.bfloat16)


def test_rd1_a_sum_is_rounded_before_the_residual_is_added() -> None:
    """1 + 2**-8 rounds to 1; adding 2**-8 then gives 1, where one rounding gives 1.0078125."""
    partials, residual = bf16(1.0) + bf16(2.0**-8), bf16(2.0**-8)
    weight = torch.ones(1)

    after_sum = add_rms_norm(partials, residual, weight, 0.0)[1]
    single = add_rms_norm(torch.tensor([[1.0 + 2.0**-8]]), residual.float(), weight, 0.0)[
        1
    ].bfloat16()

    assert add(partials, residual).item() == after_sum.item() == 1.0
    assert single.item() == 1.0078125


def test_rd3_a_materialised_sum_is_what_the_norm_reads() -> None:
    """Rounded, it equals add, then norm, bit for bit over 8 layers; unrounded it does not."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.rand(64, generator=generator) + 0.5
    fused = separate = torch.randn((8, 64), generator=generator).bfloat16()
    differs = False
    for _ in range(8):
        x = torch.randn((8, 64), generator=generator).bfloat16()
        unrounded, _ = add_rms_norm(x, fused, weight, 1e-6, 0.5)
        read, fused = add_rms_norm(x, fused, weight, 1e-6, 0.5, "rounded")
        separate = add(x, separate, 0.5)
        assert fused.equal(separate)
        assert read.equal(rms_norm(separate, weight, 1e-6))
        differs |= not unrounded.equal(read)
    assert differs


def test_nm1_an_offset_is_added_to_a_weight_in_float32() -> None:
    """linkedin/Liger-Kernel#1462: 1 + 0.00390625 is 1 in bfloat16."""
    ones, weight = torch.ones(1, 4), torch.full((4,), 0.00390625, dtype=torch.bfloat16)
    expected = [[1.00390625] * 4]

    assert rms_norm(ones, weight, 0.0, 1.0).tolist() == expected
    assert add_rms_norm(ones, ones, weight, 0.0, offset=1.0)[0].tolist() == expected
    assert rms_norm(ones, weight, 0.0).tolist() == [[0.00390625] * 4]
    zero = rms_norm(ones, torch.zeros(4, dtype=torch.bfloat16), 0.0, 1.0)
    assert zero.equal(ones)


def test_rd4_a_long_chain_of_additions_does_not_drift() -> None:
    """72 additions in bfloat16: the mean signed error stays within half a percent of float64."""
    generator = torch.Generator().manual_seed(2)
    residual = exact = torch.zeros((64, 256), dtype=torch.float64)
    residual = residual.bfloat16()
    for _ in range(72):
        x = torch.rand((64, 256), generator=generator).bfloat16()
        residual = add(x, residual)
        exact = exact + x.double()
    error = ((residual.double() - exact) / exact).mean().item()
    assert abs(error) < 0.005

    truncated = torch.zeros((64, 256))
    generator.manual_seed(2)
    for _ in range(72):
        x = torch.rand((64, 256), generator=generator).bfloat16()
        total = (truncated + x.float()).view(torch.int32) & -65536
        truncated = total.view(torch.float32)
    # What the test is for: truncating each time is biased.
    assert ((truncated.double() - exact) / exact).mean().item() < -0.005


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [0, 3])
def test_a_scaled_update_is_rounded_once(dtype: torch.dtype, rows: int) -> None:
    """``x * scale + residual`` in wider numbers, then one rounding."""
    generator = torch.Generator().manual_seed(3)
    x, residual = (
        torch.randn((rows, 16), generator=generator, dtype=torch.float64).to(dtype)
        for _ in range(2)
    )
    wide = torch.promote_types(dtype, torch.float32)
    expected = (x.to(wide) * 0.22 + residual.to(wide)).to(dtype)

    read, written = add_rms_norm(x, residual, torch.ones(16), 1e-6, 0.22)

    assert add(x, residual, 0.22).equal(expected)
    assert written.equal(expected)
    assert read.dtype is dtype


def test_ex1_rounding_each_addition_depends_on_the_order() -> None:
    """In bfloat16: (h + extra) + residual is 1.015625, (h + residual) + extra 1.0078125."""
    h, extra, residual = bf16(1.0), bf16(2.0**-7), bf16(2.0**-8)
    assert add(add(extra, h), residual).item() == 1.015625
    assert add(extra, add(h, residual)).item() == 1.0078125
