"""What sums over symmetric memory take, stated once: their memory is sized by it, batches gated.

One-shot: every rank sends its output to every rank, and each adds all of it. Two-shot: every rank
sends each rank a part of the columns, adds the part that is its own and sends that sum to all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

KIB, MIB = 1 << 10, 1 << 20

ONE_SHOT_BYTES = {2: 16 * MIB, 4: 384 * KIB, 8: 128 * KIB}
"""Up to so many bytes of output a sum is one-shot, by ranks; for other numbers there is no kernel.

They are those of the one-shot push of SGLang 0.5.23's second custom all-reduce, tuned on H200s in
CUDA graphs.
"""
TWO_SHOT_BYTES = {2: 32 * MIB, 4: 16 * MIB, 8: 16 * MIB}
"""Up to so many it is two-shot. By meta-pytorch/kraken NCCL is faster from about 15 MB on; of two
H200s it is not, by benchmarks/results/all_reduce.md.
"""
BLOCKS = 128
"""Blocks of a grid at most. All of a grid run at once, or they would wait for those that do not."""
LINE_BYTES = 128
"""A block's own counter and the flags of all ranks for it: a line of the cache."""
VECTOR_BYTES = 16
"""What a thread moves at once; every row and every rank's columns of it begin at a multiple."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True, slots=True)
class SumLimits:
    """The sums that one group's memory has room for, equal on all of its ranks.

    ``rows`` rows of ``width`` columns at most, of which up to ``one_shot_rows`` are summed in one
    shot. A grid has a block for each row, up to ``blocks``, which then take several.
    """

    ranks: int
    width: int
    dtype: torch.dtype
    rows: int
    one_shot_rows: int
    blocks: int = BLOCKS

    @classmethod
    def of(
        cls,
        ranks: int,
        width: int,
        dtype: torch.dtype,
        *,
        rows: int | None = None,
        blocks: int = BLOCKS,
    ) -> SumLimits | None:
        """The limits of so many ranks on one host, and no more than ``rows``; None for no sum."""
        row = width * dtype.itemsize
        if ranks not in ONE_SHOT_BYTES or dtype not in DTYPES or row % VECTOR_BYTES:
            return None
        once = ONE_SHOT_BYTES[ranks] // row
        most = TWO_SHOT_BYTES[ranks] // row if not row % (VECTOR_BYTES * ranks) else once
        if rows is not None:
            once, most = min(once, rows), min(most, rows)
        return cls(ranks, width, dtype, most, once, blocks) if most > 0 else None

    @property
    def max_bytes(self) -> int:
        """Bytes of the largest output that is summed."""
        return self.rows * self.width * self.dtype.itemsize

    @property
    def memory_bytes(self) -> int:
        """Bytes that every rank has for the others to write.

        Lines of counters, then for either way twice the place of its largest sum: what is written
        in one call may still be read while the next call is written.
        """
        return self._first(2) + self._half_bytes(2) * 2

    def call(self, rows: int, rank: int, patience: int) -> list[int]:
        """What a kernel is told of a sum of ``rows`` rows beside its tensors.

        The shots, ranks and blocks; then ``rank``, where in memory the way's place begins, its
        slots of a row each, how many of them a block has, and how often a block looks for flags.
        """
        shots = 1 if rows <= self.one_shot_rows else 2
        depth = self._depth(shots)
        first = self._first(shots)
        return [shots, self.ranks, self.blocks, rank, first, depth * self.blocks, depth, patience]

    def _first(self, shots: int) -> int:
        return self.blocks * LINE_BYTES + (self._half_bytes(1) * 2 if shots == 2 else 0)

    def _half_bytes(self, shots: int) -> int:
        """One-shot: a slot of each rank for each row. Two-shot: two, for all parts and for sums."""
        slots = self._depth(shots) * self.blocks * self.width * self.dtype.itemsize
        return slots * (self.ranks if shots == 1 else 2)

    def _depth(self, shots: int) -> int:
        rows = self.one_shot_rows if shots == 1 else self.rows
        return -(-rows // self.blocks) if shots == 1 or self.rows > self.one_shot_rows else 0
