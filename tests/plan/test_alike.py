"""Topologies that differ in sizes alone share what is made of them, and nothing else does."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.language.model import Additive, Stack
from boundaryc.plan.alike import Form, Forms, alike
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.result import TopologyPlan
from tests.plan.stacks import stack, topology

ORIGIN = Origin("sample.yaml", "boundaryc compile", "0" * 64)


HASHES = re.compile(r'^(# body: sha256:|    manifest_hash = ").*$', re.M)
"""Lines that depend on what all topologies share, such as the functions of `rowwise.py`."""


def files(some: Stack) -> dict[str, str]:
    """The modules and plans of each topology of a stack, without hashes."""
    found = emit(plan_stack(some), ORIGIN).files
    return {name: HASHES.sub("", text) for name, text in found.items() if "/" in name}


def several() -> Stack:
    """Two pairs of topologies that differ in sizes alone, and one for itself."""
    cuts = (topology(4), topology(8), topology(4, dp=2), topology(16, dp=4), topology(8, dp=8))
    specs = tuple(replace(one, name=f"t{number}") for number, one in enumerate(cuts))
    return replace(stack(*cuts), topologies=specs)


def test_topologies_of_other_sizes_are_alike() -> None:
    groups = alike(plan_stack(several()).topologies)

    assert [[one.spec.name for one in group] for group in groups] == [
        ["t0", "t1"],
        ["t2", "t3"],
        ["t4"],
    ]


EXPERTS_ALONE = (("attention", "experts"),) * 2


def cut_alike() -> Stack:
    """Ranks are cut alike; the experts take and leave other rows, or a mask has another name."""
    cuts = (
        *(topology(16, dp=4, moe_dp=2), topology(16, dp=4, moe_dp=2, dense=8)),
        *(topology(4, dp=2), topology(8, dp=2), topology(4, dp=2, all_to_all=True)),
    )
    return stack(*cuts, layers=EXPERTS_ALONE)


def alone(together: Stack) -> dict[str, str]:
    """What each topology of a stack is compiled to without the others."""
    found: dict[str, str] = {}
    for spec in together.topologies:
        found |= files(replace(together, topologies=(spec,)))
    return found


@pytest.fixture(scope="module")
def apart() -> dict[str, str]:
    return alone(cut_alike())


def test_a_topology_in_company_has_the_code_that_it_has_alone(apart: dict[str, str]) -> None:
    together = several()

    assert files(together) == alone(together)
    assert files(cut_alike()) == apart


@pytest.mark.parametrize(("part", "what"), [(0, "names of the mesh"), (2, "plans")])
def test_nothing_may_be_left_out_of_the_form_of_a_variant(
    part: int, what: str, apart: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its plans, or the names of its mesh, topologies would be given another one's code."""
    whole = Forms.of

    def without(self: Forms, planned: TopologyPlan, variant: str) -> Form:
        parts = whole(self, planned, variant)
        return (*parts[:part], None, *parts[part + 1 :])

    monkeypatch.setattr(Forms, "of", without)

    assert files(cut_alike()) != apart, what


def test_the_form_of_a_variant_is_its_own() -> None:
    """It is shared by topologies on which another variant or the experts go other ways."""
    planned = plan_stack(cut_alike()).topologies
    forms = Forms()
    ordinary, sequence = (
        [forms.of(one, variant) for one in planned] for variant in ("ordinary", "sequence_parallel")
    )

    assert ordinary[2] == ordinary[3]
    assert len(set(ordinary)) == 4
    assert not set(ordinary) & set(sequence)


def test_functions_that_say_how_many_ranks_there_are_are_not_shared() -> None:
    """A term is divided by the ranks of its sum."""
    together = several()
    terms = (Additive("bias", "divided"),)
    stages = tuple(
        replace(stage, additive=terms) if stage.kind == "ffn" else stage
        for stage in together.stages
    )
    found = files(replace(together, stages=stages))
    text = {name: found[f"{name}/ordinary.py"] for name in ("t0", "t1")}

    assert "add_term(hidden, bias, 4)" in text["t0"]
    assert "add_term(hidden, bias, 8)" in text["t1"]
