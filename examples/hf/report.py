"""What runs of cut Hugging Face models showed, as a page of the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.hf.cases import Case
from examples.hf.matrix import TOPOLOGIES
from examples.hf.reference import Reference

HEAD = """\
# Equal to Hugging Face

`make prove` writes this page. Each run cuts a tiny random Hugging Face model over the simulated
ranks of a topology: every rank computes with its share of each sublayer and calls nothing but
generated boundaries between them. The logits of all tokens on all ranks, and the residuals before
every layer where they are captured, are compared with what the model says when it runs each
sequence alone. All of it is computed in float64, where only the order of sums makes a difference. A
run fails beyond 1e-4 * max(1, standard deviation of the logits), or where ranks do not agree on
what they exchange.

On topologies of up to 16 ranks every variant runs with every policy, padding and placement of
sequences, each with some pipeline cut or none, in prefill or decode, and with plain stacks, with
captures, with complete payloads or with plans for few bytes. Then each of these stacks runs with
every cut, and two-batch overlap with every policy and placement. On larger topologies each pair of
these properties occurs that occurs there at all.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: by how much it was off, whether that is little enough, or how it failed."""

    name: str
    case: Case
    error: float
    holds: bool
    failure: str

    @classmethod
    def of(cls, record: dict[str, Any]) -> Run:
        """The run that a line of a journal has."""
        case = {**record["case"], "cuts": tuple(record["case"]["cuts"])}
        return cls(**{**record, "case": Case(**case)})


def page(runs: Sequence[Run], references: Mapping[str, Reference]) -> str:
    """The whole page."""
    lines = [HEAD]
    for name, reference in references.items():
        own = [run for run in runs if run.name == name]
        held = sum(run.holds for run in own)
        lines += [
            f"## {name}",
            "",
            f"{held} of {len(own)} runs hold; {reference.tolerance:.1e} is allowed.",
            "",
            *_table(own),
            "",
            *(f"* `{run.case}`: {run.failure or run.error}" for run in own if not run.holds),
        ]
    return "\n".join(lines).rstrip() + "\n"


def _table(runs: Sequence[Run]) -> list[str]:
    lines = [
        "| topology | ranks | variants | runs | with cuts | in halves | failures | largest error |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for topology in dict.fromkeys(run.case.topology for run in runs):
        own = [run for run in runs if run.case.topology == topology]
        cells = (
            topology,
            TOPOLOGIES[topology]["tp"],
            ", ".join(dict.fromkeys(run.case.variant for run in own)),
            len(own),
            sum(bool(run.case.cuts) for run in own),
            sum(bool(run.case.halves) for run in own),
            sum(not run.holds for run in own),
            f"{max(run.error for run in own):.1e}",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines
