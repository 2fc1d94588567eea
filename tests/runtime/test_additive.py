"""Replicated terms of a sum: what may be one, how it is added, and what a loader added."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from boundaryc.runtime import Additive, add_term

WIDE = torch.full((4,), 1 + 2**-9)
"""What bfloat16 rounds to 1."""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("other", [torch.bfloat16, torch.float32, torch.float64])
def test_the_sum_has_the_dtype_of_the_output(dtype: torch.dtype, other: torch.dtype) -> None:
    """Ranks that add a term and ranks that do not sum the same dtype."""
    assert add_term(torch.ones(3, 4, dtype=dtype), torch.ones(4, dtype=other)).dtype is dtype


def test_a_wider_term_is_rounded_once_with_the_sum() -> None:
    hidden = torch.full((3, 4), 2**-9, dtype=torch.bfloat16)

    assert add_term(hidden, WIDE).eq(1).all()  # 1 + 2**-8 is half way and goes to even
    assert add_term(hidden * 2, WIDE).eq(1 + 2**-7).all()
    assert (hidden * 2 + WIDE.bfloat16()).eq(1).all()


def test_a_part_of_a_term() -> None:
    whole = add_term(torch.zeros(3, 4), torch.full((3, 4), 6.0), 3)
    assert whole.eq(2).all()


@pytest.mark.parametrize("shape", [(), (1,), (1, 4), (3, 1), (2, 3, 4), (4, 4), (5,)])
def test_a_term_that_torch_would_broadcast_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"does not fit an output of shape \[3, 4\]"):
        add_term(torch.zeros(3, 4), torch.zeros(shape))


@pytest.mark.parametrize("term", [None, 1.5, torch.zeros(4, dtype=torch.int32)])
def test_a_term_is_a_floating_tensor(term: Any) -> None:
    with pytest.raises(TypeError, match="an additive term is a floating tensor"):
        add_term(torch.zeros(3, 4), term)


@pytest.mark.parametrize(
    ("shares", "term", "message"),
    [
        ([torch.zeros(0)], torch.zeros(0), "floating and not empty"),
        ([torch.ones(4)], torch.ones(4, dtype=torch.int64), "floating and not empty"),
        ([], torch.ones(4), "there are no shares"),
        ([torch.ones(4), torch.ones(1)], torch.ones(4), r"the share of rank 1 is \[1\]"),
    ],
)
def test_what_cannot_be_checked_is_said(shares: Any, term: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^bias: .*{message}"):
        Additive("bias", "divided").check(shares, term)
