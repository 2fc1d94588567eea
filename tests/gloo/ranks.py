"""What the pool's own tests run on the ranks."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist


def sum_of_ranks(rank: int, offset: float) -> tuple[float, int, int]:
    """The sum of ``rank + offset`` over all ranks, the process and its torch threads."""
    x = torch.tensor([rank + offset])
    dist.all_reduce(x)
    return x.item(), os.getpid(), torch.get_num_threads()


def fail_on(rank: int, failing: int) -> None:
    """Raise on one rank while the others wait for it in a collective."""
    if rank == failing:
        raise KeyError("seeded failure")
    dist.all_reduce(torch.ones(1))


def hang_on(rank: int, hanging: int) -> None:
    """Sleep on one rank."""
    if rank == hanging:
        time.sleep(600)


def die_on(rank: int, dying: int) -> None:
    """End the process of one rank."""
    if rank == dying:
        os._exit(7)
