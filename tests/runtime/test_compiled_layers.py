"""A layer and a whole stack under torch.compile: three graphs for all numbers of tokens."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from boundaryc.runtime import SingleGroups

WIDTH = 64
TOKENS = (0, 1, 3, 64, 4096)


class Norm(nn.Module):
    """A norm's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH))


class Layer(nn.Module):
    """An example's decoder layer, whose stages are one product each."""

    def __init__(self, boundaries: Any) -> None:
        super().__init__()
        self.norms = nn.ModuleList([Norm(), Norm()])
        self.at = boundaries.bind(attention=self.norms[0], mlp=self.norms[1])
        self.attention = nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, hidden: Any, batch: Any) -> Any:
        """Every call of a model."""
        hidden = self.at.attention.prepare(hidden, batch)
        hidden = self.at.attention.finish(self.attention(hidden), batch)
        hidden = self.at.mlp.prepare(hidden, batch)
        with self.at.mlp.exit(batch) as output:
            hidden = output.reduce_output(self.mlp(hidden))
        return output.finish(hidden)


class Model:
    """A whole stack on one rank."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.stack = import_module("generated.qwen3").load("tp1", SingleGroups())
        self.layers = [Layer(self.stack.layer(index)) for index in self.stack.layers]
        self.norm = Norm()

    def batch(self, tokens: int) -> Any:
        """Of one forward."""
        return self.stack.batch(rows_per_dp=[tokens], padding="sum_len", mode="decode")

    def forward(self, hidden: Tensor, batch: Any, layer: Callable[..., Any] = Layer.forward) -> Any:
        """Through ``layer``, where it is not the first one."""
        self.stack.start(batch)
        found: Any = self.layers[0](hidden, batch)
        for one in self.layers[1:]:
            found = layer(one, found, batch)
        return self.stack.norm(found, batch, self.norm)


@pytest.mark.parametrize("what", ["layer", "stack"])
def test_three_graphs_serve_all_numbers_of_tokens(what: str) -> None:
    """No rows, one row, and any number; the same values, and layers alike share them."""
    from torch._dynamo.testing import CompileCounterWithBackend  # takes as long as all of torch

    torch._dynamo.reset()
    model, graphs = Model(), CompileCounterWithBackend("eager")
    if what == "layer":
        layer = torch.compile(Layer.forward, backend=graphs, fullgraph=True)
        forward: Any = lambda hidden, batch: model.forward(hidden, batch, layer)  # noqa: E731
    else:
        forward = torch.compile(model.forward, backend=graphs, fullgraph=True)
    with torch.inference_mode():
        for tokens in TOKENS:
            batch = model.batch(tokens)
            hidden = torch.randn(tokens, WIDTH)
            wanted = model.forward(hidden, batch)
            assert torch.equal(forward(hidden, batch), wanted), tokens

    assert graphs.frame_count <= 3
