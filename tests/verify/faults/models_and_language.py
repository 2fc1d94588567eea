"""Faults in model code and in what the language refuses."""

from __future__ import annotations

from tests.verify.faults.fault import Fault

DECODER = "examples/common/decoder.py"
RANKS = "boundaryc/verify/ranks.py"
SUM = "            hidden = self.ffn(hidden, output)"


def _fault(
    name: str, does: str, path: str, old: str, new: str, *seen_by: str, area: str = "model"
) -> Fault:
    return Fault(name, area, does, path, old, new, seen_by)


FAULTS = (
    _fault(
        "model-ignores-the-exit",
        "The FFN never sums, whatever its exit says.",
        DECODER,
        SUM,
        "            hidden = self.ffn(hidden)",
        "demo",
    ),
    _fault(
        "model-sums-in-any-case",
        "The FFN sums whether or not the boundary does.",
        DECODER,
        SUM,
        "            hidden = self.ffn(hidden)\n"
        "            for group in [getattr(batch.groups, 'tp', None)]:\n"
        "                hidden = group.all_reduce(hidden) if group is not None else hidden",
        "demo",
    ),
    _fault(
        "empty-rank-skips-its-layer",
        "A rank without tokens leaves a layer out although others wait in its collectives.",
        DECODER,
        "carried = layer(carried, batch, tokens, cache)",
        "carried = layer(carried, batch, tokens, cache) if batch.real_rows else carried",
        "demo",
    ),
    _fault(
        "empty-rank-skips-its-ffn",
        "A rank without tokens skips the sum inside its FFN.",
        RANKS,
        "            y = self._reduce(exit_, y, terms)",
        "            y = self._reduce(exit_, y, terms) if self.batch.real_rows else y",
        "census",
        "values",
    ),
    _fault(
        "residual-added-by-the-model",
        "The model adds the residual that the boundary adds as well.",
        DECODER,
        "        return output.finish(hidden)",
        "        return output.finish(hidden + batch.stream.residual[: hidden.shape[0]])"
        " if hidden.shape == batch.stream.residual.shape else output.finish(hidden)",
        "demo",
    ),
    _fault(
        "output-changed-after-finish",
        "The model scales what a boundary handed out.",
        RANKS,
        "else exit_.finish(y))",
        "else exit_.finish(y)) * 1",
        "refusals",
    ),
    _fault(
        "stage-left-out",
        "The model hands attention's output on to attention.",
        DECODER,
        "        hidden = self.to_ffn.prepare(carried, batch)",
        "        hidden = self.to_attention.prepare(carried, batch)",
        "demo",
    ),
    _fault(
        "bias-on-every-rank",
        "Every rank of attention's sum adds the output bias.",
        "examples/common/attention.py",
        "            if parallel.heads.index == 0:",
        "            if True:",
        "demo",
    ),
    _fault(
        "wrong-norm",
        "Attention is bound to the norm of its FFN.",
        "examples/qwen3/model.py",
        '            attention=Norm(own["input_layernorm.weight"]),',
        '            attention=Norm(own["post_attention_layernorm.weight"]),',
        "demo",
    ),
    _fault(
        "experts-sum-everything",
        "Every rank runs all experts: their outputs are added as often as there are ranks.",
        "examples/qwen3_moe/experts.py",
        "            mine = (chosen >= self.own.start) & (chosen < self.own.stop)",
        "            mine = chosen >= 0",
        "demo",
    ),
    _fault(
        "stream-not-started",
        "The model does not start its stream.",
        DECODER,
        "        self.stack.start(batch)\n",
        "",
        "demo",
    ),
    _fault(
        "writes-into-the-stream",
        "Compute overwrites its input although it may be the stream itself.",
        "boundaryc/verify/parts.py",
        "        if x.dim() and not of_stream:\n",
        "        if x.dim():\n",
        "values",
    ),
    _fault(
        "pads-leak",
        "Attention lets its pad rows take part in what tokens see.",
        RANKS,
        "            seen = mix(x[held.positions])",
        "            seen = mix(x.flip(0)).flip(0)[held.positions]",
        "values",
    ),
    _fault(
        "sizes-unchecked",
        "A topology whose sizes do not multiply out is accepted.",
        "boundaryc/language/topologies.py",
        "    return entry.tp % (entry.attn_dp * entry.attn_cp) != 0\n",
        "    return entry.attn_dp * entry.attn_cp > entry.tp\n",
        "diagnostics",
        area="language",
    ),
    _fault(
        "unknown-stage-accepted",
        "A layer may name a stage that does not exist.",
        "boundaryc/language/layers.py",
        "            if name not in stages:\n                # a misspelt",
        "            if not name:\n                # a misspelt",
        "diagnostics",
        area="language",
    ),
    _fault(
        "role-unchecked",
        "An operation may be used in the wrong role.",
        "boundaryc/language/residual.py",
        "    elif declared.role != role:\n",
        '    elif declared.role == "enter":\n',
        "diagnostics",
        area="language",
    ),
    _fault(
        "partial-ffn-accepted",
        "An FFN may say that it always leaves a partial.",
        "boundaryc/language/residual.py",
        '    if (entry.kind, chosen) == ("ffn", "partial"):',
        '    if (entry.kind, chosen) == ("attention", "scoped"):',
        "diagnostics",
        area="language",
    ),
    _fault(
        "range-one-short",
        "The last layer of a range keeps its default.",
        "boundaryc/language/layers.py",
        "    return range(first, last + 1)",
        "    return range(first, max(last, first + 1))",
        "units",
        area="language",
    ),
)
