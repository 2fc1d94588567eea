"""Topologies that differ in sizes alone share what is made of them, and nothing else does."""

from __future__ import annotations

import re
from dataclasses import replace

from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.language.model import Additive, Stack
from boundaryc.plan.alike import alike
from boundaryc.plan.compose import plan_stack
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


def test_a_topology_in_company_has_the_code_that_it_has_alone() -> None:
    together = several()
    found = files(together)
    alone: dict[str, str] = {}
    for spec in together.topologies:
        alone |= files(replace(together, topologies=(spec,)))

    assert found == alone


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
