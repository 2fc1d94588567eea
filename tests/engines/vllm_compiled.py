"""A stack in a model that vLLM compiles: traced once, fullgraph, with all guards dropped."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests.engines.tiny import LAYERS, WIDTH, Tiny

ROWS = (16, 6, 5, 2)
"""The first is traced; the others run what was traced."""


def differences(rank: int, settings: Any) -> dict[str, Any]:
    """The largest difference from one rank in float64 for each of `ROWS`, and how many graphs.

    ``settings`` are those of a layout of two TP ranks. vLLM's DYNAMO_TRACE_ONCE is its VLLM_COMPILE
    without Inductor's passes.
    """
    from torch._dynamo.utils import counters
    from vllm.compilation.decorators import support_torch_compile
    from vllm.config import (
        CompilationConfig,
        CompilationMode,
        VllmConfig,
        set_current_vllm_config,
    )
    from vllm.forward_context import set_forward_context

    from boundaryc.engines.vllm import VllmGroups

    tiny = Tiny(torch.float32)
    stack = import_module("generated.sample").load("tp2", VllmGroups())
    config = VllmConfig(
        parallel_config=settings.parallel_config,
        device_config=settings.device_config,
        compilation_config=CompilationConfig(
            mode=CompilationMode.DYNAMO_TRACE_ONCE, backend="eager"
        ),
    )
    found = []
    before = counters["stats"]["unique_graphs"]
    with set_current_vllm_config(config), torch.compiler.set_stance("default"):
        compiled = support_torch_compile(_Model, dynamic_arg_dims={"hidden": 0})
        model = compiled(vllm_config=config)
        model.take(stack, tiny, slice(rank * WIDTH // 2, (rank + 1) * WIDTH // 2))
        for rows in ROWS:
            model.batch = stack.batch(rows_per_dp=[rows], padding="unpadded", mode="decode")
            tokens = tiny.tokens(rows, 0)
            with set_forward_context(None, config, num_tokens=rows):
                output = model(tokens)
            worst = (output - tiny.expected(tokens)).abs().nan_to_num(nan=float("inf")).max()
            found.append((float(worst), output.shape[0]))
    return {"found": found, "graphs": counters["stats"]["unique_graphs"] - before}


class _Model(nn.Module):
    """The linear stages of a `Tiny`, with the batch of a forward in an attribute."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        self.batch: Any = None

    def take(self, stack: Any, tiny: Tiny, own: slice) -> None:
        """The part of one rank, columns ``own`` of every product."""
        self.stack, self.own = stack, own
        self.products = [[one[:, own].contiguous() for one in layer] for layer in tiny.products]
        norms = [[SimpleNamespace(weight=one) for one in layer] for layer in tiny.norms]
        self.last = norms[0][0]
        self.at = [
            stack.layer(index).bind(attention=norms[index][0], mlp=norms[index][1])
            for index in range(LAYERS)
        ]

    def forward(self, hidden: Tensor) -> Tensor:
        """All layers and the norm."""
        self.stack.start(self.batch)
        carried: Any = hidden
        for at, (attention, mlp) in zip(self.at, self.products, strict=True):
            x = at.attention.prepare(carried, self.batch)
            carried = at.attention.finish(self._product(x, attention), self.batch)
            x = at.mlp.prepare(carried, self.batch)
            with at.mlp.exit(self.batch) as out:
                x = out.reduce_output(self._product(x, mlp))
            carried = out.finish(x)
        output: Tensor = self.stack.norm(carried, self.batch, self.last)
        return output

    def _product(self, x: Tensor, weight: Tensor) -> Tensor:
        return x[:, self.own] @ weight.T
