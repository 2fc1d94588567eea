"""Has faults judged in processes of their own, and writes down what saw which."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.verify.faults.catalogue import FAULTS
from tests.verify.faults.fault import ROOT, Fault

CHECKS = {
    "diagnostics": "the language refuses what must be refused",
    "planning": "a stack that has plans gets them",
    "typing": "every plan is replayed by the typing rules and arrives",
    "provenance": "every plan is run on provenance: all rows, every partial and the residual once",
    "rules": "a damaged plan that the typing rules still admit is right on provenance",
    "demands": "plans do what their batch variant and their policy ask for",
    "emission": "what is written can be imported",
    "values": "cells on simulated ranks: every input, residual and output equals the oracle's",
    "census": "cells on simulated ranks: collectives of all members agree, nobody waits forever",
    "refusals": "cells on simulated ranks: the runtime refuses what it is given",
    "traffic": "ranks send the collectives and bytes that their plans cost",
    "demo": "the example models on simulated ranks have the logits of transformers",
    "units": "the runtime's and the planner's tests in one process",
    "gloo": "the collectives on four processes",
}
"""What each check does."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checks that ran saw of one fault, and the seconds they took."""

    fault: Fault | None
    seen: dict[str, str]
    seconds: float


def judge(faults: Sequence[Fault | None], *, jobs: int, thorough: bool) -> Iterator[Verdict]:
    """The verdicts as they come; ``thorough`` runs all checks, else until the first one sees it.

    None stands for undamaged sources. RuntimeError where the judging process fails.
    """
    names = [fault.name if fault else "none" for fault in faults]
    command = [sys.executable, "-m", "tests.verify.faults.server", str(jobs), str(int(thorough))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, *names],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        known = {fault.name: fault for fault in FAULTS}
        for line in process.stdout:
            found = json.loads(line)
            yield Verdict(known.get(found["name"]), found["seen"], found["seconds"])
        errors = process.stderr.read()
    if process.returncode:
        raise RuntimeError(f"judging ended with {process.returncode}:\n{errors}")


def write_table(verdicts: Sequence[Verdict], path: Path) -> None:
    """Writes the table of faults and checks, in the order of the catalogue."""
    by_name = {verdict.fault.name: verdict for verdict in verdicts if verdict.fault}
    counts = Counter(check for verdict in verdicts for check in verdict.seen)
    lines = [
        "# Seeded faults",
        "",
        "Each of these faults is put into a copy of the sources, one at a time, and every check",
        "runs on the copy; the slow ones (demo, units, gloo) only for areas they are about, and",
        "where nothing else sees the fault. After planning or emission has failed nothing else",
        "runs. A fault that no check sees is a hole in the checks.",
        "",
        "    python -m tests.verify.faults --all",
        "",
        "writes this page; `make test` judges a sample until the first check sees each.",
        "",
        "| check | what it says | sees |",
        "|---|---|---:|",
        *(f"| {name} | {text} | {counts[name]} |" for name, text in CHECKS.items()),
        "",
        f"{len(by_name)} faults, {sum(1 for one in by_name.values() if one.seen)} seen.",
        "",
        "| fault | area | what is wrong | seen by |",
        "|---|---|---|---|",
    ]
    for fault in FAULTS:
        if fault.name in by_name:
            seen = by_name[fault.name].seen
            checks = ", ".join(name for name in CHECKS if name in seen) or "**nothing**"
            lines.append(f"| {fault.name} | {fault.area} | {fault.does} | {checks} |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
