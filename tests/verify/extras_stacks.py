"""Stacks with extra contributions, for the tests that run them."""

from __future__ import annotations

EXTRAS = """\
stages:
  attention: {kind: attention}
  mlp: {kind: ffn, update: {scaled_add: 0.3}}
  heads: {kind: attention, joins_sum: allow}
  experts: {kind: ffn, sparse: true, update: early}
operations:
  early: {role: update, call: "tests.emit.operations:gated_add", facts: [row_wise, at_producer],
          params: [gate]}
layers:
  pattern: "DE.AHD"
  stages: {D: [attention, mlp], E: [attention, experts], A: [attention], H: [mlp, heads], ".": []}
captures: {eagle3: {after: [0, 1, 4], rows: input}}
extras:
  deepstack: {after: ["0-1", 4, 5]}
  vision: {after: [1, 3]}
"""
"""After pending and written outputs, owed and joined ones, before an empty layer and at the end."""
