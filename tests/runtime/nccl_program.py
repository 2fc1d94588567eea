"""What only GPUs can show, on two of them: NCCL's collectives, the kernels, quantised inputs.

torchrun --standalone --nproc-per-node 2 -m tests.runtime.nccl_program

Every rank compares what it computed; the first that differs raises. Rank 0 prints a line for each
part that holds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import torch
import torch.distributed as dist

from boundaryc.runtime import Mesh, TorchGroups
from boundaryc.runtime.distributed import NcclCollective
from boundaryc.runtime.quantize import quantize_fp8, quantize_int8, quantized_all_reduce
from examples.cases import LENGTHS, Case
from examples.common.parallel import Parallel
from examples.counting import CountingGroups
from examples.reference import Reference, reference
from examples.worker import run
from tests.runtime.ranks import piece

RANKS = 2
TOLERANCE = 2e-5
"""Largest allowed difference of a float32 logit, as on CPUs."""
LINE = Mesh((("attn_tp", RANKS, "attn_tp"),))
SIZES = ((2, 2), (3, 0), (0, 4), (0, 0), (1, 5))
DTYPES = {
    torch.float32: 1e-6,
    torch.float64: 1e-12,
    torch.bfloat16: 1e-2,
    torch.float16: 1e-3,
}
"""By dtype: how far a sum of two numbers of magnitude one may be off."""
MOVED = (*DTYPES, torch.float8_e4m3fn, torch.int8, torch.int64)
TAILS = ((), (1,), (3,), (2, 3))


def main() -> None:
    """Runs every part on this rank."""
    place = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(place)
    torch.set_default_device(f"cuda:{place}")
    dist.init_process_group("nccl", device_id=torch.device("cuda", place))
    groups = TorchGroups()
    group = groups.collective(LINE, ("attn_tp",))
    assert isinstance(group, NcclCollective)
    for name, part in (
        ("gathers move bits", gathers),
        ("sums are sums", sums),
        ("quantised sums are equal on all ranks", quantized),
    ):
        part(group)
        _say(group.rank, name)
    for what in models(groups):
        _say(group.rank, f"{what}: within {TOLERANCE:.0e} of transformers")
    dist.destroy_process_group()


def _say(rank: int, line: str) -> None:
    if rank == 0:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def gathers(group: NcclCollective) -> None:
    """Even, uneven and empty members, any trailing shape, dtypes that NCCL does not know."""
    for sizes, dtype, tail in product(SIZES, MOVED, TAILS):
        pieces = [_piece(rank, rows, tail, dtype) for rank, rows in enumerate(sizes)]
        result = group.all_gather(pieces[group.rank], sizes)
        expected = torch.cat([_bits(one) for one in pieces])
        assert _bits(result).equal(expected), (sizes, dtype, tail)


def sums(group: NcclCollective) -> None:
    """All-reduces and reduce-scatters, of contiguous and of strided values."""
    for sizes, (dtype, close), tail in product(SIZES, DTYPES.items(), TAILS):
        pieces = [_piece(rank, sum(sizes), tail, dtype) for rank in range(RANKS)]
        total = torch.stack([one.to(torch.float64) for one in pieces]).sum(dim=0)
        own = pieces[group.rank]
        strided = own.repeat_interleave(2, dim=0)[::2]
        for given in (own.clone(), strided):
            found = group.all_reduce(given.clone())
            torch.testing.assert_close(found.to(torch.float64), total, rtol=close, atol=close)
            part = group.reduce_scatter(given, sizes)
            mine = total.split(list(sizes))[group.rank]
            torch.testing.assert_close(part.to(torch.float64), mine, rtol=close, atol=close)


def quantized(group: NcclCollective) -> None:
    """The bits of a quantised input are the CPU's, and its sum is the same on every rank."""
    generator = torch.Generator("cpu").manual_seed(7)
    for rows, dtype in product((0, 1, 33), (torch.float32, torch.bfloat16)):
        x = torch.randn(rows, 256, generator=generator, device="cpu").to(dtype)
        for quantize in (quantize_int8, quantize_fp8, _by_group):
            for here, there in zip(quantize(x.cuda()), quantize(x), strict=True):
                assert _bits(here.cpu()).equal(_bits(there)), (rows, dtype, quantize)
        total = quantized_all_reduce((x * (group.rank + 1)).cuda(), group)
        every = group.all_gather(total.unsqueeze(0))
        assert every[0].equal(every[1])
        close = 3 * float(x.abs().max()) / 100 if rows else 0.0
        torch.testing.assert_close(total.cpu(), 3 * x, rtol=0, atol=close)


def _by_group(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return quantize_fp8(x, "group128")


def models(groups: TorchGroups) -> Iterator[str]:
    """Both example models on tp2: prefill and decode, with the Triton kernels."""
    for name, dense, sparse in (("qwen3", [], False), ("qwen3_moe", [0], True)):
        with torch.device("cpu"):
            sizes: dict[str, Any] = {"width": 64, "layers": 4, "dense": dense, "sparse": sparse}
            known = _on_gpu(reference(**sizes, lengths=LENGTHS, seed=3))
        parallel = Parallel(0, RANKS, RANKS, RANKS, 1, RANKS, all_to_all=False)
        for variant, padding in product(("ordinary", "sequence_parallel"), ("unpadded", "sum_len")):
            case = Case(name, "tp2", 1, parallel, variant, padding, "auto")
            with torch.inference_mode():
                result = run(case, known, CountingGroups(groups))
            assert result.difference <= TOLERANCE, result
            yield f"{name} {variant} {padding} {result.difference:.1e}"


def _on_gpu(known: Reference) -> Reference:
    return replace(
        known,
        weights={name: weight.cuda() for name, weight in known.weights.items()},
        logits=[logits.cuda() for logits in known.logits],
    )


def _piece(rank: int, rows: int, tail: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    with torch.device("cpu"):
        drawn = piece(rank, rows, tail, torch.float64)
    return drawn.cuda().to(dtype)


def _bits(x: torch.Tensor) -> torch.Tensor:
    """The storage of ``x`` as bytes, [rows, bytes]."""
    return x.reshape(x.shape[0], prod(x.shape[1:])).contiguous().view(torch.uint8)


if __name__ == "__main__":
    main()
