"""What boundaryc knows of vLLM's interfaces, read from an installed vLLM without importing it.

PATH_TO_A_PYTHON_WITH_VLLM -m tests.engines.vllm_facts > tests/engines/vllm_facts.json

With the methods that device communicators have of their own.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.engines.facts import interfaces, parsed, write

LAYERS = "model_executor/layers"
COMMUNICATORS = "distributed/device_communicators"

FUNCTIONS = {
    "distributed/parallel_state.py": [
        "GroupCoordinator.all_reduce",
        "GroupCoordinator.all_gather",
        "GroupCoordinator.all_gatherv",
        "GroupCoordinator.reduce_scatter",
        "GroupCoordinator.reduce_scatterv",
        "GroupCoordinator.send_tensor_dict",
        "init_model_parallel_group",
        *(f"get_{name}_group" for name in ("tp", "pcp", "dp", "ep", "pp")),
    ],
    "forward_context.py": [
        "get_forward_context",
        "set_forward_context",
        "DPMetadata.make",
        "DPMetadata.sp_local_sizes",
    ],
    f"{LAYERS}/linear.py": ["RowParallelLinear.__init__", "RowParallelLinear.forward"],
    f"{LAYERS}/vocab_parallel_embedding.py": ["VocabParallelEmbedding.__init__"],
    f"{LAYERS}/fused_moe/layer.py": ["FusedMoEFactory"],
}
"""Functions and methods that the adapter and docs/engines.md call."""

ATTRIBUTES = {
    "distributed/parallel_state.py": {
        "GroupCoordinator": [
            *("rank", "ranks", "world_size", "local_rank", "rank_in_group"),
            *("device_group", "device_communicator"),
        ]
    },
    "forward_context.py": {
        "ForwardContext": ["dp_metadata", "batch_descriptor", "ubatch_slices", "additional_kwargs"],
        "DPMetadata": ["num_tokens_across_dp_cpu"],
        "BatchDescriptor": ["num_tokens", "uniform"],
    },
    f"{LAYERS}/fused_moe/config.py": {
        "FusedMoEConfig": ["moe_parallel_config", "skip_final_all_reduce"],
        "FusedMoEParallelConfig": ["tp_size", "ep_size", "sp_size"],
    },
    "config/compilation.py": {"PassConfig": []},
}
ASSIGNED = {
    "distributed/parallel_state.py": {"GroupCoordinator": ["device"]},
    f"{COMMUNICATORS}/pynccl.py": {"PyNcclCommunicator": ["disabled"]},
    f"{COMMUNICATORS}/cuda_communicator.py": {"CudaCommunicator": ["pynccl_comm"]},
    f"{LAYERS}/linear.py": {"LinearBase": ["skip_bias_add"], "RowParallelLinear": ["bias"]},
    f"{LAYERS}/vocab_parallel_embedding.py": {"VocabParallelEmbedding": ["reduce_results"]},
    f"{LAYERS}/fused_moe/runner/moe_runner.py": {"MoERunner": ["moe_config"]},
}
UNEVEN = ("base_device_communicator", "cpu_communicator", "cuda_communicator", "xpu_communicator")
"""Modules whose communicators may move unequal rows."""


def facts(package: Path) -> dict[str, object]:
    """All of it, from the folder of the package `vllm`."""
    communicators = package / COMMUNICATORS
    return {
        **interfaces(package, FUNCTIONS, ATTRIBUTES, ASSIGNED),
        "uneven": {one: _moves(parsed(communicators / f"{one}.py")) for one in UNEVEN},
    }


def _moves(tree: ast.AST) -> dict[str, list[str]]:
    """The methods for unequal rows that each communicator of a module has, and whether they run."""
    methods = ("all_gatherv", "reduce_scatterv")
    return {
        node.name: [
            f"{method.name}: {'raises' if isinstance(method.body[-1], ast.Raise) else 'runs'}"
            for method in node.body
            if isinstance(method, ast.FunctionDef) and method.name in methods
        ]
        for node in ast.iter_child_nodes(tree)
        if isinstance(node, ast.ClassDef) and "Communicator" in node.name
    }


if __name__ == "__main__":
    write("vllm", facts)
