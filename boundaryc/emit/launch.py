"""How a row-wise kernel runs, decided from the width of its rows.

A program has one row and loads it at once. Several rows a program, a row in blocks that fit exactly
and other counts for few rows were measured on an H200 beside this, for bfloat16 rows of 2,048 to
16,384 columns: none was faster by more than the runs differ, or nowhere by more than 5 %.
"""

from __future__ import annotations

from boundaryc.plan.kernels import RowKernel

AGAIN_FROM = 8192
"""From so many rows on a kernel that adds and norms reads its row once more, out of the cache.

What is read for the last time is the first to leave the cache, which then has room for what is
written: 2 to 4 % of the time of 8,192 rows and more, where fewer rows take 4 to 20 % longer.
"""


def reads_again(kernel: RowKernel) -> bool:
    """Whether a kernel may read its row once more instead of keeping it."""
    return kernel.adds and kernel.norm is not None and kernel == RowKernel(kernel.norm, adds=True)


def warps(width: int, *, quantizes: bool = False) -> int:
    """The warps of a program; a thread has eight values, 16 bytes of bfloat16, or more.

    Where rows are quantised, more warps wait longer for one another. A block of which much is
    beyond the row does not fill them.

    >>> [warps(width) for width in (64, 2048, 5120, 8192)]
    [1, 8, 8, 16]
    """
    block = 1 << (width - 1).bit_length()
    most = 8 if quantizes or width < 4096 or 4 * width < 3 * block else 16
    return max(1, min(most, block // 256))


def warps_of_two(width: int) -> int:
    """The warps of a program with two norms, which wait for one another twice: fewer.

    >>> [warps_of_two(width) for width in (64, 2048, 4096, 8192, 16384)]
    [1, 4, 8, 4, 8]
    """
    block = 1 << (width - 1).bit_length()
    return max(1, block // (2048 if loads_late(width) else 512))


def loads_late(width: int) -> bool:
    """Whether a program with two norms loads the second's parameters only after the first.

    Its threads have 64 values then, beside which they have no room for both.
    """
    return width > 4096
