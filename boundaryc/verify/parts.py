"""What a simulated rank's compute brings to a sum, and what becomes of its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from boundaryc.graph.build import Edge
from boundaryc.topology.mesh import Mesh
from boundaryc.verify.batches import coordinates
from boundaryc.verify.fixture import Place
from boundaryc.verify.scene import Scene


def crossings(scene: Scene) -> dict[Place, Edge]:
    """The edge that the output of each stage crosses, where a sum may travel quantised."""
    stack, graph = scene.subject.plan.stack, scene.subject.plan.graph
    if all(stage.quantized_sum is None for stage in stack.stages):
        return {}
    places = [Place(index, name) for index, layer in enumerate(stack.layers) for name in layer]
    edges = [edge for layer in graph.walk for edge in layer]
    return dict(zip(places, [*edges[1:], graph.last], strict=True))


def share(mesh: Mesh, rank: int, owes: int) -> tuple[int, int]:
    """Which part of an owed sum a rank contributes, of how many."""
    part, parts = 0, 1
    for index, (at, size) in enumerate(zip(coordinates(mesh, rank), mesh.sizes, strict=True)):
        if owes >> index & 1:
            part, parts = part * size + at, parts * size
    return part, parts


def scattered(x: Tensor) -> Tensor:
    """The same values as a view that is not contiguous, between columns of NaN."""
    wide = torch.full((x.shape[0], 2 * x.shape[1]), float("nan"), dtype=x.dtype)
    wide[:, ::2] = x
    return wide[:, ::2]


def on_time(compute: Callable[[], Any], *, early: bool) -> Callable[[], Any]:
    """What a stage beside a branch leaves: computed now, or when the branch is at its end."""
    if not early:
        return compute
    output = compute()
    return lambda: output


def spoil(given: Tensor | tuple[Tensor, ...], residual: Tensor) -> None:
    """Overwrites a stage's input after its last use; not what is the stream's or the model's."""
    for x in (given,) if isinstance(given, Tensor) else given:
        of_stream = x.untyped_storage().data_ptr() == residual.untyped_storage().data_ptr()
        if x.dim() and not of_stream:
            x.fill_(float("nan") if x.is_floating_point() else 85)
