"""A model with a stack that was compiled with `--vendor-runtime`, where only torch is installed.

python -I -S vendored_program.py TORCH FOLDER WHEEL

TORCH is a folder with torch and what it needs, FOLDER one with ``generated/pebble``, WHEEL one with
an unpacked boundaryc. Without the last it runs two ranks; then it imports the runtime of the wheel.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace

TORCH, FOLDER, WHEEL = sys.argv[1:]
sys.path[:0] = [TORCH, FOLDER]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.functional import rms_norm  # noqa: E402

UNWANTED = ("boundaryc", "click", "greenlet", "numpy", "pydantic", "rich", "triton", "yaml")
WIDTH, TOKENS, EPS = 32, 5, 1e-6


def main() -> int:
    """Says what is installed, and by how much each of two ranks differs from the whole model."""
    found = [name for name in UNWANTED if importlib.util.find_spec(name) is not None]
    assert not found, found
    names = sorted(one.metadata["Name"] for one in importlib.metadata.distributions(path=[TORCH]))
    print("installed:", *names, flush=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    weights = [[torch.randn(WIDTH), torch.randn(2, WIDTH, WIDTH) / 6] for _ in range(2 * 3)]
    final, hidden = torch.randn(WIDTH), torch.randn(TOKENS, WIDTH)
    ranks = [forked(rank, weights, final, hidden) for rank in range(2)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
    assert not any(name == "boundaryc" or name.startswith("boundaryc.") for name in sys.modules)
    if any(codes):
        return 1
    sys.path.append(WHEEL)
    runtime = importlib.import_module("boundaryc.runtime")
    assert runtime.SingleGroups().rank == 0
    print("imported:", Path(runtime.__file__).relative_to(WHEEL).as_posix())
    return 0


def forked(rank, weights, final, hidden) -> int:  # type: ignore[no-untyped-def]
    """A process that runs one rank; torch is imported once."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            where = f"file://{FOLDER}/store"
            dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
            error = run(rank, weights, final, hidden)
            print(f"rank {rank}: {error:.1e}", flush=True)
            code = int(not error < 1e-12)
            dist.destroy_process_group()
        finally:
            os._exit(code)
    return child


def run(rank, weights, final, hidden) -> float:  # type: ignore[no-untyped-def]
    """One rank of a model whose stages are a product; the largest difference from the whole."""
    pebble = importlib.import_module("generated.pebble")
    runtime = importlib.import_module("generated.pebble.runtime")
    stack = pebble.load("tp2", runtime.TorchGroups())
    batch = stack.batch(rows_per_dp=[TOKENS], padding="sum_len", mode="prefill")
    stack.start(batch)
    out = hidden.clone()
    for index in stack.layers:
        (norm1, attention), (norm2, mlp) = weights[2 * index : 2 * index + 2]
        at = stack.layer(index).bind(
            attention=SimpleNamespace(weight=norm1), mlp=SimpleNamespace(weight=norm2)
        )
        x = at.attention.prepare(out, batch)
        out = at.attention.finish(x @ attention[rank], batch)
        x = at.mlp.prepare(out, batch)
        with at.mlp.exit(batch) as output:
            y = output.reduce_output(x @ mlp[rank])
        out = output.finish(y)
    found = stack.norm(out, batch, SimpleNamespace(weight=final))

    x = hidden
    for norm, product in weights:
        x = x + rms_norm(x, (WIDTH,), norm, EPS) @ product.sum(0)
    return float((found - rms_norm(x, (WIDTH,), final, EPS)).abs().max())


if __name__ == "__main__":
    sys.exit(main())
