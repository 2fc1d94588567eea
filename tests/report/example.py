"""A deep Qwen3-MoE, as a user would have it."""

from __future__ import annotations

QWEN3_MOE = """\
boundaryc: 1
stack: qwen3_moe
hidden_size: 2048
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  experts: {kind: ffn, sparse: true}
layers: {count: 48, default: [attention, experts]}
topologies:
  tp8: {tp: 8, moe: {ep: 8}}
  tp8_dp4: {tp: 8, attn_dp: 4, moe: {ep: 8}}
variants: [ordinary, sequence_parallel]
"""
