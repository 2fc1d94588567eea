"""Every construct of the language on simulated ranks: what the oracle says, on every rank."""

from __future__ import annotations

import pytest

from boundaryc.verify.matrix import Selection, covering, matrix
from tests.verify.subjects import prover, share

TOP = """\
topologies:
  tp1: {tp: 1}
  tp4: {tp: 4}
  tp4_dp2: {tp: 4, attn_dp: 2}
  tp8_dp2: {tp: 8, attn_dp: 2, dense_tp: attn_tp, moe: {dp: 2, ep: 2}}
  tp8_dp4: {tp: 8, attn_dp: 4, moe: {ep: 8, all_to_all: true}}
  tp4_cp2: {tp: 4, attn_cp: 2}
"""
SMALL = """\
topologies: {tp4: {tp: 4}, tp4_dp2: {tp: 4, attn_dp: 2}, tp4_cp2: {tp: 4, attn_cp: 2}}
"""
HEAD = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
"""
VARIANTS = "variants: [ordinary, context_parallel, sequence_parallel, input_scattered]\n"

MIXERS = """\
stages:
  mixer: {kind: mixer}
  scan: {kind: mixer}
  heads: {kind: attention, reduction: scoped}
  attention: {kind: attention}
  mlp: {kind: ffn}
  experts: {kind: ffn, sparse: true}
layers:
  pattern: "MMF.EAXMEHFFSM"
  stages: {M: [mixer], F: [mlp], ".": [], E: [experts], A: [attention], X: [attention, mlp],
           H: [heads], S: [experts, mixer, scan]}
"""
TAILS = """\
stages:
  attention: {kind: attention}
  mlp: {kind: ffn, reduction: local_tail}
  experts: {kind: ffn, sparse: true, reduction: local_tail}
layers:
  pattern: "DEEDD"
  stages: {D: [attention, mlp], E: [attention, experts]}
"""
UPDATES = """\
stages:
  attention: {kind: attention, update: {scaled_add: 0.22}, transform: norm}
  mixer: {kind: mixer, update: gated}
  mlp: {kind: ffn, update: {scaled_add: 0.5},
        transform: {scale: 0.25}, before_reduce_scatter: true}
  experts: {kind: ffn, sparse: true, transform: squashed, update: gated}
  tail: {kind: ffn, reduction: local_tail, transform: weighed, before_reduce_scatter: true}
  early: {kind: ffn, sparse: true, transform: squashed, update: early}
operations:
  squashed: {role: transform, call: "tests.emit.operations:squashed", facts: [row_wise],
             params: [shift]}
  weighed: {role: transform, call: "tests.emit.operations:weighed", facts: [row_wise, linear],
            params: [gate]}
  gated: {role: update, call: "tests.emit.operations:gated_add",
          facts: [row_wise, outlives_producer], params: [gate]}
  early: {role: update, call: "tests.emit.operations:gated_add", facts: [row_wise, at_producer],
          params: [gate]}
layers:
  pattern: "DTXDEMTD"
  stages: {D: [attention, mlp], T: [attention, tail], X: [attention, experts], E: [early],
           M: [mixer, experts]}
"""
READS = """\
stages:
  attention: {kind: attention, before_gather: [attn_dp]}
  mlp: {kind: ffn, read: raw, before_gather: [attn_dp, attn_tp]}
  experts: {kind: ffn, sparse: true, needs_every_row: [attn_tp]}
layers:
  pattern: "DEED"
  stages: {D: [attention, mlp], E: [attention, experts]}
variants: [ordinary, context_parallel]
"""
CAPTURES = """\
stages:
  attention: {kind: attention}
  mlp: {kind: ffn, read: raw}
  experts: {kind: ffn, sparse: true, update: gated}
  mixer: {kind: mixer, update: {scaled_add: 0.3}}
operations:
  gated: {role: update, call: "tests.emit.operations:gated_add",
          facts: [row_wise, outlives_producer], params: [gate]}
layers:
  pattern: "DDDEEM.ED"
  stages: {D: [attention, mlp], E: [attention, experts], M: [mixer], ".": []}
captures:
  eagle3: {after: [1, 3, 6, 8], rows: producer}
  entry: {before: [0, 2, 6], rows: input}
