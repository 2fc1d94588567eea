"""Sixty-four topologies of 1 to 64 ranks on which every example is compiled.

Every way in which up to 16 ranks, and 64, factor into powers of two over the axes of attention,
with context parallelism up to 8, and some of 6, 12 and 32. Experts and dense FFNs take turns in how
they use the ranks.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import yaml

VARIANTS = ["ordinary", "context_parallel", "input_scattered", "sequence_parallel"]
FURTHER = (
    *((6, 3, 1), (12, 3, 1), (12, 3, 2), (32, 1, 1), (32, 4, 1)),
    *((32, 4, 2), (32, 32, 1), (32, 8, 4)),
)
"""Ranks, and those of them that are attention data parallel and context parallel."""


def _factored() -> list[tuple[int, int, int]]:
    powers = (1, 2, 4, 8, 16, 32, 64)
    sizes = product((1, 2, 4, 8, 16, 64), powers, (1, 2, 4, 8))
    return [*((tp, dp, cp) for tp, dp, cp in sizes if dp * cp <= tp), *FURTHER]


def _experts(index: int, tp: int, dp: int) -> dict[str, Any]:
    if tp % 3 == 0:
        return {"ep": 2}
    ways: tuple[dict[str, Any], ...] = (
        {"ep": tp},
        {"ep": tp, "all_to_all": True},
        {"dp": 2, "ep": tp // 2} if tp > 1 else {"ep": 1},
        {"dp": dp, "ep": tp // dp},
    )
    return ways[index % len(ways)]


def topologies(*, sparse: bool, dense: bool) -> dict[str, dict[str, Any]]:
    """The topologies of a stack by name; ``sparse`` and ``dense``: it has such FFNs."""
    found = {}
    for index, (tp, dp, cp) in enumerate(_factored()):
        sizes: dict[str, Any] = {"tp": tp, "attn_dp": dp, "attn_cp": cp}
        if dense:
            sizes["dense_tp"] = ("tp", "attn_tp", 1)[index % 3]
        if sparse:
            sizes["moe"] = _experts(index, tp, dp)
        found[f"tp{tp}_dp{dp}_cp{cp}"] = sizes
    return found


def everywhere(stack: Path) -> str:
    """The text of a stack file with all topologies and variants; with a branch, ordinary ones."""
    document = yaml.safe_load(stack.read_text(encoding="utf-8"))
    ffns = [stage for stage in document["stages"].values() if stage["kind"] == "ffn"]
    kinds = {bool(stage.get("sparse")) for stage in ffns}
    document["topologies"] = topologies(sparse=True in kinds, dense=False in kinds)
    document["variants"] = VARIANTS[:1] if "branch" in document else VARIANTS
    return yaml.safe_dump(document, sort_keys=False)
