"""Checks of plans that need more than one plan at a time: rules, demands and what is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from boundaryc.graph.build import FINAL
from boundaryc.plan import ops
from boundaryc.plan.judge import declarations
from boundaryc.plan.provenance import rejections
from boundaryc.plan.result import Boundary, StackPlan, TopologyPlan
from boundaryc.plan.state import State, keeps_order
from boundaryc.plan.transitions import Goal
from boundaryc.topology import Mesh
from boundaryc.topology.mesh import Atom
from boundaryc.verify.batches import Layout, coordinates
from boundaryc.verify.run import Prover
from boundaryc.verify.scene import Cell
from tests.plan.mutations import Plan, mutations

LEAF = 4
"""Rows of every rank's leaf in the batch whose traffic is compared with the plan's costs."""
SCALE = LEAF * 8 // 2
"""Bytes on the wire for each byte of a cost, which is for one row a rank of two-byte elements."""


def typed(plan: Plan, boundary: Boundary) -> bool:
    """Whether the typing rules admit a plan and it arrives where the boundary must."""
    state: State | None = boundary.start
    for op in plan:
        state = op.apply(state, boundary.facts) if state is not None else None
    if state is None or not state.handed_off:
        return False
    if state.quantized != bool(boundary.facts.quantized_tensors):
        return False
    return Goal(state.rows, state.residual, state.by_token, state.phase) == boundary.goal


def loose(boundaries: Iterable[tuple[Boundary, tuple[int, ...]]]) -> str | None:
    """A damaged plan that the typing rules admit and that is wrong on provenance, or None."""
    seen = set()
    for boundary, sizes in boundaries:
        start, goal = declarations(boundary)
        for name, plan in mutations(boundary.path.ops, atoms=len(sizes)):
            key = (plan, len(sizes), boundary.facts.even, start, goal)
            if key in seen or not typed(plan, boundary):
                continue
            seen.add(key)
            judged = {"atoms": len(sizes), "start": start, "goal": goal}
            wrong = next(rejections(plan, even=boundary.facts.even, **judged), None)
            if wrong is not None:
                edge = boundary.edge
                return f"{edge.producer} to {edge.consumer}, {name}: {wrong.faults[0]}"
    return None


def disordered(atoms: int = 4) -> str | None:
    """A move that the rule of order judges otherwise than the rows it delivers, or None."""
    mesh = Mesh(tuple(Atom(f"a{index}", 2, "attn_tp") for index in range(atoms)), ())
    world, every = 1 << atoms, mesh.every
    layout = Layout(tuple((rank,) for rank in range(world)))
    for finer in range(1, every + 1):
        for moved in (mask for mask in range(1, finer + 1) if not mask & ~finer):
            delivered = all(
                [
                    token
                    for member in range(world)
                    if _agree(mesh, rank, member, every & ~moved)
                    for token in layout.tokens(mesh, member, finer)
                ]
                == layout.tokens(mesh, rank, finer & ~moved)
                for rank in range(world)
            )
            if delivered != keeps_order(moved, finer, every):
                return f"a move over {moved:b} of rows {finer:b} of {atoms} atoms"
    return None


def _agree(mesh: Mesh, one: int, other: int, atoms: int) -> bool:
    """Whether two ranks have the same coordinates on some atoms."""
    places = zip(coordinates(mesh, one), coordinates(mesh, other), strict=True)
    return all(a == b for index, (a, b) in enumerate(places) if atoms >> index & 1)


def unmet(planned: StackPlan) -> str | None:
    """A demand of a batch variant or of a policy that some plan does not meet, or None."""
    for topology in planned.topologies:
        for policy, tables in topology.tables.items():
            for column, table in zip(topology.columns, tables, strict=True):
                for boundary in table.values():
                    text = _unmet(planned, topology, policy, column.variant, boundary)
                    if text:
                        return f"{topology.spec.name} {policy} {column.variant}: {text}"
    return None


def _unmet(
    planned: StackPlan, topology: TopologyPlan, policy: str, variant: str, boundary: Boundary
) -> str | None:
    edge, mesh = boundary.edge, topology.mesh
    cuts = mesh.mask("attn_cp") | mesh.mask("attn_tp")
    if variant == "sequence_parallel":
        if topology.row_multiples[variant] % mesh.size(cuts):
            return "groups are not padded for their slices"
        if edge.consumer != FINAL and any(cuts & ~rows for rows in _read_on(boundary)):
            return f"{edge.consumer} is read on rows that are not slices"
    scoped = edge.producer and planned.stack.stage(edge.producer).reduction != "partial"
    for op in boundary.path.ops if scoped else ():
        if isinstance(op, ops.ReduceScatter) and (
            policy == "ar" or (policy == "rs" and op.variable)
        ):
            return f"the sum of {edge.producer} ends in {op}"
    return None


def _read_on(boundary: Boundary) -> Iterator[int]:
    """The rows on which a boundary reads the residual."""
    state = boundary.start
    for op in boundary.path.ops:
        if isinstance(op, ops.Read):
            yield state.rows
        after = op.apply(state, boundary.facts)
        assert after is not None
        state = after


def unplanned(prover: Prover) -> str | None:
    """A cell of an even batch that sends something else than its plans' costs say, or None.

    Simulated ranks send wide numbers, of which what is quantised is another part than of real ones.
    """
    planned = prover.subject.plan
    if any(stage.quantize or stage.quantized_sum for stage in planned.stack.stages):
        return None
    for topology in planned.topologies:
        spec = topology.spec
        rows = (LEAF * spec.attn_cp * spec.attn_tp,) * spec.attn_dp
        for variant in topology.row_multiples:
            for policy in topology.tables:
                cell = Cell(spec.name, variant, policy, "sum_len", rows)
                if variant == "context_parallel":
                    continue
                outcome, scene = prover.run(cell), prover.scene(cell)
                edges = [edge for layer in planned.graph.walk for edge in layer]
                costs = [scene.boundaries[e].path.cost for e in (*edges, planned.graph.last)]
                sent = (outcome.collectives, outcome.wire_bytes)
                want = (sum(c.collectives for c in costs), SCALE * sum(c.wire for c in costs))
                if outcome.failure is None and sent != want:
                    return f"{cell}: {sent} collectives and bytes, planned {want}"
    return None
