"""Faults in what is added, quantised and normalised: terms of a sum, sums and reads, norms."""

from __future__ import annotations

from tests.verify.faults.fault import Fault

SHARES = "boundaryc/emit/additive.py"
QUANTIZED = "boundaryc/emit/quantized.py"
SCRIPT = "boundaryc/emit/script.py"
NORMS = "boundaryc/emit/norms.py"
TERM = "boundaryc/runtime/additive.py"
QUANTIZE = "boundaryc/runtime/quantize.py"
ROWWISE = "boundaryc/runtime/rowwise.py"


def _emitted(name: str, does: str, path: str, old: str, new: str, *seen_by: str) -> Fault:
    return Fault(name, "emitter", does, path, old, new, seen_by)


def _run(name: str, does: str, path: str, old: str, new: str, *seen_by: str) -> Fault:
    return Fault(name, "runtime", does, path, old, new, seen_by)


FAULTS = (
    _emitted(
        "term-on-every-rank",
        "Every rank of a sum adds a term that its first one adds.",
        SHARES,
        'lines.append(f"if groups.{group}.rank == 0:")',
        'lines.append(f"if groups.{group}.rank >= 0:")',
        "values",
    ),
    _emitted(
        "term-on-no-rank",
        "The rank that adds a term has a number that no rank of the sum has.",
        SHARES,
        'lines.append(f"if groups.{group}.rank == 0:")',
        'lines.append(f"if groups.{group}.rank == groups.{group}.size:")',
        "values",
    ),
    _emitted(
        "term-not-divided",
        "Every rank adds the whole of a term of which it is to add a part.",
        SHARES,
        "    lines = [added(name, size) for name in shares.divided]",
        "    lines = [added(name) for name in shares.divided]",
        "values",
    ),
    _emitted(
        "term-of-the-sum-forgotten",
        "A term that belongs to the complete sum is added only where the boundary does the sum.",
        SHARES,
        'return self._with("after_sum") if self.inside else []',
        "return []",
        "values",
    ),
    _emitted(
        "term-before-and-after-the-sum",
        "A term that belongs to the complete sum is in the first partial too.",
        SHARES,
        '([] if self.inside else self._with("after_sum"))',
        'self._with("after_sum")',
        "values",
    ),
    _run(
        "term-rounded-alone",
        "A term is rounded to the dtype of the output before it is added.",
        TERM,
        "    wide = term.to(accumulate)",
        "    wide = term.to(hidden.dtype).to(accumulate)",
        "units",
    ),
    _run(
        "term-widens-its-rank",
        "A rank that adds a wider term sums in that dtype, the others in theirs.",
        TERM,
        "    return (hidden.to(accumulate) + wide).to(hidden.dtype)",
        "    return hidden.to(accumulate) + wide",
        "units",
    ),
    _run(
        "quantised-sum-of-one",
        "A pair that exchanges quantised partials keeps the first of them.",
        QUANTIZE,
        "        return parts.view(2, rows, width).sum(dim=0).to(x.dtype)",
        "        return parts.view(2, rows, width)[0].to(x.dtype)",
        "values",
        "units",
    ),
    _run(
        "quantised-sum-with-own-scales",
        "What the other one of a pair sent is read with one's own scales.",
        QUANTIZE,
        "        parts = _numbers(group.all_gather(values), group.all_gather(scales))",
        "        parts = _numbers(group.all_gather(values), scales.repeat(2, 1))",
        "values",
        "units",
    ),
    _run(
        "quantised-sum-of-equal-parts",
        "Scales of a quantised sum are gathered as if all ranks had as many rows.",
        QUANTIZE,
        "    values, scales = group.all_gather(values, sizes), group.all_gather(scales, sizes)",
        "    values, scales = group.all_gather(values, sizes), group.all_gather(scales)",
        "census",
        "refusals",
        "units",
    ),
    _run(
        "quantised-sum-of-a-partial",
        "Of more than two ranks each quantises its own partial of the rows that it sums.",
        QUANTIZE,
        "    values, scales = _blocks(group.reduce_scatter(x, sizes), form)",
        "    own = group.reduce_scatter(x, sizes)\n"
        "    values, scales = _blocks(x[: len(own)], form)",
        "values",
        "units",
    ),
    _emitted(
        "quantised-before-the-norm",
        "What is quantised is the residual, not what was read of it.",
        SCRIPT,
        "        self._put(quantized.made(quantize, self.value))",
        "        self._put(quantized.made(quantize, self.residual))",
        "values",
    ),
    _emitted(
        "scales-stay-behind",
        "Values move to other rows and their scales do not.",
        QUANTIZED,
        'static = {SCALES} if quantize.scale == "static" else set()',
        "static = {SCALES}",
        "values",
        "refusals",
    ),
    _run(
        "scale-upside-down",
        "An input is multiplied by its static scale instead of divided.",
        QUANTIZE,
        "        return _fp8(wide / scale), scale",
        "        return _fp8(wide * scale), scale",
        "values",
        "units",
    ),
    _run(
        "scale-of-the-first-group",
        "All groups of a row share the scale of the first one.",
        QUANTIZE,
        "    scales = _scales(blocks, _FP8_MAX)\n    return _fp8(blocks / scales)",
        "    scales = _scales(blocks, _FP8_MAX)[..., :1, :].expand(*blocks.shape[:-1], 1)\n"
        "    return _fp8(blocks / scales)",
        "values",
        "units",
    ),
    _emitted(
        "norm-of-the-other-stage",
        "A norm is called with the eps and the offset of the stage before it.",
        "boundaryc/emit/around.py",
        "norm=norm_call(plan.stack, consumer)",
        "norm=norm_call(plan.stack, producer)",
        "values",
    ),
    _emitted(
        "offset-of-the-stack",
        "A stage's own norm has the offset of the stack's.",
        NORMS,
        "    if norm.weight_offset != usual.weight_offset:",
        "    if False:",
        "values",
    ),
    _run(
        "offset-in-half",
        "The offset is added to a weight before that is wide.",
        ROWWISE,
        "    factor = weight.to(x.dtype)  #",
        "    factor = (weight + offset).to(x.dtype) - offset  #",
        "units",
    ),
)
