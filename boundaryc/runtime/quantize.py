"""Quantised inputs and sums. Values are [rows, width], scales float32; value * scale is the number.

Scales are computed and divided by in float32, so that no magnitude of a 16-bit input is out of
reach. Any number of rows works, and a block of zeros has scale 1.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from boundaryc.runtime.collectives import Collective, Sizes

Fp8Scale = Literal["token", "group128", "static"]
Format = Literal["fp8", "int8"]

GROUP = 128
"""Columns that share a scale in "group128" and in quantised sums."""

_FP8_MAX = 448.0  # of float8_e4m3fn
_INT8_MAX = 127.0
_TINY = torch.finfo(torch.float32).tiny


def quantize_fp8(
    x: Tensor, granularity: Fp8Scale = "token", scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``x`` as float8_e4m3fn and its scales.

    Scales are [rows, 1] by token, [rows, width / 128] by "group128", and for "static" the given
    ``scale`` itself, float32 []; values beyond its range saturate. ValueError where the width is no
    multiple of 128, where exactly "static" does not come with a scale, and for a scale that is
    something else or on another device.
    """
    if (granularity == "static") != (scale is not None):
        raise ValueError("a scale is given for `static` quantisation and for no other")
    wide = x.to(torch.float32)
    if scale is not None:
        _check_static(scale, x.device)
        return _fp8(wide / scale), scale
    if granularity == "token":
        scales = _scales(wide, _FP8_MAX)
        return _fp8(wide / scales), scales
    if x.shape[-1] % GROUP:
        raise ValueError(f"{x.shape[-1]} columns are not whole groups of {GROUP}")
    blocks = wide.unflatten(-1, (x.shape[-1] // GROUP, GROUP))  # of any strides
    scales = _scales(blocks, _FP8_MAX)
    return _fp8(blocks / scales).flatten(-2), scales.squeeze(-1)


def _check_static(scale: object, device: torch.device) -> None:
    if not isinstance(scale, Tensor):
        found = f"a {type(scale).__name__}"
    elif scale.dtype is torch.float32 and scale.dim() == 0 and scale.device == device:
        return
    else:
        found = f"{scale.dtype} {list(scale.shape)} on {scale.device}"
    raise ValueError(f"a static `input_scale` is a float32 tensor [] on {device}, not {found}")


def quantize_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """``x`` as int8, symmetric, and its scales [rows, 1]."""
    wide = x.to(torch.float32)
    scales = _scales(wide, _INT8_MAX)
    return _int8(wide / scales), scales


def dequantize(values: Tensor, scales: Tensor) -> Tensor:
    """The float32 numbers that quantised ``values`` stand for; scales as they came with them."""
    wide = values.to(torch.float32)
    if scales.dim() == 0 or scales.shape[-1] == 1:
        return wide * scales
    blocks: Tensor = wide.unflatten(-1, (scales.shape[-1], GROUP))
    return (blocks * scales.unsqueeze(-1)).flatten(-2)


def quantized_all_reduce(x: Tensor, group: Collective, form: Format = "int8") -> Tensor:
    """The sum of ``x`` [rows, width] over ``group``, which travels with a scale per 128 columns.

    Two members exchange their quantised parts and add them in float32. More members would send
    each part to all others: they sum and scatter rows unquantised, each quantises the rows that it
    summed, and those are gathered, in 3/4 of an all-reduce's bytes for groups of any size.

    In a block of 128 columns an int8 is off by at most 1/254 of the largest value of what is
    quantised, an e4m3fn by 1/16 of itself or 2^-10 / 448 of that largest value. All members have
    equal results bit for bit. All call this or none: whether a sum may be quantised is decided from
    what all ranks know. No rows are sent where there are none.
    """
    rows, width = x.shape
    if group.size == 1 or not rows:
        return x
    if group.size == 2:
        values, scales = _blocks(x, form)
        parts = _numbers(group.all_gather(values), group.all_gather(scales))
        return parts.view(2, rows, width).sum(dim=0).to(x.dtype)
    sizes = _shared_out(rows, group.size)
    values, scales = _blocks(group.reduce_scatter(x, sizes), form)
    values, scales = group.all_gather(values, sizes), group.all_gather(scales, sizes)
    return _numbers(values, scales).to(x.dtype)


def _shared_out(rows: int, members: int) -> Sizes | None:
    """About as many rows for each member; None where it is as many for all."""
    each, more = rows // members, rows % members
    return tuple(each + int(member < more) for member in range(members)) if more else None


def _blocks(x: Tensor, form: Format) -> tuple[Tensor, Tensor]:
    """``x`` [rows, width] as values of its shape and scales [rows, blocks]; the last is shorter."""
    rows, width = x.shape
    padded = torch.nn.functional.pad(x.to(torch.float32), (0, -width % GROUP))
    blocks = padded.view(rows, padded.shape[-1] // GROUP, GROUP)
    scales = _scales(blocks, _FP8_MAX if form == "fp8" else _INT8_MAX)
    values = (_fp8 if form == "fp8" else _int8)(blocks / scales)
    return values.flatten(-2)[:, :width], scales.squeeze(-1)


def _numbers(values: Tensor, scales: Tensor) -> Tensor:
    """The float32 numbers of `_blocks`."""
    return values.to(torch.float32) * scales.repeat_interleave(GROUP, dim=-1)[:, : values.shape[-1]]


def _scales(x: Tensor, largest: float) -> Tensor:
    """What ``largest`` stands for in each block of the last dimension, which stays with size 1."""
    peaks = x.abs().amax(dim=-1, keepdim=True)
    # A GPU divides by a Python number as it multiplies with the reciprocal: off by a bit.
    peaks = peaks / torch.full_like(peaks, largest)
    return torch.where(peaks < _TINY, torch.ones_like(peaks), peaks)


def _fp8(x: Tensor) -> Tensor:
    return x.clamp(-_FP8_MAX, _FP8_MAX).to(torch.float8_e4m3fn)


def _int8(x: Tensor) -> Tensor:
    return x.round().clamp(-_INT8_MAX, _INT8_MAX).to(torch.int8)
