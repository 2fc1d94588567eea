"""Runs both example models on four ranks and compares them with Hugging Face transformers.

Compiles the example stacks, builds tiny random models, computes their logits sequence by sequence
in this process, starts four ranks, and prints what each topology communicated and how far its
logits were from the reference. Exits 1 where a difference exceeds `TOLERANCE`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import boundaryc
from boundaryc.language.model import Stack, TopologySpec
from examples.cases import LENGTHS, ORDINARY, SEQUENCE_PARALLEL, Case, Result
from examples.common.parallel import Parallel
from examples.reference import reference

ROOT = Path(__file__).resolve().parent.parent
STACKS = ("qwen3", "qwen3_moe")
RANKS = 4
TOLERANCE = 2e-5
"""Largest allowed difference of a float32 logit; logits have a standard deviation of one."""

SHORT = {"all_reduce": "ar", "all_gather": "ag", "reduce_scatter": "rs"}


def main() -> int:
    """Runs the demo; returns the exit code."""
    os.chdir(ROOT)  # generated files name their source as it is given here
    stacks = []
    for name in STACKS:
        source = f"examples/{name}/stack.yaml"
        boundaryc.compile(source)
        stacks.append(boundaryc.load(source))
    print(f"compiled {', '.join(STACKS)} into generated/; running on {RANKS} ranks")
    with tempfile.TemporaryDirectory() as folder:
        results = measure(stacks, Path(folder))
    print(_table(results))
    missed = [result for result in results if not result.difference <= TOLERANCE]
    print(
        f"{len(results) - len(missed)} of {len(results)} runs agree with transformers "
        f"to {TOLERANCE:.0e}"
    )
    return 1 if missed or not results else 0


def cases(stack: Stack) -> list[Case]:
    """The runs of a stack: its topologies of four ranks, each variant that has a meaning there.

    Padding decides which cuts are even, and with it which collectives may run; so does the policy,
    where an FFN's sum may end in a scatter.
    """
    return [
        Case(stack.name, spec.name, spec.attn_dp, Parallel.of(spec), variant, padding, policy)
        for spec in stack.topologies
        if spec.tp == RANKS and spec.attn_cp == 1
        for variant in (ORDINARY, SEQUENCE_PARALLEL)[: 2 if spec.attn_tp > 1 else 1]
        for padding, policy in _choices(spec, variant)
    ]


def _choices(spec: TopologySpec, variant: str) -> list[tuple[str, str]]:
    """The paddings and policies that can make a difference."""
    choices = [("unpadded", "auto"), ("sum_len", "auto")]
    if spec.attn_dp > 1:
        choices.append(("max_len", "auto"))
        if variant == ORDINARY:
            choices += [("max_len", "ar"), ("max_len", "rs"), ("unpadded", "rsv")]
    return choices


def measure(stacks: list[Stack], folder: Path) -> list[Result]:
    """Runs all cases of compiled stacks in one start of the ranks; `folder` is scratch space.

    Raises CalledProcessError where a rank failed.
    """
    references = {
        stack.name: reference(
            width=stack.hidden_size,
            layers=len(stack.layers),
            dense=[index for index, layer in enumerate(stack.layers) if "mlp" in layer],
            sparse=any(stage.sparse for stage in stack.stages),
            lengths=LENGTHS,
            seed=seed,
        )
        for seed, stack in enumerate(stacks)
    }
    torch.save(
        (references, [case for stack in stacks for case in cases(stack)]), folder / "cases.pt"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(RANKS), "-m", "examples.worker", str(folder)]
    # One thread a rank: four ranks share a small machine, and results do not depend on its size.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    results: list[Result] = torch.load(folder / "results.pt", weights_only=False)
    return results


def _table(results: list[Result]) -> str:
    """The results for people: one line a run."""
    head = (
        "stack",
        "topology",
        "variant",
        "padding",
        "policy",
        "collectives/layer",
        "bytes/token",
        "max diff",
    )
    lines = [head]
    for result in results:
        case = result.case
        calls = " ".join(f"{count} {SHORT[kind]}" for kind, count in sorted(result.calls.items()))
        lines.append(
            (
                case.stack,
                case.topology,
                case.variant,
                case.padding,
                case.policy,
                calls or "none",
                f"{result.received / result.tokens:,.0f}",
                f"{result.difference:.1e}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


if __name__ == "__main__":
    sys.exit(main())
