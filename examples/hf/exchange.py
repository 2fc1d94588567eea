"""What compute exchanges by itself: the context of its tokens, and rows for experts."""

from __future__ import annotations

import torch
from torch import Tensor

from boundaryc.runtime import Axes, Collective
from boundaryc.runtime.mesh import Mesh

Sizes = tuple[int, ...]


def gathered(group: Collective, x: Tensor) -> tuple[Tensor, Sizes]:
    """The rows of all members, which may have other numbers of them, and these numbers."""
    counts = group.all_gather(torch.tensor([[x.shape[0]]]))
    sizes = tuple(counts.flatten().tolist())
    return group.all_gather(x.contiguous(), sizes), sizes


def scattered_sum(group: Collective, x: Tensor, sizes: Sizes) -> Tensor:
    """This member's rows of the sum."""
    return group.reduce_scatter(x, sizes)


def in_order(group: Collective, x: Tensor, at: Tensor) -> Tensor:
    """All tokens of the members in order; ``at`` are those that this one has first in ``x``."""
    rows, _ = gathered(group, x[: len(at)])
    places, _ = gathered(group, at[:, None])
    tokens = torch.empty_like(rows)
    tokens[places.flatten()] = rows
    return tokens


def inner(mesh: Mesh, ranks: int) -> Axes:
    """The innermost atoms that together have ``ranks`` ranks."""
    axes: Axes = ()
    size = 1
    for name, extent, _ in reversed(mesh.atoms):
        if size == ranks:
            break
        axes, size = (name, *axes), size * extent
    return axes
