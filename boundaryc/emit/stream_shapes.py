"""How a kernel for streams goes through a row, decided from the width.

A program has one row and loads a chunk of columns of every stream at once, and the next chunk
before it stores the one before; whole rows do not fit into registers. The mixed row waits for its
norm in registers, two values of 16 bits in each; that of a wide row in the output, if that is as
wide, from where the same program reads it again.
"""

from __future__ import annotations

from typing import NamedTuple


class Shape(NamedTuple):
    """Columns of a chunk, warps of a program, and the registers that a thread may have.

    ``parks``: the mixed row waits in the output.
    """

    chunk: int
    warps: int
    registers: int | None
    parks: bool


def shape(width: int, *, parks: bool) -> Shape:
    """The shape of a kernel for rows of ``width`` columns; ``parks``: its output may be read again.

    A thread has four columns of a chunk, and with 64 registers four programs of eight warps share a
    multiprocessor: enough loads are under way, and 1,024 rows take two turns, not nearly three.

    >>> shape(5120, parks=True)
    Shape(chunk=1024, warps=8, registers=64, parks=False)
    >>> shape(16384, parks=True)
    Shape(chunk=1024, warps=4, registers=None, parks=True)
    >>> shape(64, parks=False)
    Shape(chunk=64, warps=1, registers=None, parks=False)
    """
    block = 1 << (width - 1).bit_length()
    if block > 8192:
        return Shape(1024, 4, None, parks=True) if parks else Shape(4096, 16, None, parks=False)
    chunk = min(block, 1024)
    return Shape(chunk, max(1, chunk // 128), 64 if width > chunk else None, parks=False)


def chunked(width: int) -> Shape:
    """The shape of a kernel that needs no whole row: a program for each chunk."""
    chunk = min(1024, 1 << (width - 1).bit_length())
    return Shape(chunk, max(1, chunk // 256), None, parks=False)