"""
ADDITIONS = """\
stages:
  attention: {kind: attention, post_addition: true}
  mixer: {kind: mixer, post_addition: true, update: {scaled_add: 0.3}}
  mlp: {kind: ffn, update: {scaled_add: 0.5}}
  experts: {kind: ffn, sparse: true}
layers:
  pattern: "DEMDME"
  stages: {D: [attention, mlp], E: [attention, experts], M: [mixer]}
captures:
  eagle3: {after: [1, 2, 4], rows: producer}
  entry: {before: [0, 2, 4], rows: input}
"""

ADDITIVE = """\
stages:
  attention: {kind: attention, additive: {bias: rank0, sink: divided}}
  heads: {kind: attention, additive: {out: divided}, transform: {scale: 0.5},
          before_reduce_scatter: true, update: {scaled_add: 0.3}}
  mixer: {kind: mixer, additive: {bias: rank0, gate: after_sum, sink: divided}, update: gated}
  mlp: {kind: ffn, joins_sum: allow, additive: {bias: rank0}}
  experts: {kind: ffn, sparse: true, transform: {scale: 0.25},
            additive: {down: divided, second: rank0, shared: after_sum}}
operations:
  gated: {role: update, call: "tests.emit.operations:gated_add", facts: [row_wise, at_producer],
          params: [weight]}
layers:
  pattern: "DEHEMMFXD"
  stages: {D: [attention, mlp], E: [attention, experts], H: [heads, mlp], M: [mixer],
           F: [experts], X: [mlp]}
"""

STACKS = {
    "additive": ADDITIVE,
    "mixers": MIXERS,
    "tails": TAILS,
    "updates": UPDATES,
    "reads": READS,
    "captures": CAPTURES,
    "additions": ADDITIONS,
}


def text(name: str, topologies: str = TOP) -> str:
    """The stack file of a name."""
    stack = HEAD + STACKS[name] + topologies
    return stack if "variants:" in stack else stack + VARIANTS


@pytest.mark.parametrize("name", STACKS)
def test_it_holds_in_every_pair_of_choices(name: str) -> None:
    """Plain forwards and, in turns with them, such as use outputs between all stages.

    A pair of choices is run by two of the stacks or more.
    """
    subject = prover(text(name))
    every = covering(list(matrix(subject.subject.plan, Selection())))
    cells = share(every, list(STACKS).index(name), 3)
    found = [subject.run(cell, deeds=at if at % 2 else None) for at, cell in enumerate(cells)]

    assert len(every) > 60
    assert [f"{one.cell}: {one.failure}" for one in found if one.failure] == []


BROKEN = {
    "a tail that every rank adds": ("tails", ".rank == 0\n", ".rank >= 0\n"),
    "a tail that no rank adds": ("tails", ".rank == 0\n", ".rank < 0\n"),
    "a bias that every rank adds": ("additive", ".rank == 0:\n", ".rank >= 0:\n"),
    "a bias that another rank adds": (
        "additive",
        ".groups.attn_tp.rank == 0",
        ".groups.tp.rank == 0",
    ),
    "a share of the wrong size": ("additive", ", sink, 4)", ", sink, 2)"),
    "a term left out after the sum": ("additive", "add_term(hidden, shared)", "hidden"),
    "a factor left out of the update": ("updates", "norm.weight, 0.22)", "norm.weight)"),
    "a transform left out": ("updates", "hidden = hidden * 0.25\n", "pass\n"),
    "a norm of the output left out": ("updates", "rms_norm(hidden, output_norm.weight)", "hidden"),
    "a capture of the wrong tensor": (
        "captures",
        'stream.capture("eagle3", stream.residual',
        'stream.capture("eagle3", hidden',
    ),
    "a capture that is the residual of someone else": (
        "captures",
        'stream.capture("entry", ',
        'stream.capture("entry", 2 * ',
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_found(what: str) -> None:
    name, before, after = BROKEN[what]

    def damage(files: dict[str, str]) -> None:
        changed = 0
        for path, content in files.items():
            if path.endswith(".py") and before in content:
                files[path] = content.replace(before, after)
                changed += 1
        assert changed

    subject, right = prover(text(name, SMALL), damage), prover(text(name, SMALL))
    cells = covering(list(matrix(right.subject.plan, Selection(paddings=("sum_len",)))))

    assert any(subject.run(cell).failure for cell in cells)
    assert not any(right.run(cell).failure for cell in cells[:3])
