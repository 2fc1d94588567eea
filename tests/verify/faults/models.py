"""The example models on simulated ranks, compared with the logits of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.language import load
from boundaryc.plan.compose import plan_stack
from boundaryc.verify.modules import import_package
from boundaryc.verify.world import SimulatedGroups, World
from examples.cases import SEQUENCE_PARALLEL, Case, steps
from examples.common.attention import KVCache, tokens
from examples.demo import TOLERANCE, cases

REFERENCES: dict[str, Any] = {}
"""The reference of each example, put here by the process that computes it once."""

MOST = 4
"""Cases of each example that are run."""


def difference() -> str | None:
    """The first case in which some logit is wrong."""
    for name, reference in REFERENCES.items():
        stack = load(Path("examples") / name / "stack.yaml")
        plan = plan_stack(stack)
        files = emit(plan, Origin("stack.yaml", "boundaryc compile stack.yaml", "0" * 64)).files
        package = import_package(files, name)
        known = [case for case in cases(stack) if not case.parallel.all_to_all]
        for case in known[:: max(1, len(known) // MOST)]:
            with torch.inference_mode():
                worst = max(_run(case, package, reference))
            if not worst <= TOLERANCE:
                return f"{case.stack} {case.topology} {case.variant}: a logit is off by {worst:.2g}"
    return None


def _run(case: Case, package: Any, reference: Any) -> list[float]:
    from importlib import import_module

    build = import_module(f"examples.{case.stack}.model").build

    def program(groups: SimulatedGroups) -> float:
        stack = package.load(case.topology, groups, policy=case.policy)
        parallel = case.parallel.at(groups.rank)
        model = build(stack, reference.config, parallel, reference.weights)
        cache, worst = KVCache(), 0.0
        for index, step in enumerate(steps(case.attn_dp, reference.sequences)):
            batch = stack.batch(
                rows_per_dp=[sum(len(ids) for _, ids in group) for group in step],
                padding=case.padding,
                mode="decode" if index else "prefill",
                sequence_parallel=case.variant == SEQUENCE_PARALLEL,
            )
            own = step[parallel.group]
            logits = model(batch, tokens(reference.config, cache, own), cache)
            worst = max(worst, _difference(logits, own, cache, reference))
        return worst

    world: World[float] = World(case.parallel.tp, seed=1)
    return world.run(program)


def _difference(
    logits: Tensor, own: list[tuple[int, list[int]]], cache: KVCache, reference: Any
) -> float:
    """The largest difference of this rank's logits; 0 without tokens, infinite for no number."""
    if not own:
        return 0.0
    expected = []
    for sequence, ids in own:
        end = cache.length(sequence)
        expected.append(reference.logits[sequence][end - len(ids) : end])
    return float((logits - torch.cat(expected)).abs().nan_to_num(nan=float("inf")).max())
