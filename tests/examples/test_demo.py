"""The demo's runs on four ranks, on what is committed under `generated/`."""

from __future__ import annotations

import pytest

import boundaryc
from examples.cases import Case, Result, steps
from examples.demo import ROOT, STACKS, TOLERANCE, cases, measure

LOADED = [boundaryc.load(ROOT / "examples" / name / "stack.yaml") for name in STACKS]
CASES = [case for stack in LOADED for case in cases(stack)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[Case, Result]:
    """All results of one start of the ranks."""
    measured = measure(LOADED, tmp_path_factory.mktemp("demo"))
    return {result.case: result for result in measured}


def name(case: Case) -> str:
    """A case's name in a test report."""
    return "-".join((case.stack, case.topology, case.variant, case.padding, case.policy))


@pytest.mark.parametrize("case", CASES, ids=name)
def test_logits_agree_with_transformers(case: Case, results: dict[Case, Result]) -> None:
    """Every token's logits, in prefill and decode."""
    assert results[case].difference <= TOLERANCE


def test_the_runs_cover_what_the_demo_promises() -> None:
    """Both stacks on all three topologies, both variants, uneven and empty ranks."""
    seen = {(case.stack, case.topology, case.variant) for case in CASES}
    rows = [
        [sum(len(ids) for _, ids in group) for group in step]
        for step in steps(4, [[0] * 12 for _ in range(4)])
    ]

    assert seen >= {
        (stack, topology, "ordinary")
        for stack in STACKS
        for topology in ("tp4", "tp4_dp2", "tp4_dp4")
    }
    assert seen >= {(stack, "tp4", "sequence_parallel") for stack in STACKS}
    assert any(case.parallel.all_to_all for case in CASES)
    assert rows[0] == [12, 0, 2, 3]
    assert rows[-1] == [1, 0, 1, 0]
