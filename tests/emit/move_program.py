"""Runs a generated `move_kernels.py` on whatever device there is, and compares with torch's bits.

Its own process because Triton decides at import whether it interprets. Arguments: the file, and
perhaps row counts in place of the usual ones.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch
from kernel_program import DEVICE, _convert_exactly
from torch import Tensor

from boundaryc import runtime
from boundaryc.runtime.orders import by_token
from boundaryc.runtime.shards import ContextParallel, shard_rows

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn)
ROWS = (0, 1, 3, 17)


def main(path: str, counts: tuple[int, ...]) -> None:
    """Compares every function."""
    if DEVICE == "cpu":
        _convert_exactly()
    spec = importlib.util.spec_from_file_location("move_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    for rows in counts:
        for dtype in (*DTYPES, torch.int8):
            moves(kernels, rows, dtype)
            places(kernels, rows, dtype)
        for name in [one for one in vars(kernels) if one.startswith("move_rows_")]:
            quantises(kernels, name, rows)
    permutes(kernels)
    refuses(kernels)


def drawn(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Rows whose bits are any but those of a NaN."""
    generator = torch.Generator().manual_seed(rows)
    return (torch.randn(rows, width, generator=generator) * 50).to(dtype).to(DEVICE)


def same(found: Tensor, wanted: Tensor) -> None:
    """Fails for other bits."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert torch.equal(found.view(torch.uint8), wanted.view(torch.uint8))


def poison(rows: int, width: int, dtype: torch.dtype) -> None:
    """Fills memory that results may be given with what is none of them."""
    held = torch.full((rows * width * dtype.itemsize,), 0x5A, dtype=torch.uint8, device=DEVICE)
    del held


def moves(kernels: Any, rows: int, dtype: torch.dtype) -> None:
    """By an index: some rows twice, some never, and zeros between them."""
    width = kernels.WIDTH.value
    x = drawn(rows + 3, width, dtype)[1:]  # so that there is a row at -1
    generator = torch.Generator().manual_seed(rows)
    index = torch.randint(-1, rows + 2, (rows + rows % 3,), generator=generator).to(DEVICE)
    index[1::3] = -1
    poison(index.shape[0], width, dtype)
    found = kernels.move_rows(x, index)
    wanted = x.view(torch.uint8)[index.clamp(min=0)].masked_fill((index < 0).unsqueeze(1), 0)
    same(found, wanted.view(dtype))


def places(kernels: Any, rows: int, dtype: torch.dtype) -> None:
    """Before, between and behind the rows of others; of rows that are part of larger ones too."""
    width = kernels.WIDTH.value
    for sizes, index in (((rows, 2, 3), 0), ((1, rows, 0), 1), ((4, 0, rows), 2), ((rows,), 0)):
        members = runtime.Members(sizes, index)
        x = drawn(rows, width + 3, dtype)[:, :width]
        poison(members.total, width, dtype)
        found = kernels.place_rows(x, members.start, members.stop, members.total)
        wanted = x.new_zeros(members.total, width)
        wanted[members.start : members.stop] = x
        same(found, wanted)


def quantises(kernels: Any, name: str, rows: int) -> None:
    """As torch quantises what was moved."""
    width = kernels.WIDTH.value
    x, step = drawn(rows, width, torch.bfloat16), torch.tensor(0.37, device=DEVICE)
    index = torch.randperm(rows, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    static = [step] if "static" in name else []
    found = getattr(kernels, name)(x, index, *static)
    found = [found] if isinstance(found, Tensor) else list(found)
    moved = x[index]
    by: Any = next((one for one in ("static", "group128") if one in name), "token")
    if "int8" in name:
        wanted = [*runtime.quantize_int8(moved)]
    else:
        wanted = [*runtime.quantize_fp8(moved, by, *static)]
    wanted = wanted[:1] if static else wanted
    if name.endswith("_and_rows"):
        wanted.append(moved)
    for one, other in zip(found, wanted, strict=True):
        same(one, other)


def permutes(kernels: Any) -> None:
    """Zigzag and interleaved shards with pads, there and back."""
    for split in ("zigzag", "interleaved"):
        cp = ContextParallel(split, ((9, 4),))  # type: ignore[arg-type]
        sharding = shard_rows(cp, 1, 2, multiple=4, padding="max_len")
        held = []
        for part, padded in enumerate(sharding.padded[0]):
            keys = torch.full((padded,), 99)
            keys[: len(sharding.tokens(0)[part])] = sharding.tokens(0)[part]
            held.append(keys)
        order = by_token(torch.cat(held))
        x = drawn(sum(sharding.padded[0]), kernels.WIDTH.value, torch.bfloat16)
        forth = kernels.move_rows(x, order.places_to_tokens(x.device))
        same(forth, order.to_tokens(x))
        same(kernels.move_rows(forth, order.places_to_shards(x.device)), x)


def refuses(kernels: Any) -> None:
    """Rows that do not fit are errors, not reads past the end."""
    x = drawn(3, kernels.WIDTH.value, torch.bfloat16)
    for given in ((x, 0, 2, 5), (x, 3, 6, 5), (x[:, 1:], 0, 3, 3)):
        try:
            kernels.place_rows(*given)
        except ValueError:
            continue
        raise AssertionError("place_rows accepted a wrong shape")


if __name__ == "__main__":
    given = tuple(int(count) for count in sys.argv[2].split(",")) if len(sys.argv) > 2 else ROWS
    main(sys.argv[1], given)
