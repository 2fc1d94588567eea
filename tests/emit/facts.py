"""Facts of an edge for boundaries written by hand."""

from __future__ import annotations

from typing import Any

from boundaryc.plan.state import EdgeFacts, Widths
from boundaryc.topology import Mesh

_DEFAULTS: dict[str, Any] = {
    "scatter_by_size": False,
    "may_defer": True,
    "complete_on": None,
    "joins_sum": False,
    "update_at_producer": False,
    "transform_linear": False,
    "captures": (),
    "read_on": None,
    "quantized_tensors": 0,
    "read_local": 0,
    "read_whole": 0,
    "widths": Widths(2, 2, 2, 0),
}


def facts(mesh: Mesh, **own: Any) -> EdgeFacts:
    """Facts of an even batch with no restrictions but ``own``."""
    every = mesh.every
    values = {**_DEFAULTS, "sizes": mesh.sizes, "even": every, "scatter": every}
    missing = dict.fromkeys(set(EdgeFacts._fields) - set(values), 0)
    return EdgeFacts(**values, **missing)._replace(**own)
