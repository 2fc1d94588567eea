"""A sample of the seeded faults is seen; `python -m tests.verify.faults --all` judges all."""

from __future__ import annotations

import random

import pytest

from tests.verify.faults.catalogue import FAULTS
from tests.verify.faults.fault import ROOT, Fault
from tests.verify.faults.judge import CHECKS, Verdict, judge

AREAS = ("planner", "emitter", "layout", "template", "runtime", "model", "language")
QUICK = [fault for fault in FAULTS if fault.seen_by != ("gloo",)]


def _sample(of_each: int) -> list[Fault]:
    """Some faults of every area, the same in every run."""
    draw, found = random.Random(5), []
    for area in AREAS:
        known = [fault for fault in QUICK if fault.area == area]
        found += draw.sample(known, min(of_each, len(known)))
    return found


SAMPLE = _sample(1)


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    """What was seen of undamaged sources and of the sample."""
    found = judge([None, *SAMPLE], jobs=2, thorough=False)
    return {verdict.fault.name if verdict.fault else "": verdict for verdict in found}


def test_undamaged_sources_pass(verdicts: dict[str, Verdict]) -> None:
    assert verdicts[""].seen == {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_applies(fault: Fault) -> None:
    """The text that a fault replaces is there exactly once, and what results is another text."""
    assert fault.text() != (ROOT / fault.path).read_text(encoding="utf-8")
    assert set(fault.seen_by) <= set(CHECKS)
    assert fault.area in AREAS


@pytest.mark.parametrize("fault", SAMPLE, ids=lambda fault: fault.name)
def test_a_fault_is_seen(fault: Fault, verdicts: dict[str, Verdict]) -> None:
    assert set(verdicts[fault.name].seen) & set(fault.seen_by), verdicts[fault.name].seen


def test_the_catalogue_is_wide() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40
    assert {fault.area for fault in FAULTS} == {fault.area for fault in SAMPLE} == set(AREAS)


def test_the_table_is_whole() -> None:
    """The page has every fault, and nothing was seen by nothing."""
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")

    assert [fault.name for fault in FAULTS if f"| {fault.name} |" not in page] == []
    assert "**nothing**" not in page
