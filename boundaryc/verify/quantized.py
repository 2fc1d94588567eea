"""What a quantised input must be, from the definition of its formats, and how one is judged.

Nothing here is the runtime's: numbers of a format are listed, and a number is brought to the
nearest of them, the one with the even code where two are equally near.

Ranks compute scales in float32 from inputs that differ from the oracle's in their last bits, so a
code may be the other neighbour of a number that lies between two. Codes are judged by their
distance from the exact number; every other difference is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from boundaryc.language.model import Quantize

GROUP = 128
SCALE_ERROR = 2.0**-22
"""Largest relative error of a scale: two roundings to float32."""


def _fp8(code: int) -> float:
    """The number of a code of e4m3fn: 4 bits of exponent, 3 of mantissa; 127 is NaN."""
    exponent, mantissa = code >> 3, (code & 7) / 8
    return mantissa * 2.0**-6 if exponent == 0 else (1 + mantissa) * 2.0 ** (exponent - 7)


NUMBERS = {
    "fp8": torch.tensor([_fp8(code) for code in range(127)], dtype=torch.float64),
    "int8": torch.arange(128, dtype=torch.float64),
}
"""The numbers of each format from 0 on, in the order of their codes."""
DTYPES = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}


@dataclass(frozen=True, slots=True)
class Quantized:
    """The quantised input of all tokens.

    ``exact`` [tokens, width] is what was quantised; ``scales`` are [tokens, 1], [tokens, groups] or
    [] where the model gives one; ``numbers`` [tokens, width] is what values and scales stand for.
    All are float64.
    """

    exact: Tensor
    scales: Tensor
    numbers: Tensor


def quantized(how: Quantize, x: Tensor, params: Mapping[str, Tensor]) -> Quantized:
    """The input ``x`` [tokens, width], float64, quantised."""
    largest = NUMBERS[how.format][-1]
    if how.scale == "static":
        scales = params["input_scale"].to(x.dtype)
    else:
        peaks = _blocks(how, x).abs().amax(dim=-1) / largest
        scales = torch.where(peaks < torch.finfo(torch.float32).tiny, 1.0, peaks)
    whole = _spread(scales, x.shape[-1])
    return Quantized(x, scales, _nearest(x / whole, how.format) * whole)


def judged(
    how: Quantize, values: Tensor, scales: Tensor, expected: Quantized, tokens: Tensor
) -> str | None:
    """What is wrong with the values and scales of some ``tokens``; None where nothing is."""
    if values.dtype is not DTYPES[how.format] or scales.dtype is not torch.float32:
        return f"values are {values.dtype} and scales {scales.dtype}"
    right = expected.scales if how.scale == "static" else expected.scales[tokens]
    if scales.shape != right.shape or values.shape != (len(tokens), expected.exact.shape[1]):
        return f"values are {list(values.shape)} and scales {list(scales.shape)}"
    if not bool(((scales.double() - right).abs() <= SCALE_ERROR * right).all()):
        return "a scale is wrong"
    asked = expected.exact[tokens] / _spread(right, expected.exact.shape[1])
    largest = NUMBERS[how.format][-1]
    asked = asked.clamp(-largest, largest)
    least = (_nearest(asked, how.format) - asked).abs()
    slack = 4 * SCALE_ERROR * asked.abs() + 1e-9
    if not bool(((values.double() - asked).abs() <= least + slack).all()):
        return "a value is not the nearest one"
    return None


def stands_for(values: Tensor, scales: Tensor) -> Tensor:
    """The float64 numbers of values and scales, [rows, width]."""
    return values.double() * _spread(scales.double(), values.shape[1])


def _blocks(how: Quantize, x: Tensor) -> Tensor:
    """The numbers that share a scale, as the last dimension."""
    size = GROUP if how.scale == "group128" else x.shape[-1]
    blocks: Tensor = x.unflatten(-1, (x.shape[-1] // size, size))
    return blocks


def _spread(scales: Tensor, width: int) -> Tensor:
    """Scales as one for each number: [rows, width], or [] as it is."""
    if scales.dim() == 0:
        return scales
    return scales.repeat_interleave(width // scales.shape[-1], dim=-1)


def _nearest(x: Tensor, form: str) -> Tensor:
    """Each number of ``x`` as the nearest of a format; beyond its range the largest."""
    known = NUMBERS[form]
    middles = (known[1:] + known[:-1]) / 2
    size = x.abs().clamp(max=known[-1])
    code = torch.bucketize(size, middles)  # of two equally near ones the lower
    tied = size == middles[code.clamp(max=len(middles) - 1)]
    code = code + (tied & (code % 2 == 1)).long()
    return known[code] * torch.sign(x)
