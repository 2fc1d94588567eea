"""Which boundaries a fused kernel may take: a sum, a plain add and a norm on the same rows."""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.emit.beside import still_read
from boundaryc.graph.build import ENTRY, FINAL, Edge
from boundaryc.language.model import BUILTIN, Stage
from boundaryc.operations import final_read
from boundaryc.plan import ops
from boundaryc.plan.result import Boundary, StackPlan
from boundaryc.topology import Mesh

TAIL = (ops.Capture, ops.Quantize)
"""What may follow the norm; where rows move there is nothing to fuse."""


@dataclass(frozen=True, slots=True)
class FusedSum:
    """One such boundary, see `runtime.FusionPlan`; ``owes`` and ``rows`` are atoms.

    ``own``: kernels of the stack finish what its producer has not finalised. Then there may be no
    sum, and ``owes`` is empty. ``offered``: there is another provider, who may have it.
    """

    producer: str
    consumer: str
    input: str
    owes: int
    rows: int
    sparse: bool
    finalize: bool
    all_reduce: bool
    own: bool = False
    offered: bool = True

    def name(self, mesh: Mesh) -> str:
        """The attribute of the groups that has it; the rows of attention are not named."""
        on = f"_on_{mesh.label(self.rows)}" if self.rows & ~mesh.mask("attn_dp") else ""
        over = f"over_{mesh.label(self.owes)}" if self.owes else "finalized"
        return f"{self.producer}_to_{self.consumer}_{over}{on}"


def attempted(plan: StackPlan, boundary: Boundary) -> bool:
    """Whether a fused kernel may do what the next stage does with the sum it is left."""
    if not _adds_and_norms(plan, boundary.edge) or boundary.edge.consumer == FINAL:
        return False
    if not _has_engines(plan) or still_read(plan, boundary.edge):
        return False
    return _is_sum_add_norm(_after_hand_off(boundary))


def fused_sum(plan: StackPlan, mesh: Mesh, boundary: Boundary) -> FusedSum | None:
    """The boundary as a fused kernel may take it, at once or in place of the producer's exit."""
    edge = boundary.edge
    if not _adds_and_norms(plan, edge):
        return None
    own = finalize = all_reduce = False
    producer = plan.stack.stage(edge.producer)
    if _is_complete(plan, boundary, producer) and _may_hand_on(plan, producer, edge):
        return FusedSum(
            *(edge.producer, edge.consumer, _input(plan, edge), 0, boundary.start.rows),
            *(producer.sparse, True, False, True, _has_engines(plan)),
        )
    if _waits(plan, boundary):
        own = _may_hand_on(plan, producer, edge) and _has_kernels(plan, producer)
        finalize = _may_hand_on(plan, producer, edge) and (own or _has_engines(plan))
        all_reduce = _may_leave_sum(plan, producer, edge, mesh, boundary.start.owes)
    if not (finalize or all_reduce or attempted(plan, boundary)):
        return None
    return FusedSum(
        producer=edge.producer,
        consumer=edge.consumer,
        input=_input(plan, edge),
        owes=boundary.start.owes,
        rows=boundary.goal.rows,
        sparse=producer.sparse,
        finalize=finalize,
        all_reduce=all_reduce,
        own=own,
        offered=_has_engines(plan),
    )


def unfused(plan: StackPlan, mesh: Mesh, boundary: Boundary) -> str:
    """Why no fused kernel may take a boundary; empty where one may."""
    if fused_sum(plan, mesh, boundary) is not None:
        return ""
    if not _adds_and_norms(plan, boundary.edge):
        return "it is no plain add with an RMS norm behind it"
    if not boundary.start.owes:
        return "no sum is owed"
    if boundary.edge.consumer == FINAL:
        return "the final norm finishes no sum of its producer"
    if _is_sum_add_norm(_after_hand_off(boundary)) and still_read(plan, boundary.edge):
        return "a kernel may write over the residual, which the stage beside may still read"
    return "its sum is no all-reduce, or rows move beside it"


