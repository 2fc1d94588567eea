"""What boundaryc knows of SGLang's interfaces, read from an installed SGLang without importing it.

PATH_TO_A_PYTHON_WITH_SGLANG -m tests.engines.sglang_facts > tests/engines/sglang_facts.json
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.engines.facts import found, interfaces, parsed, write

FUNCTIONS = {
    "distributed/parallel_state.py": [
        "GroupCoordinator.all_reduce",
        "GroupCoordinator.all_gather",
        "GroupCoordinator.all_gatherv",
        "GroupCoordinator.reduce_scatter_tensor",
        "GroupCoordinator.reduce_scatterv",
        "GroupCoordinator.send_tensor_dict",
        "init_model_parallel_group",
    ],
    "runtime_context.py": ["get_parallel", "get_forward", "ForwardFlags.scoped"],
    "model_executor/forward_batch_info.py": [
        "ForwardMode.is_context_parallel_extend",
        "ForwardMode.is_decode_or_idle",
        "ForwardBatch.prepare_mlp_sync_batch",
        "PPProxyTensors.__init__",
    ],
    "layers/linear.py": ["RowParallelLinear.__init__", "RowParallelLinear.forward"],
    "layers/moe/utils.py": ["post_experts_reduction_group", "should_skip_mlp_all_reduce"],
    "layers/flashinfer_comm_fusion.py": [
        "flashinfer_allreduce_residual_rmsnorm",
        "pre_initialize_workspaces",
    ],
    "layers/layer_boundary/factories.py": ["declare_attn", "declare_ffn"],
    "layers/layer_boundary/residual/post_norm.py": ["PostNormAdd.__init__"],
}
"""Functions and methods that adapters and docs/engines.md call."""

ATTRIBUTES = {
    "distributed/parallel_state.py": {
        "GroupCoordinator": [
            *("ranks", "world_size", "local_rank", "rank_in_group"),
            *("device_group", "cpu_group", "pynccl_comm"),
        ]
    },
    "model_executor/forward_batch_info.py": {
        "ForwardBatch": [
            *("forward_mode", "input_ids", "is_extend_in_batch"),
            *("global_num_tokens_cpu", "attn_cp_metadata"),
        ]
    },
    "layers/layer_boundary/factories.py": {"StageDeclaration": []},
}
ASSIGNED = {
    "distributed/parallel_state.py": {"GroupCoordinator": ["device"]},
    "distributed/device_communicators/pynccl.py": {"PyNcclCommunicator": ["available"]},
}
ENUMS = {
    "layers/layer_boundary/contracts.py": ["ProducerReduction", "StageKind"],
    "layers/layer_boundary/layout.py": ["SumGroup"],
    "layers/dp_attention.py": ["DpPaddingMode"],
}


def facts(package: Path) -> dict[str, object]:
    """All of it, from the folder of the package `sglang`."""
    folder = package / "srt"
    return {
        **interfaces(folder, FUNCTIONS, ATTRIBUTES, ASSIGNED),
        "enums": {
            f"{path}:{name}": _members(parsed(folder / path), name)
            for path, names in ENUMS.items()
            for name in names
        },
    }


def _members(tree: ast.AST, name: str) -> list[str]:
    return [
        target.id
        for node in ast.iter_child_nodes(found(tree, name))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


if __name__ == "__main__":
    write("sglang", facts)
