"""How many warps a program of a row-wise kernel has, decided from the width of its rows.

A program has one row and loads it at once. Several rows a program, a row in blocks that fit exactly
and other counts for few rows were measured on an H200 beside this, for bfloat16 rows of 2,048 to
16,384 columns: none was faster by more than the runs differ, or nowhere by more than 5 %.
"""

from __future__ import annotations


def warps(width: int, *, quantizes: bool) -> int:
    """The warps of a program; a thread has eight values, 16 bytes of bfloat16, or more.

    Where rows are quantised, more warps wait longer for one another. A block of which much is
    beyond the row does not fill them.

    >>> [warps(width, quantizes=False) for width in (64, 2048, 5120, 8192)]
    [1, 8, 8, 16]
    """
    block = 1 << (width - 1).bit_length()
    most = 8 if quantizes or width < 4096 or 4 * width < 3 * block else 16
    return max(1, min(most, block // 256))