def may_defer_any(plan: StackPlan, stage: Stage) -> bool:
    """Whether the exit of a stage may leave its work to a fused kernel on some topology."""
    if not plan.stack.fusion or plan.stack.branch is not None or stage.kind != "ffn":
        return False
    return stage.finalize == "deferred" or _keeps_sum(plan, stage)


def _adds_and_norms(plan: StackPlan, edge: Edge) -> bool:
    """Whether the edge is a plain add and then the stack's norm, as far as its stages say."""
    if not plan.stack.fusion or edge.producer == ENTRY or edge.forks or edge.merges:
        return False
    stage = plan.stack.stage(edge.producer)
    if not plan.operations[stage.update].facts.plain_add or stage.update_scale is not None:
        return False
    if plan.stack.norm_of(edge.consumer).kind != "rms":
        return False
    ends = edge.consumer == FINAL
    name = final_read(plan.stack) if ends else plan.stack.stage(edge.consumer).read
    read = plan.operations[name]
    return read.facts.plain_norm and read.call is None


def _after_hand_off(boundary: Boundary) -> tuple[ops.Operation, ...]:
    every = boundary.path.ops
    split = next(at for at, op in enumerate(every) if isinstance(op, ops.HandOff))
    return every[split + 1 :]


def _is_sum_add_norm(sequence: tuple[ops.Operation, ...]) -> bool:
    match sequence:
        case (ops.AllReduce(), ops.Update(), ops.Read(), *tail):
            return all(isinstance(op, TAIL) for op in tail)
    return False


def _waits(plan: StackPlan, boundary: Boundary) -> bool:
    """Whether all that follows compute is such a boundary, and the update is the next stage's."""
    every = boundary.path.ops
    rest = tuple(op for op in every if not isinstance(op, ops.HandOff))
    if plan.stack.branch is not None or not _is_sum_add_norm(rest):
        return False
    return isinstance(every[0], ops.HandOff) or isinstance(every[1], ops.HandOff)


def _has_engines(plan: StackPlan) -> bool:
    """Whether a provider may be attached to the stack."""
    return any(name != BUILTIN for name in plan.stack.fusion)


def _has_kernels(plan: StackPlan, producer: Stage) -> bool:
    """Whether the stack's own kernels finish what a MoE hands on."""
    return BUILTIN in plan.stack.fusion and plan.operations[producer.update].call is None


def _is_complete(plan: StackPlan, boundary: Boundary, producer: Stage) -> bool:
    """Whether a MoE without a sum leaves all to the next stage, which begins with the update."""
    begins = tuple(type(op) for op in boundary.path.ops[:3])
    added = begins == (ops.HandOff, ops.Update, ops.Read)
    return added and not boundary.start.owes and _has_kernels(plan, producer)


def _may_hand_on(plan: StackPlan, producer: Stage, edge: Edge) -> bool:
    """Whether a MoE may hand on what it has not finalised: at the end only to the final norm."""
    ends = edge.consumer == FINAL
    return producer.finalize == "deferred" and (
        not ends or plan.stack.terminal.finalize == "deferred"
    )


def _may_leave_sum(plan: StackPlan, producer: Stage, edge: Edge, mesh: Mesh, owes: int) -> bool:
    """Whether an FFN that keeps its sum may leave it where a provider takes the batch.

    One with adapters or a replicated part does, if its sum is over all ranks and in full precision.
    Where experts are dispatched inside compute there is no sum to leave.
    """
    if edge.consumer == FINAL or owes != mesh.every or not _keeps_sum(plan, producer):
        return False
    return not (producer.quantized_sum or producer.additive) and producer.defer


def _keeps_sum(plan: StackPlan, producer: Stage) -> bool:
    keeps = plan.stack.lora or producer.reduction == "local_tail"
    return producer.kind == "ffn" and keeps and _has_engines(plan)


def _input(plan: StackPlan, edge: Edge) -> str:
    """What the norm is for, in the words of `runtime.FusionPlan`."""
    if edge.consumer == FINAL:
        return "norm"
    return "ffn" if plan.stack.stage(edge.consumer).kind == "ffn" else "attention"
