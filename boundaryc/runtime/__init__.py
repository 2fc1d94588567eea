"""What generated boundary code imports at run time. It needs torch and nothing else.

A model sees a `Stack`: it binds the layers' parameters, builds one `Batch` per forward from facts
that all ranks know, and brackets each compute stage with ``prepare`` and ``finish`` or ``exit``.
"""

from boundaryc.runtime.batch import Batch, Column
from boundaryc.runtime.boundaries import (
    AttentionBoundary,
    FfnBoundary,
    Leaves,
    Norm,
    Prepare,
    Prepares,
)
from boundaryc.runtime.collectives import (
    Collective,
    GroupProvider,
    MappedGroups,
    SingleCollective,
    SingleGroups,
    Sizes,
)
from boundaryc.runtime.distributed import GlooCollective, NcclCollective, TorchGroups
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.exits import ExitDecision, Exits, FfnExit, Leave, Reduce
from boundaryc.runtime.facts import BatchFacts, Embeddings, Mode, Padding
from boundaryc.runtime.members import Cut, Members
from boundaryc.runtime.mesh import Axes, Mesh
from boundaryc.runtime.orders import Order
from boundaryc.runtime.rowwise import add, add_rms_norm, join, rms_norm
from boundaryc.runtime.shards import ContextParallel, Split
from boundaryc.runtime.stack import AnyBatch, AnyStack, Stack, Table
from boundaryc.runtime.stream import OwedOutput, ResidualStream, StreamState
from boundaryc.runtime.trace import FileSink, TracedGroups

__all__ = [
    "AnyBatch",
    "AnyStack",
    "AttentionBoundary",
    "Axes",
    "Batch",
    "BatchFacts",
    "BoundaryError",
    "Collective",
    "Column",
    "ContextParallel",
    "Cut",
    "Embeddings",
    "ExitDecision",
    "Exits",
    "FfnBoundary",
    "FfnExit",
    "FileSink",
    "GlooCollective",
    "GroupProvider",
    "Leave",
    "Leaves",
    "MappedGroups",
    "Members",
    "Mesh",
    "Mode",
    "NcclCollective",
    "Norm",
    "Order",
    "OwedOutput",
    "Padding",
    "Prepare",
    "Prepares",
    "Reduce",
    "ResidualStream",
    "SingleCollective",
    "SingleGroups",
    "Sizes",
    "Split",
    "Stack",
    "StreamState",
    "Table",
    "TorchGroups",
    "TracedGroups",
    "add",
    "add_rms_norm",
    "join",
    "rms_norm",
]
