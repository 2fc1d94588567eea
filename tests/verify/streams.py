"""Stack files with residual sets, which several tests run."""

from __future__ import annotations

HEAD = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
"""
TOPOLOGIES = """\
topologies:
  tp2: {tp: 2}
  tp4_dp2: {tp: 4, attn_dp: 2}
  tp4_cp2: {tp: 4, attn_cp: 2}
  tp4_dp2_a2a: {tp: 4, attn_dp: 2, moe: {ep: 4, all_to_all: true}}
variants: [ordinary, context_parallel, sequence_parallel, input_scattered]
"""
LAYERS = """\
captures:
  eagle3: {after: [0, 2], rows: producer}
  own: {before: [0, 1], rows: input}
layers:
  pattern: "DEM"
  stages: {D: [attention, mlp], E: [attention, experts], M: [mixer, mlp]}
"""

HYPER = """\
residual: {kind: hyper_connections, streams: 3, iterations: 2}
stages:
  attention: {kind: attention, norm: {kind: rms, eps: 0.25, weight_offset: 1}}
  mixer: {kind: mixer}
  mlp: {kind: ffn}
  experts: {kind: ffn, sparse: true}
"""
HEAD_AND_EARLY = """\
residual: {kind: hyper_connections, streams: 2, leave: learned_head, iterations: 3, eps: 1.0e-4}
stages:
  attention: {kind: attention}
  mixer: {kind: mixer}
  mlp: {kind: ffn, update: early, quantize: {format: fp8, scale: token}}
  experts: {kind: ffn, sparse: true, transform: {scale: 0.5}, before_reduce_scatter: true}
operations:
  early: {role: update, call: "boundaryc.runtime:hyper_update", facts: [at_producer], streams: 2,
          state: {mix: 4, post: 2}}
"""
OWN = """\
residual: {kind: custom, streams: 2, enter: both, read: gated, update: merged, leave: second}
stages:
  attention: {kind: attention}
  mixer: {kind: mixer, update: shifted}
  mlp: {kind: ffn, update: early}
  experts: {kind: ffn, sparse: true}
operations:
  both: {role: enter, call: "tests.verify.stream_operations:two_streams", streams: 2}
  gated: {role: read, call: "tests.verify.stream_operations:gated_streams", streams: 2,
          state: {turn: 1, gate: 2}, params: [scale]}
  merged: {role: update, call: "tests.verify.stream_operations:gated_update", streams: 2,
           state: {gate: 2, turn: 1}}
  early: {role: update, call: "tests.verify.stream_operations:shifted_streams", streams: 2,
          state: {gate: 2, turn: 1}, facts: [at_producer], params: [shift]}
  shifted: {role: update, call: "tests.verify.stream_operations:shifted_streams", streams: 2,
            state: {gate: 2, turn: 1}, facts: [outlives_producer], params: [shift]}
  second: {role: read, call: "tests.verify.stream_operations:second_stream", streams: 2}
"""
WRITING = """\
residual: {kind: custom, streams: 1, enter: tripled}
stages:
  attention: {kind: attention, read: doubled, update: placed_update}
  mixer: {kind: mixer, update: written, read: into}
  mlp: {kind: ffn, read: rewritten, update: with_mean}
  experts: {kind: ffn, sparse: true, read: placed}
operations:
  tripled: {role: enter, call: "tests.verify.stream_operations:tripled"}
  doubled: {role: read, call: "tests.verify.stream_operations:doubled"}
  into: {role: read, call: "tests.verify.stream_operations:normed_into",
         facts: [rewrites_residual], params: [scale]}
  rewritten: {role: read, call: "tests.verify.stream_operations:kept_and_rewritten",
              facts: [rewrites_residual], state: {mean: 1}}
  with_mean: {role: update, call: "tests.verify.stream_operations:with_mean", state: {mean: 1}}
  written: {role: update, call: "tests.verify.stream_operations:written_in_place",
            facts: [writes_stream, at_producer], params: [gate]}
  placed: {role: read, call: "tests.verify.stream_operations:placed_read", facts: [per_call],
           params: [scale]}
  placed_update: {role: update, call: "tests.verify.stream_operations:placed_update",
                  facts: [per_call]}
"""
SETS = {"hyper": HYPER, "head": HEAD_AND_EARLY, "own": OWN, "writing": WRITING}


def text(name: str, more: str = "", topologies: str = TOPOLOGIES) -> str:
    """The stack file of a set."""
    return HEAD + SETS[name] + LAYERS + topologies + more
