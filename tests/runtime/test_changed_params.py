"""Parameters that change after they were bound take effect in the next forward.

As when LoRA is merged, a quantised model loaded again, or weights come from a trainer: by writing
into a tensor, by ``.data``, and by another tensor in the module's place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from boundaryc.runtime import SingleGroups
from boundaryc.verify.modules import forget, import_package
from tests.verify.subjects import compiled

WIDTH, ROWS, STREAMS = 16, 3, 2
NORMS = """\
boundaryc: 1
stack: sample
hidden_size: 16
norm: {kind: layer, eps: 1.0e-6, bias: true}
stages:
  attention: {kind: attention, additive: {bias: rank0}}
  mlp: {kind: ffn, transform: norm, norm: {kind: rms, eps: 1.0e-6}}
layers: {count: 2, default: [attention, mlp]}
topologies: {tp1: {tp: 1}}
"""
STREAMED = """\
boundaryc: 1
stack: sample
hidden_size: 16
norm: {kind: rms, eps: 1.0e-6}
residual: {kind: hyper_connections, streams: 2}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn}
layers: {count: 2, default: [attention, mlp]}
topologies: {tp1: {tp: 1}}
"""

Change = Callable[[nn.Module, str, Tensor], None]


def in_place(module: nn.Module, name: str, value: Tensor) -> None:
    getattr(module, name).copy_(value)


def by_data(module: nn.Module, name: str, value: Tensor) -> None:
    getattr(module, name).data = value


def replaced(module: nn.Module, name: str, value: Tensor) -> None:
    delattr(module, name)
    setattr(module, name, nn.Parameter(value, requires_grad=False))


class Parameters(nn.Module):
    """Some parameters by name."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(drawn(*shape), requires_grad=False))


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


class Model:
    """A stack on one rank whose compute is halving; ``bound`` are all modules that it binds."""

    def __init__(self, package: ModuleType, *, streamed: bool) -> None:
        self.stack = package.load("tp1", SingleGroups())
        coefficients = (2 + STREAMS) * STREAMS
        hyper = {"fn": (coefficients, STREAMS * WIDTH), "base": (coefficients,), "scale": (3,)}
        norm: dict[str, Any] = {"weight": (WIDTH,)}
        biased = norm if streamed else norm | {"bias": (WIDTH,)}
        self.final = Parameters(**biased)
        self.terms = Parameters(bias=(WIDTH,))
        self.streamed = streamed
        self.bound = [
            {"attention": Parameters(**biased), "mlp": Parameters(**norm)}
            | (
                {f"{name}_hyper": Parameters(**hyper) for name in ("attention", "mlp")}
                if streamed
                else {"mlp_output_norm": Parameters(**norm)}
            )
            for _ in range(2)
        ]
        self.layers = self.bind()

    def bind(self) -> list[Any]:
        """The layers, bound to what the modules are now."""
        return [self.stack.layer(index).bind(**own) for index, own in enumerate(self.bound)]

    def forward(self, hidden: Tensor, layers: list[Any]) -> Tensor:
        """What leaves the stack; a bias is given to every attention that declares one."""
        batch = self.stack.batch(rows_per_dp=[ROWS], padding="sum_len", mode="prefill")
        self.stack.start(batch)
        terms = {} if self.streamed else {"bias": self.terms.bias}
        out: Any = hidden.clone()
        for at in layers:
            out = at.attention.finish(at.attention.prepare(out, batch) / 2, batch, **terms)
            x = at.mlp.prepare(out, batch)
            with at.mlp.exit(batch) as output:
                y = output.reduce_output(x / 2)
            out = output.finish(y)
        found: Tensor = self.stack.norm(out, batch, self.final)
        return found.clone()

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Every module that is bound or given, with what it is called."""
        yield "final", self.final
        yield from self.bound[1].items()
        if not self.streamed:
            yield "terms", self.terms


@pytest.fixture(scope="module", params=[False, True], ids=["norms_and_terms", "streams"])
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    package = import_package(compiled(STREAMED if request.param else NORMS)[1], "sample")
    torch.manual_seed(0)
    yield Model(package, streamed=request.param)
    forget(package)


@pytest.mark.parametrize("change", [in_place, by_data, replaced], ids=lambda one: one.__name__)
def test_what_changes_after_binding_takes_effect(model: Model, change: Change) -> None:
    """Every parameter of a layer, of the end and of what is added; as if bound only now."""
    hidden = drawn(ROWS, WIDTH)
    for name, module in model.modules():
        for parameter, value in list(module.named_parameters()):
            before = model.forward(hidden, model.layers)
            change(module, parameter, drawn(*value.shape))
            after = model.forward(hidden, model.layers)
            assert not torch.equal(before, after), (name, parameter)
            assert torch.equal(after, model.forward(hidden, model.bind())), (name, parameter)
