"""Whole forwards in CUDA graphs: replayed with other inputs, they are the eager forward."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc import api
from boundaryc.runtime import SingleGroups

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

WIDTH, LAYERS = 512, 3
DENSE = f"""\
boundaryc: 1
stack: graphed
hidden_size: {WIDTH}
norm: {{kind: rms, eps: 1.0e-6}}
stages:
  attention: {{kind: attention}}
  mlp: {{kind: ffn}}
layers: {{count: {LAYERS}, default: [attention, mlp]}}
captures: {{kept: {{after: [0, 2]}}}}
topologies: {{tp1: {{tp: 1}}}}
"""
STREAMS = DENSE.replace("stack: graphed", "stack: graphed_streams").replace(
    "stages:", "residual: {kind: hyper_connections, streams: 4}\nstages:"
)


@pytest.fixture(scope="module", params=[DENSE, STREAMS], ids=["dense", "streams"])
def package(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModuleType]:
    """The compiled stack, with kernels."""
    folder = tmp_path_factory.mktemp("graphed")
    source = folder / "stack.yaml"
    source.write_text(request.param, encoding="utf-8")
    (made,) = api.compile(source, out=folder / "made").published
    sys.path.insert(0, str(folder / "made"))
    try:
        yield importlib.import_module(made.stack)
    finally:
        sys.path.remove(str(folder / "made"))


def random(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Random numbers on the GPU."""
    return (torch.randn(*shape, device="cuda") * scale).to(dtype)


def bound(layer: Any) -> Any:
    """A layer with parameters of its own: norms, and what mixes streams where there are some."""
    flat = 4 * WIDTH
    parameters: dict[str, Any] = {}
    for stage in ("attention", "mlp"):
        parameters[stage] = SimpleNamespace(weight=random(WIDTH))
        parameters[f"{stage}_hyper"] = SimpleNamespace(
            fn=random(24, flat, scale=flat**-0.5, dtype=torch.float32),
            base=random(24, dtype=torch.float32),
            scale=random(3, dtype=torch.float32),
        )
    taken = layer.bind.__kwdefaults__ or layer.bind.__annotations__
    return layer.bind(**{name: value for name, value in parameters.items() if name in taken})


class Model:
    """Attention and FFN are one matrix each; ``forward`` reads ``x`` and says what it kept."""

    def __init__(self, package: ModuleType, rows: int) -> None:
        self.stack = package.load("tp1", SingleGroups())
        self.layers = [bound(self.stack.layer(index)) for index in range(LAYERS)]
        self.weights = [random(WIDTH, WIDTH, scale=WIDTH**-0.5) for _ in range(2 * LAYERS)]
        self.norm = SimpleNamespace(weight=random(WIDTH))
        self.x = random(rows, WIDTH)
        self.batch = self.stack.batch(rows_per_dp=[rows], padding="max_len", mode="decode")

    def forward(self) -> tuple[Tensor, ...]:
        """The output and everything that was captured."""
        batch, hidden = self.batch, self.x
        self.stack.start(batch)
        weights = iter(self.weights)
        for layer in self.layers:
            hidden = layer.attention.prepare(hidden, batch)
            hidden = layer.attention.finish(hidden @ next(weights), batch)
            hidden = layer.mlp.prepare(hidden, batch)
            with layer.mlp.exit(batch) as output:
                hidden = output.reduce_output(hidden @ next(weights))
            hidden = output.finish(hidden)
        hidden = self.stack.norm(hidden, batch, self.norm)
        return hidden, *batch.captured("kept")


@pytest.mark.parametrize("rows", [1, 17])
def test_a_replay_is_the_eager_forward(package: ModuleType, rows: int) -> None:
    """Bit for bit, for inputs that the capture never saw, in outputs and in what was captured."""
    torch.manual_seed(rows)
    model = Model(package, rows)
    with torch.inference_mode():
        model.forward()  # kernels are compiled at their first launch
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = model.forward()
        seen = []
        for _ in range(3):
            model.x.copy_(random(rows, WIDTH))
            graph.replay()
            replayed = [value.clone() for value in found]
            eager = model.forward()
            assert len(replayed) == len(eager) == 3
            for one, other in zip(replayed, eager, strict=True):
                assert torch.equal(one, other)
            seen.append(replayed[0])
    assert not torch.equal(seen[0], seen[1])
