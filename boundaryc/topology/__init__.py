"""Meshes of ranks, and what stages mean on them as sets of mesh atoms."""

from boundaryc.topology.mesh import (
    MAX_ATOMS,
    Atom,
    Mesh,
    Sizes,
    TopologyError,
    build_mesh,
    naming,
)

__all__ = ["MAX_ATOMS", "Atom", "Mesh", "Sizes", "TopologyError", "build_mesh", "naming"]
