"""How a row-wise kernel runs, decided from the width of its rows.

A program has one row and loads it at once. Several rows a program, a row in blocks that fit exactly
and other counts for few rows were measured on an H200 beside this, for bfloat16 rows of 2,048 to
16,384 columns: none was faster by more than the runs differ, or nowhere by more than 5 %.
"""

from __future__ import annotations

from boundaryc.plan.kernels import RowKernel


def reads_again(kernel: RowKernel, width: int) -> bool:
    """Whether a kernel may read its row once more, out of the cache, instead of keeping it."""
    plain = kernel.norm is not None and kernel == RowKernel(kernel.norm, adds=True)
    return plain and again_from(width) is not None


def again_from(width: int) -> int | None:
    """From how many rows on that pays; None where it never does.

    What is read for the last time is the first to leave the cache, which then has room for what is
    written: 2 to 4 % of the time of 32,768 rows, where fewer rows take up to 20 % longer.

    >>> [again_from(width) for width in (4096, 5120, 7168, 8192, 16384)]
    [8192, 32768, None, 8192, None]
    """
    block = _block(width)
    if width == block and width <= 8192:
        return 8192
    return 32768 if width < 8192 and not _fills(width) else None


def warps(width: int, *, quantizes: bool = False) -> int:
    """The warps of a program; a thread has eight values, 16 bytes of bfloat16, or more.

    Where rows are quantised, more warps wait longer for one another. A block of which much is
    beyond the row does not fill them.

    >>> [warps(width) for width in (64, 2048, 5120, 8192)]
    [1, 8, 8, 16]
    """
    block = _block(width)
    most = 8 if quantizes or width < 4096 or not _fills(width) else 16
    return max(1, min(most, block // 256))


def warps_of_two(width: int, *, quantizes: bool = False) -> int:
    """The warps of a program with two norms, which wait for one another twice: fewer.

    >>> [warps_of_two(width) for width in (64, 2048, 4096, 5120, 8192, 16384)]
    [1, 4, 8, 8, 4, 16]
    """
    block = _block(width)
    if quantizes or block <= 4096:
        return max(1, min(16, block // 512))
    return 4 if block == 8192 and _fills(width) else block // 1024


def warps_to_finalize(width: int) -> int:
    """The warps of a program that adds up the rows of experts, of which it has several in flight.

    The more of a block is beyond the row, the fewer were fastest.

    >>> [warps_to_finalize(width) for width in (64, 2048, 4096, 5120, 7168, 8192)]
    [1, 8, 16, 4, 8, 16]
    """
    block = _block(width)
    most = 16 if width == block else 8 if _fills(width) else 4
    return max(1, min(most, block // 256))


def loads_late(kernel: RowKernel, width: int) -> bool:
    """Whether a program with two norms loads the second's parameters only after the first.

    Its threads have 32 or 64 values then, beside which they have no room for both.
    """
    two = kernel.norm is not None and kernel.output_norm is not None
    return two and kernel.quantize is None and width > 4096


def _block(width: int) -> int:
    """The power of two of columns that a program has."""
    return 1 << (width - 1).bit_length()


def _fills(width: int) -> bool:
    """Whether no more than a quarter of a block is beyond the row."""
    return 4 * width >= 3 * _block(width)
