"""Faults in the planner: its rules, its search, and what it is told about stages."""

from __future__ import annotations

from tests.verify.faults.fault import Fault

OPS = "boundaryc/plan/ops.py"
FACTS = "boundaryc/plan/facts.py"
CONTRACTS = "boundaryc/topology/contracts.py"


def _fault(
    name: str, does: str, path: str, old: str, new: str, *seen_by: str, area: str = "planner"
) -> Fault:
    return Fault(name, area, does, path, old, new, seen_by)


FAULTS = (
    _fault(
        "sum-never",
        "An update may be applied to a partial: the sum is never done.",
        OPS,
        "state.phase is not Phase.CONTRIBUTION or state.owes or state.transform or state.joined:\n"
        "            return None\n        if state.by_token or state.rows != state.residual:",
        "state.phase is not Phase.CONTRIBUTION or state.transform or state.joined:\n"
        "            return None\n        if state.by_token or state.rows != state.residual:",
        "provenance",
    ),
    _fault(
        "update-on-other-rows",
        "The contribution is added to a residual that lies on other rows.",
        OPS,
        "if state.by_token or state.rows != state.residual:",
        "if state.by_token:",
        "provenance",
    ),
    _fault(
        "read-of-a-contribution",
        "A read may run before the update: the norm sees a complete contribution alone.",
        OPS,
        "        if state.phase is not Phase.STREAM:\n"
        "            return None\n        if facts.read_local",
        "        if state.phase is Phase.INPUT or state.owes:\n"
        "            return None\n        if facts.read_local",
        "rules",
    ),
    _fault(
        "scatter-forgets-its-sum",
        "After a reduce-scatter the sum still counts as owed: it is done twice.",
        OPS,
        "return _settle(state._replace(rows=rows, owes=state.owes & ~self.axes))",
        "return _settle(state._replace(rows=rows & ~self.axes, owes=state.owes & ~self.axes))",
        "provenance",
    ),
    _fault(
        "joined-sum-keeps-old-rows",
        "After a joined sum the residual is taken to lie where it lay before.",
        OPS,
        "return state._replace(phase=Phase.STREAM, joined=False, residual=state.rows)",
        "return state._replace(phase=Phase.STREAM, joined=False)",
        "provenance",
    ),
    _fault(
        "order-of-moves",
        "A move may be over an atom inside of one that stays whole: right rows in the wrong order.",
        "boundaryc/plan/state.py",
        "return whole == 0 or moved < (whole & -whole)",
        "return True",
        "provenance",
    ),
    _fault(
        "order-one-atom-off",
        "The order of moves is judged by the innermost whole atom instead of the outermost.",
        "boundaryc/plan/state.py",
        "return whole == 0 or moved < (whole & -whole)",
        "return whole == 0 or moved < (1 << whole.bit_length())",
        "rules",
    ),
    _fault(
        "placed-sum-keeps-its-debt",
        "A placed sum gathers but may claim a sum that was not owed.",
        OPS,
        "self.gather & ~state.rows or self.sum & ~state.owes:",
        "self.gather & ~state.rows:",
        "rules",
    ),
    _fault(
        "fixed-sizes-on-uneven-rows",
        "A fixed-size collective may move rows of unequal sizes.",
        "boundaryc/plan/state.py",
        "return bool(axes & ~self.even) or (scatter and self.scatter_by_size)",
        "return scatter and self.scatter_by_size",
        "planning",
    ),
    _fault(
        "residual-joins-everywhere",
        "The residual may join where its rows are finer than the sum brings together.",
        OPS,
        "if state.rows & ~state.residual or extra & ~state.owes:",
        "if state.rows & ~state.residual:",
        "provenance",
    ),
    _fault(
        "join-without-permission",
        "The residual joins a sum that it was not allowed to join.",
        OPS,
        "if not facts.joins_sum or not state.owes or state.residual == NO_RESIDUAL:",
        "if not state.owes or state.residual == NO_RESIDUAL:",
        "provenance",
    ),
    _fault(
        "read-ignores-its-rows",
        "A read runs on rows that it said it cannot be used on.",
        OPS,
        "if facts.read_local & ~state.rows or facts.read_whole & state.rows:",
        "if facts.read_whole & state.rows:",
        "provenance",
    ),
    _fault(
        "end-with-a-sum",
        "The end of the stack is handed a value that still owes its sum.",
        OPS,
        "if facts.complete_on is not None and (state.owes or state.rows != facts.complete_on):",
        "if facts.complete_on is not None and state.rows != facts.complete_on:",
        "provenance",
    ),
    _fault(
        "update-too-late",
        "An update that must run at its producer runs at the consumer.",
        OPS,
        "if facts.update_at_producer and state.phase is not Phase.STREAM:",
        "if facts.update_at_producer and state.phase is Phase.INITIAL:",
        "provenance",
    ),
    _fault(
        "entry-with-a-sum",
        "A stack's input that owes a sum starts the residual as it is.",
        OPS,
        "if state.phase is not Phase.INITIAL or state.owes:",
        "if state.phase is not Phase.INITIAL:",
        "rules",
    ),
    _fault(
        "goal-without-residual",
        "A boundary may end with the residual anywhere.",
        "boundaryc/plan/transitions.py",
        "return Goal(state.rows, state.residual, ",
        "return Goal(state.rows, state.rows, ",
        "planning",
    ),
    _fault(
        "fit-keeps-fixed-gathers",
        "A plan that is fitted to an uneven batch keeps its fixed-size gathers.",
        "boundaryc/plan/path.py",
        "        if op.variable is not facts.variable(",
        "        if op.variable > facts.variable(",
        "planning",
    ),
    _fault(
        "attention-owes-nothing",
        "Attention counts as complete: its sum is never done.",
        CONTRACTS,
        "        return (Contract(mixer_input(stage, demands), demands.rows, owes),)",
        "        return (Contract(mixer_input(stage, demands), demands.rows, 0),)",
        "demo",
    ),
    _fault(
        "experts-owe-attention-tp",
        "The experts' sum is over attention TP instead of their own ranks.",
        CONTRACTS,
        'owes = mesh.mask("moe_output")\n',
        'owes = mesh.mask("attn_tp")\n',
        "demo",
    ),
    _fault(
        "experts-on-any-rows",
        "A MoE is given rows that are sharded over ranks which share its experts.",
        CONTRACTS,
        'for rows in _prefixes(mesh, 0, mesh.mask("moe_dp")))',
        'for rows in _prefixes(mesh, 0, mesh.mask("attn_dp")))',
        "provenance",
    ),
    _fault(
        "sequence-parallel-forgets",
        "Sequence parallelism no longer asks for local reads.",
        CONTRACTS,
        "local = mesh.every & ~rows",
        "local = 0",
        "demands",
    ),
    _fault(
        "policy-ignored",
        "An FFN's sum may end in a scatter that the policy forbids.",
        FACTS,
        "scatter = permitted(policy, variable=variable_scatter)",
        "scatter = permitted(None, variable=variable_scatter)",
        "demands",
    ),
    _fault(
        "every-axis-even",
        "A policy that needs even rows scatters uneven ones.",
        FACTS,
        "return even if scatter.even else 0",
        "return mesh.every if scatter.even else 0",
        "demands",
    ),
    _fault(
        "row-multiple-one",
        "Groups are not padded to what cuts them.",
        "boundaryc/plan/compose.py",
        "mesh.size(inner) if variant in cut else 1 for variant in variants",
        "1 for variant in variants",
        "demands",
    ),
    _fault(
        "labels-of-one-atom",
        "The axis attention TP is taken for the whole of tp where they differ.",
        "boundaryc/topology/mesh.py",
        '        ("attn_tp", between(1, sizes.attn_tp)),',
        '        ("attn_tp", between(1, sizes.tp)),',
        "provenance",
    ),
    _fault(
        "cheapest-is-dearest",
        "Bytes of an all-reduce are counted once instead of twice: it wins too often.",
        "boundaryc/plan/cost.py",
        "            return _share(2, axes, state.rows, facts) * _width(state, facts)",
        "            return _share(1, axes, state.rows, facts) * _width(state, facts) // 2",
        "traffic",
    ),
)
