"""What generated boundary code imports at run time. It needs torch and nothing else.

A model sees a `Stack`: it binds the layers' parameters, builds one `Batch` per forward from facts
that all ranks know, and brackets each compute stage with ``prepare`` and ``finish`` or ``exit``.
"""

from boundaryc.runtime.additive import Additive, Multiplicity, add_term, check_term
from boundaryc.runtime.batch import Batch
from boundaryc.runtime.boundaries import (
    AttentionBoundary,
    FfnBoundary,
    Leaves,
    MixerBoundary,
)
from boundaryc.runtime.branches import (
    BesideAttentionBoundary,
    BesideFfnBoundary,
    BesideMixerBoundary,
    Merges,
    PreparedAttentionBoundary,
    PreparedFfnBoundary,
    PreparedMixerBoundary,
)
from boundaryc.runtime.captures import AuxHiddenStateList, Capture, CaptureMove, Collector
from boundaryc.runtime.collectives import (
    Collective,
    CopiedCollective,
    GroupProvider,
    MappedGroups,
    SingleCollective,
    SingleGroups,
    Sizes,
    WideCollective,
)
from boundaryc.runtime.columns import Column
from boundaryc.runtime.crossing import At, Prepare, Prepares, Resume, Resumes
from boundaryc.runtime.distributed import GlooCollective, NcclCollective, TorchGroups
from boundaryc.runtime.ending import LayerNormStack, UnnormedStack
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.exits import (
    AddsTail,
    BranchExit,
    Exit,
    ExitDecision,
    Exits,
    FfnExit,
    Leave,
    MixerExit,
    Reduce,
)
from boundaryc.runtime.facts import BatchFacts, Embeddings, Mode, Padding
from boundaryc.runtime.finalize import ExpertRows, finalize
from boundaryc.runtime.fusing import (
    AnyFusingStack,
    FusingFfnBoundary,
    FusingFfnExit,
    FusingStack,
    HandoffNorm,
)
from boundaryc.runtime.fusion import (
    FusedAttentionInput,
    FusedBoundary,
    FusedInput,
    FusedMlpInput,
    FusionPlan,
    FusionProvider,
    SumKernel,
)
from boundaryc.runtime.handoffs import HandoffOutput
from boundaryc.runtime.hyper import (
    HyperConnection,
    HyperHead,
    hyper_enter,
    hyper_head,
    hyper_mean,
    hyper_read,
    hyper_update,
)
from boundaryc.runtime.left import Access, Left, Move
from boundaryc.runtime.members import Cut, Members
from boundaryc.runtime.mesh import Axes, Mesh
from boundaryc.runtime.orders import Order
from boundaryc.runtime.owed import BranchOutput, OwedOutput
from boundaryc.runtime.params import BiasedNorm, InputScale, Norm, check_bias, check_eps
from boundaryc.runtime.pipeline import PayloadTensor, Transfer
from boundaryc.runtime.quantize import (
    Fp8Scale,
    dequantize,
    quantize_fp8,
    quantize_int8,
    quantized_all_reduce,
)
from boundaryc.runtime.rowwise import (
    Accumulate,
    add,
    add_layer_norm,
    add_rms_norm,
    join,
    layer_norm,
    reject_shapes,
    rms_norm,
)
from boundaryc.runtime.shards import ContextParallel, Split
from boundaryc.runtime.stack import AnyBatch, AnyStack, Stack
from boundaryc.runtime.stream import Form, ResidualStream, StreamState
from boundaryc.runtime.sum_limits import SumLimits
from boundaryc.runtime.symmetric import SumWorkspace, SymmetricSums
from boundaryc.runtime.table import Table
from boundaryc.runtime.trace import FileSink, TracedGroups

__all__ = [
    "Access",
    "Accumulate",
    "Additive",
    "AddsTail",
    "AnyBatch",
    "AnyFusingStack",
    "AnyStack",
    "At",
    "AttentionBoundary",
    "AuxHiddenStateList",
    "Axes",
    "Batch",
    "BatchFacts",
    "BesideAttentionBoundary",
    "BesideFfnBoundary",
    "BesideMixerBoundary",
    "BiasedNorm",
    "BoundaryError",
    "BranchExit",
    "BranchOutput",
    "Capture",
    "CaptureMove",
    "Collective",
    "Collector",
    "Column",
    "ContextParallel",
    "CopiedCollective",
    "Cut",
    "Embeddings",
    "Exit",
    "ExitDecision",
    "Exits",
    "ExpertRows",
    "FfnBoundary",
    "FfnExit",
    "FileSink",
    "Form",
    "Fp8Scale",
    "FusedAttentionInput",
    "FusedBoundary",
    "FusedInput",
    "FusedMlpInput",
    "FusingFfnBoundary",
    "FusingFfnExit",
    "FusingStack",
    "FusionPlan",
    "FusionProvider",
    "GlooCollective",
    "GroupProvider",
    "HandoffNorm",
    "HandoffOutput",
    "HyperConnection",
    "HyperHead",
    "InputScale",
    "LayerNormStack",
    "Leave",
    "Leaves",
    "Left",
    "MappedGroups",
    "Members",
    "Merges",
    "Mesh",
    "MixerBoundary",
    "MixerExit",
    "Mode",
    "Move",
    "Multiplicity",
    "NcclCollective",
    "Norm",
    "Order",
    "OwedOutput",
    "Padding",
    "PayloadTensor",
    "Prepare",
    "PreparedAttentionBoundary",
    "PreparedFfnBoundary",
    "PreparedMixerBoundary",
    "Prepares",
    "Reduce",
    "ResidualStream",
    "Resume",
    "Resumes",
    "SingleCollective",
    "SingleGroups",
    "Sizes",
    "Split",
    "Stack",
    "StreamState",
    "SumKernel",
    "SumLimits",
    "SumWorkspace",
    "SymmetricSums",
    "Table",
    "TorchGroups",
    "TracedGroups",
    "Transfer",
    "UnnormedStack",
    "WideCollective",
    "add",
    "add_layer_norm",
    "add_rms_norm",
    "add_term",
    "check_bias",
    "check_eps",
    "check_term",
    "dequantize",
    "finalize",
    "hyper_enter",
    "hyper_head",
    "hyper_mean",
    "hyper_read",
    "hyper_update",
    "join",
    "layer_norm",
    "quantize_fp8",
    "quantize_int8",
    "quantized_all_reduce",
    "reject_shapes",
    "rms_norm",
]
