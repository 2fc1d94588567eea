"""One rank of the tests with the real SGLang: its coordinators, linears, kernels and models.

PYTHON -m tests.engines.sglang_program FOLDER RANK ADDRESS writes `program-<rank>.json` there.
"""

from __future__ import annotations

import gc
import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from examples.engines.sglang import process
from tests.engines.moved import SIZES, moved

RANKS = 2
MODELS = {
    "exaone4": "Exaone4DecoderLayer",
    "qwen3": "Qwen3DecoderLayer",
    "qwen3_moe": "Qwen3MoeDecoderLayer",
    "glm4": "Glm4DecoderLayer",
    "nemotron_h_utils": None,
}
"""Models by module, with the class that declares, if it is one; none of them reads its config."""
PATTERN = "M*-E"
"""A layer of each kind of Nemotron-H."""


def main() -> None:
    """Everything, on one rank."""
    folder, rank, address = sys.argv[1:]
    torch.set_num_threads(1)
    process.start(int(rank), RANKS, address)
    with torch.inference_mode():
        report = {
            "moves": moves(int(rank)),
            "linears": linears(int(rank)),
            "kernel": kernel(),
            "stages": {name: stages(name) for name in MODELS},
        }
    Path(folder, f"program-{rank}.json").write_text(json.dumps(report), "utf-8")
    dist.destroy_process_group()
    gc.collect()


def moves(rank: int) -> list[str]:
    """What the real coordinator's collectives did wrong; and those that a provider finds."""
    from sglang.srt.runtime_context import get_parallel

    from boundaryc.engines.sglang import SglangGroups
    from boundaryc.runtime import Mesh

    mesh = Mesh((("attn_tp", 2, "attn_tp"),))
    groups = SglangGroups()
    ours: Any = groups.collective(mesh, mesh.names)
    wrong = []
    if ours.coordinator is not get_parallel().tp_group:
        wrong.append("the coordinator is another one")
    if (groups.rank, groups.size, groups.device) != (rank, RANKS, "cpu"):
        wrong.append("the provider is another rank's")
    for sizes in SIZES:
        for dtype in (torch.float64, torch.bfloat16):
            wrong += moved(ours, rank, sizes, sizes, dtype)
    made: Any = groups._create([[0, 1]], get_parallel().tp_group, "made")
    if made.ranks != [0, 1] or float(made.all_reduce(torch.ones(1))) != RANKS:
        wrong.append("a coordinator that is made")
    return wrong


def linears(rank: int) -> list[str]:
    """What skip flags of the real `RowParallelLinear` did wrong."""
    from sglang.srt.layers.linear import RowParallelLinear

    from boundaryc.engines.sglang import partial, published

    generator = torch.Generator().manual_seed(1)
    weight, bias, x = (torch.randn(*size, generator=generator) for size in ((6, 8), (6,), (3, 8)))
    whole = torch.nn.functional.linear(x, weight, bias)
    own = x[:, rank * 4 : rank * 4 + 4]
    wrong = []
    for reduces in (True, False):
        linear: Any = RowParallelLinear(8, 6, bias=True, reduce_results=reduces)
        linear.weight_loader(linear.weight, weight)
        linear.bias.copy_(bias)
        part = partial(linear, own)
        if not _close(_summed(part), whole):
            wrong.append(f"partial, reduce_results={reduces}")
        for skips in (True, False):
            with published(SimpleNamespace(skips_reduction=skips)):  # type: ignore[arg-type]
                output = linear(own)[0]
            expected = part if skips or not reduces else whole
            if not _close(output, expected):
                wrong.append(f"published, skips_reduction={skips}, reduce_results={reduces}")
    return wrong


def _summed(part: Tensor) -> Tensor:
    total = part.clone()
    dist.all_reduce(total)
    return total


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=1e-5)


def kernel() -> str:
    """What becomes of a fused sum on the CPU: the provider declines before SGLang is asked."""
    from boundaryc.engines.flashinfer import FlashInferSums
    from boundaryc.engines.sglang import SglangCollective

    sums: Any = FlashInferSums.of_process()
    group = SglangCollective(sums._attention)
    rows = torch.ones(2, 64, dtype=torch.bfloat16)
    batch = SimpleNamespace(facts=SimpleNamespace(rows_per_dp=(2,)))
    done = sums._run(1e-6, sums._attention, True, rows, rows, rows[0], group, batch)
    return "declined" if done is None else "fused"


def stages(name: str) -> dict[str, Any]:
    """`stages` and `layers` of a model's own declarations, of four layers."""
    from boundaryc.engines import sglang_stages

    module: Any = import_module(f"sglang.srt.models.{name}")
    owner, config = MODELS[name], SimpleNamespace()
    if owner is None:
        declares, config = module.stage_facts, PATTERN
    else:
        declares = getattr(module, owner).stage_facts
    return sglang_stages.stack([declares(config, index) for index in range(4)])


if __name__ == "__main__":
    main()
