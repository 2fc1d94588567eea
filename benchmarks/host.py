"""Host time per decoder layer: generated boundaries beside hand-written code and the reference.

    python -m benchmarks.host [--rounds 200] [--out benchmarks/results/host.md]
                              [--reference SCRIPT --reference-python PYTHON]

Attention and FFN are free, collectives send nothing. A round runs each subject once, one after the
other: the generated boundaries, the hand-written loop, both without the norms, and a loop of calls
of an empty Python function; the medians over all rounds count, in CPU time of this process, and a
ratio is the median of the ratios of each round. What a layer costs "in calls" is in multiples of
one empty call, which makes machines comparable.

The reference is SGLang's ``layer_boundary``, measured by ``SCRIPT`` in an environment of its own
between the two halves of the rounds. It runs on two ranks at most.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.host_checks import table as checks
from benchmarks.host_layers import CASES, HAND_WRITTEN, LAYERS, NULL, Case, Subject, compiled

EMPTY_CALLS = 5000
LIMITS = {"tp1": (95, 12), "tp4": (130, 12), "tp4_dp4": (150, 15)}
"""Overhead in empty calls, and Python calls, of a layer."""

REFERENCES = {
    "dense tp1": "dense_tp1",
    "dense tp4": "dense_tp2",
    "dense tp4 attn_dp4": "dp2_dense",
    "moe tp1": "moe_tp1",
    "moe tp4": "moe_tp2",
    "moe tp4 attn_dp4": "dp2_moe",
}


@dataclass(frozen=True, slots=True)
class Result:
    """One case: microseconds per layer, overhead in empty calls, Python calls."""

    case: Case
    ours: float
    hand: float
    total: float  # ours / hand
    beside: float  # overhead in calls, torch work between the boundaries
    alone: float  # overhead in calls, no torch work at all
    overhead: float  # microseconds
    calls: int
    same: bool


def empty(value: int) -> int:
    """A Python function that does nothing."""
    return value


def empty_calls() -> None:
    """Calls it."""
    for _ in range(EMPTY_CALLS):
        empty(0)


def timed(run: Callable[[], object]) -> int:
    """Nanoseconds of this thread's CPU time."""
    begin = time.thread_time_ns()
    run()
    return time.thread_time_ns() - begin


class Measured:
    """The rounds of one case."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        own = subject.norms()
        hand, bare = subject.straight(HAND_WRITTEN), subject.straight(own)
        null = subject.straight(NULL)
        self._own = own
        self._runs: dict[str, Callable[[], object]] = {
            "ours": subject.generated,
            "hand": hand,
            "bare": bare,
            "null": subject.generated,
            "bare null": null,
            "call": empty_calls,
        }
        self.times: dict[str, list[int]] = {name: [] for name in self._runs}
        with torch.inference_mode():
            ours, written = subject.generated(), hand()
        self.same = all(map(torch.equal, ours, written))

    def rounds(self, count: int) -> None:
        """Runs everything ``count`` times in turn."""
        gc.collect()
        gc.disable()
        try:
            with torch.inference_mode():
                for _ in range(count):
                    for name, run in self._runs.items():
                        self.subject.use(NULL if name == "null" else self._own)
                        self.times[name].append(timed(run))
        finally:
            gc.enable()
            self.subject.use(self._own)

    def result(self) -> Result:
        """What the rounds say."""
        times = self.times
        scale = 1000 * LAYERS
        rounds = range(len(times["call"]))

        def apart(one: str, other: str) -> float:
            calls = [times["call"][at] / EMPTY_CALLS * LAYERS for at in rounds]
            return median((times[one][at] - times[other][at]) / calls[at] for at in rounds)

        with torch.inference_mode():
            calls = self.subject.calls()
        return Result(
            case=self.subject.case,
            ours=median(times["ours"]) / scale,
            hand=median(times["hand"]) / scale,
            total=median(times["ours"][at] / times["hand"][at] for at in rounds),
            beside=apart("ours", "bare"),
            alone=apart("null", "bare null"),
            overhead=median(times["ours"][at] - times["bare"][at] for at in rounds) / scale,
            calls=sum(calls.values()),
            same=self.same,
        )


def reference(script: Path, python: Path, width: int, tokens: int) -> dict[str, Any]:
    """What the reference's script says of the scenarios that stand beside ours."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "reference.json"
        sizes = ("--hidden", str(width), "--tokens", str(tokens))
        pairs = ("--pair-hidden", str(width), "--pair-tokens", str(tokens))
        names = ",".join(REFERENCES.values())
        command = [str(python), str(script), "--launches", "1", "--repeats", "60"]
        command += ["--gloo-repeats", "2", "--only", names, *sizes, *pairs, "--json", str(found)]
        subprocess.run(command, check=True, capture_output=True)
        scenarios: dict[str, Any] = json.loads(found.read_text())["scenarios"]
    return {
        name: next(row for row in one["rows"] if row["collectives"] in ("none", "identity"))
        for name, one in scenarios.items()
    }


