"""What boundaryc knows of SGLang's interfaces, read from an installed SGLang without importing it.

PATH_TO_A_PYTHON_WITH_SGLANG tests/engines/sglang_facts.py > tests/engines/sglang_facts.json

Signatures are without annotations; of classes the annotated attributes are kept that an adapter
uses. It needs the standard library only.
"""

from __future__ import annotations

import ast
import json
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

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
"""Annotated attributes of classes; all of them where none is named."""

ASSIGNED = {
    "distributed/parallel_state.py": {"GroupCoordinator": ["device"]},
    "distributed/device_communicators/pynccl.py": {"PyNcclCommunicator": ["available"]},
}
"""Attributes that a class's `__init__` assigns without an annotation."""

ENUMS = {
    "layers/layer_boundary/contracts.py": ["ProducerReduction", "StageKind"],
    "layers/layer_boundary/layout.py": ["SumGroup"],
    "layers/dp_attention.py": ["DpPaddingMode"],
}


def facts(package: Path, release: str) -> dict[str, object]:
    """All of it, from the folder of the package `sglang`. KeyError for what is no longer there."""
    trees = {
        name: ast.parse((package / "srt" / name).read_text("utf-8"))
        for name in {*FUNCTIONS, *ATTRIBUTES, *ASSIGNED, *ENUMS}
    }
    return {
        "version": release,
        "functions": {
            f"{path}:{name}": _signature(trees[path], name)
            for path, names in FUNCTIONS.items()
            for name in names
        },
        "attributes": {
            f"{path}:{name}": _annotated(trees[path], name, wanted)
            for path, classes in ATTRIBUTES.items()
            for name, wanted in classes.items()
        },
        "assigned": {
            f"{path}:{name}": _assigned(trees[path], name, wanted)
            for path, classes in ASSIGNED.items()
            for name, wanted in classes.items()
        },
        "enums": {
            f"{path}:{name}": _members(trees[path], name)
            for path, names in ENUMS.items()
            for name in names
        },
    }


def _found(tree: ast.AST, name: str) -> ast.FunctionDef | ast.ClassDef:
    for part in name.split("."):
        nodes = {
            node.name: node
            for node in ast.iter_child_nodes(tree)
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        tree = nodes[part]
    assert isinstance(tree, ast.FunctionDef | ast.ClassDef)
    return tree


def _signature(tree: ast.AST, name: str) -> str:
    node = _found(tree, name)
    assert isinstance(node, ast.FunctionDef)
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return ast.unparse(node.args)


def _annotated(tree: ast.AST, name: str, wanted: list[str]) -> list[str]:
    found = [
        node.target.id
        for node in ast.iter_child_nodes(_found(tree, name))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    missing = set(wanted) - set(found)
    if missing:
        raise KeyError(f"{name} has no {', '.join(sorted(missing))}")
    return wanted or found


def _assigned(tree: ast.AST, name: str, wanted: list[str]) -> list[str]:
    text = ast.unparse(_found(tree, f"{name}.__init__"))
    missing = [one for one in wanted if f"self.{one} = " not in text]
    if missing:
        raise KeyError(f"{name} does not assign {', '.join(missing)}")
    return wanted


def _members(tree: ast.AST, name: str) -> list[str]:
    return [
        target.id
        for node in ast.iter_child_nodes(_found(tree, name))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


if __name__ == "__main__":
    found = find_spec("sglang")
    assert found is not None
    assert found.submodule_search_locations is not None
    folder = Path(next(iter(found.submodule_search_locations)))
    json.dump(facts(folder, version("sglang")), sys.stdout, indent=2)
    sys.stdout.write("\n")
