"""The plain kernel with a second reduction behind its first, and nothing else added.

What a sandwich cannot fall below: the sum of its second norm needs the first norm's scale. Here it
is a product and a sum of squares more for each number; a sandwich also has a weight to apply and a
result to round in between.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

EPS = tl.constexpr(1e-6)


@triton.jit
def _two_reductions(
    x: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    total: tl.tensor,
    WIDTH: tl.constexpr,  # noqa: N803 - a compile-time constant
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    factor = tl.load(weight + column, mask=inside, other=0.0)
    tl.extra.cuda.gdc_wait()
    tl.extra.cuda.gdc_launch_dependents()
    value = tl.load(x + row * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(residual + row * WIDTH + column, mask=inside, other=0.0)
    value = value + before.to(tl.float32)
    tl.store(total + row * WIDTH + column, value, mask=inside)
    value = value * tl.rsqrt(tl.sum(value * value) / WIDTH + EPS)
    scale = tl.rsqrt(tl.sum(value * value) / WIDTH + EPS)
    tl.store(out + row * WIDTH + column, value * scale * factor.to(tl.float32), mask=inside)


def two_reductions(given: list[Tensor], warps: int) -> tuple[Tensor, Tensor]:
    """Launches it for x, residual and weight, with as many warps as the plain kernel."""
    x, residual, weight = given
    rows, width = x.shape
    out, total = x.new_empty(x.shape), x.new_empty(x.shape)
    block = triton.next_power_of_2(width)
    options = {"num_warps": warps, "launch_pdl": True, "enable_fp_fusion": False}
    _two_reductions[(rows,)](x, residual, weight, out, total, width, block, **options)
    return out, total
