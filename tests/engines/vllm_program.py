"""The ranks of the tests with the real vLLM: its coordinators, contexts, linears and MoE.

PYTHON -m tests.engines.vllm_program FOLDER writes `program-<rank>.json` and `compiled-<rank>.json`
there, and what the example writes. Nothing here is run by vLLM's kernels, which need a GPU.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from examples.engines.vllm import process, worker
from tests.engines import vllm_compiled
from tests.engines.moved import SIZES, moved
from tests.engines.tiny import Tiny

RANKS = process.RANKS
ROWS: dict[str, list[list[int]]] = {"tp2": [[5], [1]], "tp2_dp2": [[3, 1], [4, 0], [0, 5], [2, 2]]}
"""Rows of each DP rank of the batches of the small stack, by topology."""


def main() -> None:
    """Everything, on all ranks."""
    process.prepare()
    import_module("examples.engines.vllm.qwen3")
    import_module("vllm.model_executor.layers.fused_moe")
    import_module("vllm.compilation.decorators")
    process.on_ranks(_report, Path(sys.argv[1]))


def _report(rank: int, folder: Path) -> None:
    with process.layout(tp=RANKS) as config:
        found: dict[str, Any] = {
            "tp": moves(rank, "attn_tp", "tp"),
            "created": created(rank),
            "linears": linears(rank),
            "tp2": values("tp2", rank, config),
            "moe": moe(),
        }
    with process.layout(dp=RANKS, rank=rank) as config:
        found |= {
            "dp": moves(rank, "attn_dp", "dp"),
            "tp2_dp2": values("tp2_dp2", rank, config),
            "agreed": agreed(rank, config),
        }
    Path(folder, f"program-{rank}.json").write_text(json.dumps(found), "utf-8")
    worker.run(rank, folder)
    with process.layout(tp=RANKS) as config:
        compiled = vllm_compiled.differences(rank, config)
    Path(folder, f"compiled-{rank}.json").write_text(json.dumps(compiled), "utf-8")


def moves(rank: int, axis: str, name: str) -> list[str]:
    """What a real coordinator's collectives did wrong, and which one was found."""
    from vllm.distributed import parallel_state

    from boundaryc.engines.vllm import VllmGroups
    from boundaryc.runtime import Mesh

    mesh = Mesh((("axis", RANKS, axis),))
    groups = VllmGroups()
    ours: Any = groups.collective(mesh, mesh.names)
    wrong = []
    if ours.coordinator is not getattr(parallel_state, f"get_{name}_group")():
        wrong.append(f"the coordinator is {ours.coordinator.unique_name}")
    if (groups.rank, groups.size, groups.device) != (rank, RANKS, "cpu"):
        wrong.append("the provider is another rank's")
    for sizes in SIZES:
        for dtype in (torch.float64, torch.bfloat16):
            wrong += moved(ours, rank, sizes, sizes, dtype)
    return wrong


def created(rank: int) -> list[str]:
    """What a coordinator that is made of vLLM's own class did wrong."""
    from vllm.distributed.parallel_state import get_tp_group

    from boundaryc.engines.vllm import VllmCollective, create_group

    made = create_group([[0, 1]], get_tp_group())
    ours = VllmCollective(made)
    total = ours.all_reduce(torch.full((2, 3), float(rank)))
    wrong = [] if torch.equal(total, torch.ones(2, 3)) else ["the sum"]
    if "tp" in made.unique_name or (ours.rank, ours.size) != (rank, RANKS):
        wrong.append(f"{made.unique_name} is {ours.rank} of {ours.size}")
    return wrong


def linears(rank: int) -> list[str]:
    """What skip flags of the real `RowParallelLinear` and embedding did wrong."""
    from vllm.model_executor.layers.linear import RowParallelLinear
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    from boundaryc.engines.vllm import keep_partial

    generator = torch.Generator().manual_seed(1)
    weight, bias, x = (torch.randn(*size, generator=generator) for size in ((6, 8), (6,), (3, 8)))
    table = torch.randn(128, 6, generator=generator)
    own, ids = x[:, rank * 4 : rank * 4 + 4], torch.tensor([0, 70, 127])
    linear: Any = RowParallelLinear(8, 6, bias=True)
    linear.weight_loader(linear.weight, weight)
    linear.bias.copy_(bias)
    linear.quant_method.process_weights_after_loading(linear)
    embedding: Any = VocabParallelEmbedding(128, 6)
    embedding.weight_loader(embedding.weight, table)
    checks = {
        "linear": (lambda: linear(own)[0], torch.nn.functional.linear(x, weight, bias), linear),
        "embedding": (lambda: embedding(ids), table[ids], embedding),
    }
    wrong = []
    for name, (call, whole, module) in checks.items():
        if not torch.allclose(call(), whole, rtol=0, atol=1e-5):
            wrong.append(f"{name} that sums")
        keep_partial(module)
        part: Tensor = call()
        if torch.allclose(part, whole, rtol=0, atol=1e-3):
            wrong.append(f"{name} sums all the same")
        total = part.clone()
        dist.all_reduce(total)
        if not torch.allclose(total, whole, rtol=0, atol=1e-5):
            wrong.append(f"{name} that leaves its sum")
    return wrong


def values(topology: str, rank: int, config: Any) -> list[tuple[float, int]]:
    """The differences of a small stack from one rank in float64, and the rows, batch by batch."""
    from vllm.forward_context import get_forward_context, set_forward_context

    from boundaryc.engines.vllm import VllmGroups, batch_facts

    tiny, results = Tiny(), []
    stack = import_module("generated.sample").load(topology, VllmGroups())
    for rows in ROWS[topology]:
        dp = len(rows)
        group = rank if dp > 1 else 0
        # Under DP this agrees on the rows of all ranks, by vLLM's own all-reduce.
        with set_forward_context(None, config, num_tokens=rows[group]):
            batch = stack.batch(**batch_facts(get_forward_context(), attn_dp=dp))
        heads = (0, 1) if dp > 1 else (rank, RANKS)
        tokens = tiny.tokens(rows[group], group)
        output = tiny.run(stack, batch, tokens, (rank, RANKS), heads)
        difference = (output - tiny.expected(tokens)).abs().nan_to_num(nan=float("inf"))
        results.append((float(difference.max()) if rows[group] else 0.0, output.shape[0]))
    return results


def agreed(rank: int, config: Any) -> dict[str, Any]:
    """The rows of all DP ranks that a context says, and the sizes of vLLM's own slices over TP."""
    from vllm.forward_context import get_forward_context, set_forward_context

    from boundaryc.engines.vllm import batch_facts

    with set_forward_context(None, config, num_tokens=(5, 2)[rank]):
        context = get_forward_context()
        rows = batch_facts(context, attn_dp=2)["rows_per_dp"]
        with context.dp_metadata.sp_local_sizes(2) as sizes:
            return {"rows": rows, "slices": list(sizes)}


def moe() -> dict[str, str]:
    """What the real `FusedMoEFactory` settled, by `reduce_results`; or what refused on a CPU."""
    from vllm.model_executor.layers.fused_moe import FusedMoEFactory

    from boundaryc.engines.vllm import keep_partial

    found = {}
    for reduces in (True, False):
        try:
            runner = FusedMoEFactory(
                num_experts=4,
                top_k=2,
                hidden_size=64,
                intermediate_size=64,
                reduce_results=reduces,
                prefix=f"layers.{int(reduces)}.experts",
            )
            keep_partial(runner)
            found[str(reduces)] = "kept"
        except Exception as error:
            found[str(reduces)] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    main()