def table(results: list[Result], references: dict[str, Any]) -> list[str]:
    """Markdown."""
    lines = [
        "| layer | µs | hand-written µs | ratio | overhead, calls | without norms, calls "
        "| Python calls | reference's overhead, calls | without norms | its Python calls "
        "| ours / reference's |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        row = references.get(REFERENCES[one.case.name])
        theirs = ("", "", "", "")
        if row is not None:
            sub, null = row["overhead_sub_exit_scope_in_calls"], row["overhead_null_in_calls"]
            calls = row["calls_one_layer"]["boundary_null_norm_exit_scope"]["python"]
            theirs = (str(sub), str(null), str(calls), f"1 / {sub / one.beside:.0f}")
        lines.append(
            f"| {one.case.name} | {one.ours:.2f} | {one.hand:.2f} | {one.total:.3f} "
            f"| {one.beside:.0f} | {one.alone:.0f} | {one.calls} | {' | '.join(theirs)} |"
        )
    return lines


def misses(results: list[Result]) -> list[str]:
    """The limits that are not kept."""
    found = []
    for one in results:
        overhead, calls = LIMITS[one.case.topology]
        for what, value, limit in (
            ("times the hand-written", one.total, 1.10),
            ("empty calls", max(one.beside, one.alone), overhead),
            ("Python calls", one.calls, calls),
        ):
            if value > limit:
                found.append(f"{one.case.name}: {value:.2f} {what}, at most {limit}")
        if not one.same:
            found.append(f"{one.case.name}: another output than the hand-written loop")
    return found


def main() -> int:
    """Measures and prints; 1 if a limit is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--reference-python", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--names", action="store_true", help="also say which functions are called")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        compiled(Path(folder), options.width)
        size = (options.width, options.tokens)
        measured = [Measured(Subject(case, Path(folder), *size)) for case in CASES]
        for one in measured:
            one.rounds(options.rounds // 2)
        theirs = {}
        if options.reference:
            theirs = reference(options.reference, options.reference_python, *size)
        for one in measured:
            one.rounds(options.rounds - options.rounds // 2)
        results = [one.result() for one in measured]
        if options.names:
            with torch.inference_mode():
                for one in measured:
                    print(one.subject.case.name, dict(one.subject.calls()))
    calls = [ns / EMPTY_CALLS for one in measured for ns in one.times["call"]]
    head = (
        f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, torch "
        f"{torch.__version__}: {LAYERS} layers, {options.tokens} tokens of {options.width} columns "
        f"in bfloat16, {options.rounds} rounds. One empty call: {median(calls):.0f} ns."
    )
    about = "What checks cost there that stay on, in nanoseconds; none is behind a switch."
    text = "\n".join([head, "", *table(results, theirs), "", about, "", *checks()])
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    missed = misses(results)
    print("\n".join(missed))
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
