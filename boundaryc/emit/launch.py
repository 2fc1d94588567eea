"""How a row-wise kernel runs, decided from the width of its rows.

A program has one row and loads it at once. Several rows a program, a row in blocks that fit exactly
and other counts for few rows were measured on an H200 beside this, for bfloat16 rows of 2,048 to
16,384 columns: none was faster by more than the runs differ, or nowhere by more than 5 %.
"""

from __future__ import annotations

from typing import Literal

from boundaryc.plan.kernels import RowKernel

Late = Literal["", "most", "all"]
"""What waits for a norm of the output: nothing, all but its own weights, or those too."""


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
    few = block <= 8192 if quantizes else width < 4096 or not _fills(width)
    return max(1, min(8 if few else 16, block // 256))


def warps_of_post_norm(width: int) -> int:
    """The warps of a program with a norm of the output alone, whose sum is nearly all it waits for.

    >>> [warps_of_post_norm(width) for width in (64, 2048, 4096, 7168, 16384)]
    [1, 4, 8, 8, 16]
    """
    block = _block(width)
    return max(1, min(8 if block <= 8192 else 16, block // 512))


def warps_of_two(width: int, *, quantizes: bool = False) -> int:
    """The warps of a program with two norms, which wait for one another twice: fewer.

    >>> [warps_of_two(width) for width in (64, 2048, 4096, 5120, 8192, 16384)]
    [1, 4, 8, 8, 8, 16]
    """
    block = _block(width)
    if quantizes or block <= 4096:
        return max(1, min(16, block // 512))
    return block // 1024


def warps_late(width: int) -> int:
    """The warps of a program with two norms that loads late.

    >>> [warps_late(width) for width in (4096, 7168, 16384)]
    [4, 8, 16]
    """
    return 4 if _block(width) == 4096 else warps_of_two(width)


def warps_to_finalize(width: int) -> int:
    """The warps of a program that adds up the rows of experts, of which it has several in flight.

    The more of a block is beyond the row, the fewer were fastest.

    >>> [warps_to_finalize(width) for width in (64, 2048, 4096, 5120, 7168, 8192)]
    [1, 8, 16, 4, 8, 16]
    """
    block = _block(width)
    most = 16 if width == block else 8 if _fills(width) else 4
    return max(1, min(most, block // 256))


def loads_late(kernel: RowKernel, width: int) -> Late:
    """What a program with a norm of the output loads only when it is needed, of many rows.

    Where its threads have 32 values, the residual and the second norm's weights find no room beside
    them; the first's neither where there are 16 warps of such threads or four programs are to run
    at once. Another program runs in that room, and its loads are under way meanwhile.

    >>> both = RowKernel("rms_norm", adds=True, output_norm="rms_norm")
    >>> [loads_late(both, width) for width in (2048, 4096, 5120, 7168, 8192, 16384)]
    ['', 'all', 'most', 'all', 'most', 'all']
    """
    block = _block(width)
    if kernel.output_norm is None or not kernel.adds or kernel.quantize is not None:
        return ""
    if block > 8192:
        return "all"
    if kernel.norm is None or block < 4096:
        return ""
    return "all" if block == 4096 or (width < block and _fills(width)) else "most"


def late_from(width: int) -> int:
    """From how many rows on loading late pays: when programs have to share multiprocessors.

    >>> [late_from(width) for width in (4096, 5120, 7168, 16384)]
    [4096, 256, 512, 256]
    """
    block = _block(width)
    if block == 4096:
        return 4096
    return 512 if block == 8192 and _fills(width) else 256


def registers_late(width: int) -> int | None:
    """How many registers a thread of a program may have that loads late; None for any number.

    So many that four programs with rows that end inside of a block of 8,192 columns share a
    multiprocessor, three whose rows fill it, and two of 16,384.

    >>> [registers_late(width) for width in (4096, 5120, 8192, 16384)]
    [None, 64, 80, 64]
    """
    block = _block(width)
    if block == 4096:
        return None
    return 80 if width == block == 8192 else 64


def rounds_pairs(kernel: RowKernel, width: int) -> bool:
    """Whether the norm of an output is rounded two values at a time where loads are late.

    One by one they wait for each other in the same unit; but pairs take registers, and there are
    enough only where all loads are late and threads are bounded.

    >>> both = RowKernel("rms_norm", adds=True, output_norm="rms_norm")
    >>> [rounds_pairs(both, width) for width in (4096, 5120, 7168, 8192, 16384)]
    [False, False, True, False, True]
    """
    return loads_late(kernel, width) == "all" and registers_late(width) is not None


def registers(width: int) -> int | None:
    """How many registers a thread of a `bounded` kernel may have; None where no kernel is.

    So many that four programs of 4,096 columns share a multiprocessor, three of 8,192 and two of
    16,384.

    >>> [registers(width) for width in (2048, 4096, 7168, 16384)]
    [None, 64, 80, 64]
    """
    block = _block(width)
    return {4096: 64, 8192: 80, 16384: 64}.get(block)


def bounded(kernel: RowKernel, width: int) -> bool:
    """Whether a kernel runs faster with few registers, measured for RMS norms."""
    if kernel.quantize is None or kernel.norm != "rms_norm" or kernel.output_norm is not None:
        return False
    more = kernel.finalize or kernel.addition  # these hold more than what was measured
    return registers(width) is not None and not more


def divides_by_halves(kernel: RowKernel, width: int) -> bool:
    """Whether values are divided by their scale in two halves, of which one waits undivided.

    The compiler divides all that it is given side by side, and of 16,384 columns a thread has more
    than its registers hold.
    """
    return kernel.quantize is not None and kernel.quantize.scale != "group128" and width > 8192


def _block(width: int) -> int:
    """The power of two of columns that a program has."""
    return 1 << (width - 1).bit_length()


def _fills(width: int) -> bool:
    """Whether no more than a quarter of a block is beyond the row."""
    return 4 * width >= 3 * _block(width)
