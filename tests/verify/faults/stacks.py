"""The stacks that damaged sources are tried on: every kind of move, and what must be refused."""

from __future__ import annotations

STACKS = {
    "mixed": """\
boundaryc: 1
stack: mixed
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn}
  experts: {kind: ffn, sparse: true}
layers: {count: 3, default: [attention, experts], at: {0: [attention, mlp]}}
topologies:
  tp1: {tp: 1}
  tp2: {tp: 2}
  tp4_dp2: {tp: 4, attn_dp: 2, dense_tp: attn_tp}
  tp4_a2a: {tp: 4, attn_dp: 2, moe: {ep: 4, all_to_all: true}}
  tp8_dp4: {tp: 8, attn_dp: 4, moe: {dp: 2, ep: 2}}
variants: [ordinary, sequence_parallel]
""",
    "joining": """\
boundaryc: 1
stack: joining
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6, accumulate: rounded}
stages:
  attention: {kind: attention, joins_sum: allow}
  mlp: {kind: ffn, joins_sum: allow}
layers: {count: 2, default: [attention, mlp], at: {1: [mlp, attention]}}
topologies:
  tp4_dp2: {tp: 4, attn_dp: 2}
  tp6_dp3: {tp: 6, attn_dp: 3, dense_tp: 1}
  tp8_cp2: {tp: 8, attn_dp: 2, attn_cp: 2, dense_tp: attn_tp}
variants: [ordinary, sequence_parallel]
""",
    "declared": """\
boundaryc: 1
stack: declared
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention, read: scaled, update: gated}
  mlp: {kind: ffn, read: raw, update: squashed}
layers: {count: 2, default: [attention, mlp]}
topologies:
  tp2: {tp: 2}
  tp4_dp2: {tp: 4, attn_dp: 2}
variants: [ordinary]
operations:
  scaled: {role: read, call: "tests.verify.operations:scaled_read", params: [scale],
           facts: [row_wise], read_local: [attn_dp]}
  gated: {role: update, call: "tests.verify.operations:gated_add", params: [gate],
          facts: [row_wise, at_producer]}
  squashed: {role: update, call: "tests.verify.operations:squashed_add", params: [gate, shift],
             facts: [row_wise, outlives_producer]}
""",
    "sharded": """\
boundaryc: 1
stack: sharded
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  scan: {kind: attention}
  experts: {kind: ffn, sparse: true}
layers: {pattern: "AS", stages: {A: [attention, experts], S: [scan, experts]}}
topologies:
  tp4_cp2: {tp: 4, attn_cp: 2}
  tp4: {tp: 4}
variants: [ordinary, context_parallel, input_scattered]
""",
    "streams": """\
boundaryc: 1
stack: streams
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
residual: {kind: hyper_connections, streams: 2, iterations: 1}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn}
  experts: {kind: ffn, sparse: true}
layers: {pattern: "DEM", stages: {D: [attention, mlp], E: [attention, experts], M: [mlp]}}
pipeline: {payload: partial}
topologies:
  tp4_dp2: {tp: 4, attn_dp: 2, moe: {ep: 4, all_to_all: true}}
""",
    "writing": """\
boundaryc: 1
stack: writing
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
residual: {kind: custom, streams: 1, enter: tripled}
stages:
  attention: {kind: attention, read: into}
  mlp: {kind: ffn, read: placed, update: placed_update}
layers: {count: 2, default: [attention, mlp]}
topologies:
  tp4_dp2: {tp: 4, attn_dp: 2}
operations:
  tripled: {role: enter, call: "tests.verify.stream_operations:tripled"}
  into: {role: read, call: "tests.verify.stream_operations:normed_into", params: [scale],
         facts: [rewrites_residual]}
  placed: {role: read, call: "tests.verify.stream_operations:placed_read", params: [scale],
           facts: [per_call]}
  placed_update: {role: update, call: "tests.verify.stream_operations:placed_update",
                  facts: [per_call]}
""",
    "terms": """\
boundaryc: 1
stack: terms
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention, additive: {bias: rank0, sink: divided}}
  mlp: {kind: ffn, additive: {down: divided, second: rank0, shared: after_sum}}
layers: {count: 2, default: [attention, mlp]}
topologies:
  tp2: {tp: 2}
  tp4_dp2: {tp: 4, attn_dp: 2}
variants: [ordinary]
""",
    "small": """\
boundaryc: 1
stack: small
hidden_size: 128
norm: {kind: rms, eps: 1.0e-6, weight_offset: 1}
stages:
  attention: {kind: attention, quantized_sum: int8, quantize: {format: fp8, scale: group128},
              norm: {kind: rms, eps: 0.25, weight_offset: -0.5}}
  mlp: {kind: ffn, quantized_sum: fp8, quantize: {format: int8, scale: token}}
  experts: {kind: ffn, sparse: true, quantize: {format: fp8, scale: static}}
layers: {pattern: "DE", stages: {D: [attention, mlp], E: [attention, experts]}}
topologies:
  tp2_dp2: {tp: 2, attn_dp: 2, link: {latency_us: 0.001, bandwidth_gb_s: 1}}
  tp4_dp2: {tp: 4, attn_dp: 2, link: {latency_us: 0.001, bandwidth_gb_s: 1}}
variants: [ordinary]
""",
}

_GOOD = STACKS["mixed"]
_DECLARED = STACKS["declared"]

INVALID = (
    ("BC205", _GOOD.replace("attn_dp: 4", "attn_dp: 3")),
    ("BC205", _GOOD.replace("moe: {dp: 2, ep: 2}", "moe: {dp: 2, ep: 3}")),
    ("BC203", _GOOD.replace("default: [attention, experts]", "default: [attention, expert]")),
    ("BC204", _GOOD.replace(", at: {0: [attention, mlp]}", "")),
    ("BC207", _GOOD.replace("mlp: {kind: ffn}", "mlp: {kind: ffn, reduction: partial}")),
    ("BC206", _GOOD.replace("at: {0:", "at: {3:")),
    (
        "BC208",
        _DECLARED.replace("update: gated}", "update: scaled}").replace(
            "update: squashed", "update: gated"
        ),
    ),
    ("BC209", _DECLARED.replace("facts: [row_wise], read_local", "facts: [plain_add], read_local")),
    ("BC210", _GOOD.replace("[ordinary, sequence_parallel]", "[ordinary, ordinary]")),
)
"""Stacks that must be refused, each with the code of its first diagnostic."""
