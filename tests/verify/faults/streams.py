"""Faults in residual sets: streams, what moves with them, and both ends of the stack."""

from __future__ import annotations

from tests.verify.faults.fault import Fault

MOVES, SCRIPT = "boundaryc/emit/moves.py", "boundaryc/emit/script.py"
HYPER = "boundaryc/runtime/hyper.py"

FAULTS = (
    Fault(
        "state-left-behind",
        "emitter",
        "What a read kept does not move with the residual's rows.",
        MOVES,
        'self._put(f"stream.kept = tuple({moved} for part in stream.kept)")',
        "pass",
        ("values", "refusals"),
    ),
    Fault(
        "state-not-kept",
        "emitter",
        "An update takes the coefficients of an earlier stage.",
        "boundaryc/emit/stream_calls.py",
        'results += ["stream.kept"] if kernel.reads == "mixed" else []',
        'results += ["_"] if kernel.reads == "mixed" else []',
        ("values", "refusals"),
    ),
    Fault(
        "residual-not-rewritten",
        "emitter",
        "The new residual that a read returns is lost.",
        SCRIPT,
        "results.append(self._written)\n                self.residual = self._written",
        'results.append("_")',
        ("values",),
    ),
    Fault(
        "enter-left-out",
        "emitter",
        "The residual is the stack's input, whatever operation makes it.",
        SCRIPT,
        "if enter is not None:",
        'if enter is not None and enter.name == "identity":',
        ("values", "refusals"),
    ),
    Fault(
        "input-of-other-rows",
        "planner",
        "A read with inputs of every batch runs on rows that it has none for.",
        "boundaryc/plan/facts.py",
        "demands.read_local if stage.post_addition or read.per_call else None",
        "demands.read_local if stage.post_addition else None",
        ("values", "refusals"),
    ),
    Fault(
        "mixing-matrix-transposed",
        "runtime",
        "Stream i takes what it should give.",
        HYPER,
        "(balanced.transpose(1, 2).flatten(1), 2",
        "(balanced.flatten(1), 2",
        ("values",),
    ),
    Fault(
        "output-once-for-all-streams",
        "runtime",
        "The output is added to every stream alike.",
        HYPER,
        "total = post.to(dtype).unsqueeze(-1) * contribution",
        "total = post.to(dtype).unsqueeze(-1).mean(1, keepdim=True) * contribution",
        ("values",),
    ),
    Fault(
        "state-of-a-cut-forgotten",
        "runtime",
        "What an update takes does not arrive behind a pipeline cut.",
        "boundaryc/runtime/stream.py",
        "        self.kept = kept\n",
        "        self.kept = tuple(part * 0 for part in kept)\n",
        ("values",),
    ),
)
