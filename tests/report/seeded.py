"""Two stacks, seeded changes of them, and all that `boundaryc diff` says of each."""

from __future__ import annotations

from typing import NamedTuple

BASE = """\
boundaryc: 1
stack: tiny
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn}
layers: {count: 4, default: [attention, mlp]}
topologies:
  tp2: {tp: 2}
  tp4_dp2: {tp: 4, attn_dp: 2}
variants: [ordinary]
pipeline: {payload: partial}
"""

PARALLEL = BASE.replace("[ordinary]", "[ordinary, sequence_parallel]").replace(
    "  tp2: {tp: 2}\n", ""
)


class Seeded(NamedTuple):
    """A change: its name, the stack, the texts that take the place of others, and what is said."""

    name: str
    base: str
    edits: tuple[tuple[str, str], ...]
    said: str

    @property
    def changed(self) -> str:
        """The stack with the change."""
        text = self.base
        for before, after in self.edits:
            assert before in text
            text = text.replace(before, after)
        return text


SEEDED = (
    Seeded(
        "a new topology",
        BASE,
        (("topologies:\n", "topologies:\n  tp4: {tp: 4}\n"),),
        """\
tiny
  added topology tp4: tp 4, attn_tp 4, dense_tp 4, moe.tp 4

1 stack compared: 1 differs; 0 changes break callers
""",
    ),
    Seeded(
        "a removed topology",
        BASE,
        (("  tp4_dp2: {tp: 4, attn_dp: 2}\n", ""),),
        """\
tiny
  removed topology tp4_dp2: tp 4, attn_dp 2, attn_tp 2, dense_tp 4, moe.tp 4
    breaks callers: load("tp4_dp2") fails

1 stack compared: 1 differs; 1 change breaks callers
""",
    ),
    Seeded(
        "a removed variant",
        PARALLEL,
        ((", sequence_parallel", ""),),
        """\
tiny
  removed variant sequence_parallel: on tp4_dp2
    breaks callers: such batches are refused

1 stack compared: 1 differs; 1 change breaks callers
""",
    ),
    Seeded(
        "another policy",
        PARALLEL,
        (("pipeline:", "policy: {auto: ar}\npipeline:"),),
        """\
tiny
  changed setting policy.auto: rs+rsv -> ar
  boundary mlp -> attention
    before: hand over, reduce_scatter(tp), add_rms_norm, all_gather(attn_tp)
    after: hand over, all_reduce(tp), slice(tp), add_rms_norm, all_gather(attn_tp)
      sequence_parallel, policy auto: tp4_dp2 128 -> 224; bytes a token and rank

1 stack compared: 1 differs; 0 changes break callers
""",
    ),
    Seeded(
        "a renamed stage",
        BASE,
        (("  mlp:", "  dense:"), ("[attention, mlp]", "[attention, dense]")),
        """\
tiny
  renamed stage: mlp -> dense
    breaks callers: layers have `dense` where they had `mlp`
  removed entry point AttentionMlp: (attention: AttentionBoundary, mlp: FfnBoundary)
    breaks callers: what uses it fails
  added entry point AttentionDense: (attention: AttentionBoundary, dense: FfnBoundary)

1 stack compared: 1 differs; 2 changes break callers
""",
    ),
    Seeded(
        "a dropped sum",
        BASE,
        (("tp4_dp2: {tp: 4, attn_dp: 2}", "tp4_dp2: {tp: 4, attn_dp: 2, dense_tp: 1}"),),
        """\
tiny
  changed topology tp4_dp2.dense_tp: 4 -> 1
    breaks callers: the groups and the rows of its ranks are others
  boundary start -> attention
    before: enter, rms_norm, residual all_gather(attn_dp)
    after: enter, rms_norm
      ordinary: tp4_dp2 64 -> 0; bytes a token and rank
  boundary attention -> mlp
    before: hand over, placed all_reduce(tp), add_rms_norm
    after: hand over, all_reduce(attn_tp), add_rms_norm
      ordinary: tp4_dp2 192 -> 64; bytes a token and rank
  boundary mlp -> attention
    before: hand over, all_reduce(tp), add_rms_norm, slice(attn_dp)
    after: hand over, add_rms_norm
      ordinary: tp4_dp2 192 -> 0; bytes a token and rank
  boundary mlp -> final norm
    before: all_reduce(tp), slice(attn_dp), hand over, residual slice(attn_dp), add_rms_norm
    after: hand over, add_rms_norm
      ordinary: tp4_dp2 192 -> 0; bytes a token and rank
  payload of a cut at attention -> mlp
    before: hidden_states.owes_attn_tp_on_attn_dp[rows attn_dp, width], residual.on_all[rows all,
      width]
    after: hidden_states.owes_attn_tp_on_attn_dp[rows attn_dp, width], residual.on_attn_dp[rows
      attn_dp, width]
      ordinary: tp4_dp2
    breaks callers: ranks that run different versions cannot exchange it
  payload of a cut at mlp -> attention
    before: hidden_states.owes_tp_on_all[rows all, width], residual.on_all[rows all, width]
    after: hidden_states[rows attn_dp, width], residual[rows attn_dp, width]
      ordinary: tp4_dp2
    breaks callers: ranks that run different versions cannot exchange it
  payload of a cut at mlp -> final norm
    before: hidden_states.complete_on_attn_dp[rows attn_dp, width], residual.on_all[rows all, width]
    after: hidden_states[rows attn_dp, width], residual[rows attn_dp, width]
      ordinary: tp4_dp2
    breaks callers: ranks that run different versions cannot exchange it

1 stack compared: 1 differs; 4 changes break callers
""",
    ),
    Seeded(
        "another kernel",
        BASE,
        (("mlp: {kind: ffn}", "mlp: {kind: ffn, quantize: {format: fp8, scale: token}}"),),
        """\
tiny
  changed stage mlp.quantize: nothing -> format fp8, scale token, keep false
    breaks callers: its compute gets its input in another form
  boundary attention -> mlp
    before: hand over, all_reduce(tp), add_rms_norm
    after: hand over, all_reduce(tp), add_rms_norm_fp8
      ordinary: tp2 128; bytes a token and rank
    before: hand over, placed all_reduce(tp), add_rms_norm
    after: hand over, placed all_reduce(tp), add_rms_norm_fp8
      ordinary: tp4_dp2 192; bytes a token and rank

1 stack compared: 1 differs; 1 change breaks callers
""",
    ),
    Seeded(
        "a fusion provider",
        BASE,
        (("pipeline:", "fusion: {providers: [flashinfer]}\npipeline:"),),
        """\
tiny
  changed setting fusion: none -> flashinfer
  changed entry point load
    before: (topology: str, groups: GroupProvider, *, policy: str='auto', layers: range | None=None)
      -> AnyStack
    after: (topology: str, groups: GroupProvider, *, policy: str='auto', layers: range | None=None,
      fusion: bool=True) -> AnyFusingStack

1 stack compared: 1 differs; 0 changes break callers
""",
    ),
    Seeded(
        "another payload",
        BASE,
        (("payload: partial", "payload: complete"),),
        """\
tiny
  changed setting pipeline: partial -> complete
  payload of a cut at attention -> mlp
    before: hidden_states.owes_tp_on_all[rows all, width], residual.on_all[rows all, width]
    after: hidden_states[rows all, width], residual[rows all, width]
      ordinary: tp2
    before: hidden_states.owes_attn_tp_on_attn_dp[rows attn_dp, width], residual.on_all[rows all,
      width]
    after: hidden_states[rows attn_dp, width], residual[rows attn_dp, width]
      ordinary: tp4_dp2
    breaks callers: ranks that run different versions cannot exchange it
  payload of a cut at mlp -> attention
    before: hidden_states.owes_tp_on_all[rows all, width], residual.on_all[rows all, width]
    after: hidden_states[rows all, width], residual[rows all, width]
      ordinary: tp2
    before: hidden_states.owes_tp_on_all[rows all, width], residual.on_all[rows all, width]
    after: hidden_states[rows attn_dp, width], residual[rows attn_dp, width]
      ordinary: tp4_dp2
    breaks callers: ranks that run different versions cannot exchange it
  payload of a cut at mlp -> final norm
    before: hidden_states.complete_on_attn_dp[rows attn_dp, width], residual.on_all[rows all, width]
    after: hidden_states[rows attn_dp, width], residual[rows attn_dp, width]
      ordinary: tp4_dp2
    breaks callers: ranks that run different versions cannot exchange it

1 stack compared: 1 differs; 3 changes break callers
""",
    ),
    Seeded(
        "a new capture",
        BASE,
        (("pipeline:", "captures: {eagle3: {after: [1], rows: producer}}\npipeline:"),),
        """\
tiny
  added capture eagle3: layers 1, where after, rows producer
  boundary mlp -> attention (captured as eagle3)
    before: hand over, all_reduce(tp), add_rms_norm
    after: hand over, all_reduce(tp), add_rms_norm, capture
      ordinary: tp2 128; bytes a token and rank
    before: hand over, all_reduce(tp), add_rms_norm, slice(attn_dp)
    after: hand over, all_reduce(tp), add_rms_norm, capture, slice(attn_dp)
      ordinary: tp4_dp2 192; bytes a token and rank

1 stack compared: 1 differs; 0 changes break callers
""",
    ),
    Seeded(
        "another contract",
        BASE,
        (("mlp: {kind: ffn}", "mlp: {kind: ffn, reduction: local_tail}"),),
        """\
tiny
  changed stage mlp.reduction: scoped -> local_tail
    breaks callers: its compute has to end its sum in another way
  boundary mlp -> attention
    before: hand over, all_reduce(tp), add_rms_norm
    after: all_reduce(tp), hand over, add_rms_norm
      ordinary: tp2 128; bytes a token and rank
    before: hand over, all_reduce(tp), add_rms_norm, slice(attn_dp)
    after: all_reduce(tp), hand over, add_rms_norm, slice(attn_dp)
      ordinary: tp4_dp2 192; bytes a token and rank
  payload of a cut at mlp -> attention
    before: hidden_states.owes_tp_on_all[rows all, width], residual.on_all[rows all, width]
    after: hidden_states[rows all, width], residual[rows all, width]
      ordinary: tp2
    before: hidden_states.owes_tp_on_all[rows all, width], residual.on_all[rows all, width]
    after: hidden_states.complete_on_all[rows all, width], residual.on_all[rows all, width]
      ordinary: tp4_dp2
    breaks callers: ranks that run different versions cannot exchange it

1 stack compared: 1 differs; 2 changes break callers
""",
    ),
    Seeded(
        "other layers",
        BASE,
        (
            ("count: 4,", "count: 3,"),
            ("default: [attention, mlp]", "default: [attention, mlp], at: {2: [attention]}"),
        ),
        """\
tiny
  changed layers: (attention, mlp) x4 -> (attention, mlp) x2; attention
    breaks callers: layer(2) has other stages
  added entry point Attention: (attention: AttentionBoundary)
  boundary start -> attention
    before: enter, rms_norm, residual all_gather(attn_dp)
    after: enter, rms_norm
      ordinary: tp4_dp2 64 -> 0; bytes a token and rank
  boundary attention -> mlp
    before: hand over, placed all_reduce(tp), add_rms_norm
    after: hand over, all_reduce(attn_tp), add_rms_norm, all_gather(attn_dp)
      ordinary: tp4_dp2 192 -> 128; bytes a token and rank
  boundary mlp -> attention
    before: hand over, all_reduce(tp), add_rms_norm, slice(attn_dp)
    after: hand over, all_reduce(tp), slice(attn_dp), add_rms_norm
      ordinary: tp4_dp2 192; bytes a token and rank
  boundary attention -> final norm
    before: no such boundary
    after: all_reduce(tp), hand over, add_rms_norm
      ordinary: tp2 128; bytes a token and rank
    before: no such boundary
    after: all_reduce(attn_tp), hand over, add_rms_norm
      ordinary: tp4_dp2 64; bytes a token and rank
  boundary mlp -> final norm
    before: all_reduce(tp), hand over, add_rms_norm
    after: no such boundary
      ordinary: tp2 128; bytes a token and rank
    before: all_reduce(tp), slice(attn_dp), hand over, residual slice(attn_dp), add_rms_norm
    after: no such boundary
      ordinary: tp4_dp2 192; bytes a token and rank
  payload of a cut at attention -> mlp
    before: hidden_states.owes_attn_tp_on_attn_dp[rows attn_dp, width], residual.on_all[rows all,
      width]
    after: hidden_states.owes_attn_tp_on_attn_dp[rows attn_dp, width], residual.on_attn_dp[rows
      attn_dp, width]
      ordinary: tp4_dp2
    breaks callers: ranks that run different versions cannot exchange it
  payload of a cut at mlp -> attention
    before: hidden_states.owes_tp_on_all[rows all, width], residual.on_all[rows all, width]
    after: hidden_states.owes_tp_on_all[rows all, width], residual.on_attn_dp[rows attn_dp, width]
      ordinary: tp4_dp2
    breaks callers: ranks that run different versions cannot exchange it

1 stack compared: 1 differs; 3 changes break callers
""",
    ),
    Seeded(
        "another norm",
        BASE,
        (("eps: 1.0e-6", "eps: 1.0e-5"),),
        """\
tiny
  changed setting norm.eps: 1e-06 -> 1e-05

1 stack compared: 1 differs; 0 changes break callers
""",
    ),
    Seeded(
        "a comment",
        BASE,
        (("stages:\n", "stages: # here\n  # and there\n"),),
        """\
1 stack compared: no difference in meaning
""",
    ),
    Seeded(
        "another order of keys",
        BASE,
        (
            (
                "  attention: {kind: attention}\n  mlp: {kind: ffn}\n",
                "  mlp: {kind: ffn}\n  attention: {kind: attention}\n",
            ),
            (
                "  tp2: {tp: 2}\n  tp4_dp2: {tp: 4, attn_dp: 2}\n",
                "  tp4_dp2: {attn_dp: 2, tp: 4}\n  tp2: {tp: 2}\n",
            ),
        ),
        """\
1 stack compared: no difference in meaning
""",
    ),
)
