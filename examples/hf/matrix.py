"""Which runs show that a stack is right on every topology: all of them, or a covering sample."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from boundaryc.language.model import Stack
from boundaryc.topology.contracts import CONTEXT_PARALLEL, INPUT_SCATTERED
from examples.hf.architecture import Architecture
from examples.hf.cases import ENTRIES, PLACEMENTS, Case, Entry
from examples.hf.editions import EDITIONS, described, runnable

POLICIES = ("auto", "ar", "rs", "rsv", "rs+rsv")
PADDINGS = ("unpadded", "sum_len", "max_len")
MODES = ("prefill", "decode")
MANY = 16
"""Ranks above which a topology runs a sample of its cases, also in the whole matrix."""

_DISPATCH = {"all_to_all": True}

TOPOLOGIES: dict[str, dict[str, Any]] = {
    "tp1": {"tp": 1},
    "tp2": {"tp": 2, "moe": {"ep": 2}},
    "tp4": {"tp": 4, "moe": {"ep": 2}},
    "tp4_alone": {"tp": 4, "dense_tp": 1, "moe": {"ep": 4}},
    "tp64": {"tp": 64, "moe": {"ep": 8}},
    "tp4_dp2": {"tp": 4, "attn_dp": 2, "moe": {"ep": 4}},
    "tp4_dp2_dense2": {"tp": 4, "attn_dp": 2, "dense_tp": "attn_tp", "moe": {"dp": 2, "ep": 2}},
    "tp4_dp2_dense1": {"tp": 4, "attn_dp": 2, "dense_tp": 1, "moe": {"ep": 2} | _DISPATCH},
    "tp4_dp4": {"tp": 4, "attn_dp": 4, "moe": {"ep": 1}},
    "tp8_dp8_dense1": {"tp": 8, "attn_dp": 8, "dense_tp": 1, "moe": {"ep": 8} | _DISPATCH},
    "tp8_dp2": {"tp": 8, "attn_dp": 2, "moe": {"dp": 2, "ep": 4}},
    "tp8_cp8": {"tp": 8, "attn_cp": 8, "moe": {"ep": 8}},
    "tp4_cp2": {"tp": 4, "attn_cp": 2, "moe": {"ep": 2}},
    "tp8_cp2_dense2": {"tp": 8, "attn_cp": 2, "dense_tp": "attn_tp", "moe": {"ep": 8} | _DISPATCH},
    "tp8_dp2_cp2": {"tp": 8, "attn_dp": 2, "attn_cp": 2, "moe": {"ep": 2}},
    "tp8_dp4_moe2": {"tp": 8, "attn_dp": 4, "moe": {"dp": 2, "ep": 4} | _DISPATCH},
    "tp12_dp3": {"tp": 12, "attn_dp": 3, "moe": {"ep": 2}},
    "tp16_dp4": {"tp": 16, "attn_dp": 4, "moe": {"ep": 8}},
    "tp64_dp8": {"tp": 64, "attn_dp": 8, "dense_tp": "attn_tp", "moe": {"dp": 8}},
    "tp64_dp64": {"tp": 64, "attn_dp": 64, "dense_tp": 1, "moe": {"ep": 8} | _DISPATCH},
    "tp64_cp8": {"tp": 64, "attn_cp": 8, "moe": {"ep": 8}},
}
"""Every size is there at 1, at a value between and at the largest that 64 ranks have."""

PAIRS: dict[str, dict[str, Any]] = {
    "tp2_dp2": {"tp": 2, "attn_dp": 2, "moe": {"ep": 2}},
    "tp2_dp2_dense1": {"tp": 2, "attn_dp": 2, "dense_tp": 1, "moe": {"ep": 2} | _DISPATCH},
    "tp2_dp2_moe2": {"tp": 2, "attn_dp": 2, "dense_tp": "attn_tp", "moe": {"dp": 2}},
    "tp2_cp2": {"tp": 2, "attn_cp": 2, "moe": {"ep": 1}},
}
"""With `tp2`, what two ranks can be."""

EVERY = TOPOLOGIES | PAIRS

SAMPLED = ("tp1", "tp4", "tp4_dp4", "tp4_dp2_dense1", "tp8_dp2_cp2", "tp12_dp3")
"""Topologies of the covering sample, in which every size is 1 and more."""


def topologies(stack: Stack) -> dict[str, dict[str, Any]]:
    """The topologies by name; a stack says nothing about experts or a dense FFN that it has not."""
    kinds = {stage.sparse for stage in stack.stages if stage.kind == "ffn"}
    absent = {key for key, sparse in (("moe", True), ("dense_tp", False)) if sparse not in kinds}
    return {
        name: {key: size for key, size in sizes.items() if key not in absent}
        for name, sizes in EVERY.items()
    }


def cases(architecture: Architecture, topology: str, layers: int) -> list[Case]:
    """All runs of a stack on one topology.

    Every variant with every policy, padding and placement; each of these in one of the editions
    and modes, drawn, and uncut or cut somewhere. Then every edition with every cut, and overlap
    with every policy and placement.
    """
    found = []
    sizes = EVERY[topology]
    kept = [one for one in EDITIONS if one not in ("overlap", *architecture.without)]
    draw = random.Random(f"{architecture.name} {topology}")
    entries = ENTRIES if described(architecture.name).entry == "complete" else ENTRIES[1:]
    for variant in runnable(architecture, sizes):
        for policy, padding, placement in product(POLICIES, PADDINGS, PLACEMENTS):
            plain = Case(topology, draw.choice(kept), variant, policy, padding, placement)
            cut = draw.choice(_cuts(layers))
            found.append(_detailed(replace(plain, mode=draw.choice(MODES)), cut, entries, draw))
        for edition, cut in product(kept, _cuts(layers)):
            plain = Case(topology, edition, variant, draw.choice(POLICIES), "sum_len", "uneven")
            found.append(_detailed(plain, cut, entries, draw))
        if "overlap" not in architecture.without and variant != CONTEXT_PARALLEL:
            for policy, placement in product(POLICIES, PLACEMENTS):
                padding = draw.choice(PADDINGS)
                plain = Case(topology, "overlap", variant, policy, padding, placement)
                halved = replace(plain, halves=draw.choice(("exits", "alone")))
                found.append(_detailed(halved, (), entries, draw))
    unique = list(dict.fromkeys(found))
    return unique if sizes["tp"] <= MANY else covering(unique)


def sample(architecture: Architecture, layers: int) -> list[Case]:
    """Runs in which each pair of what distinguishes runs occurs, on `SAMPLED` topologies.

    The keys of most editions are in one, which is compiled once for each topology; of the others
    there are runs on one topology.
    """
    found = []
    for topology in SAMPLED:
        for case in cases(architecture, topology, layers):
            found.append(replace(case, edition="all"))
            if topology == "tp8_dp2_cp2" and case.edition in ("complete", "bytes"):
                found.append(case)
    return covering(list(dict.fromkeys(found)))


def covering(found: list[Case]) -> list[Case]:
    """Some of the runs, in which every pair of properties occurs that occurs in all of them."""
    pairs = [_pairs(case) for case in found]
    missing = set().union(*pairs)
    chosen = []
    while missing:
        best = max(range(len(found)), key=lambda index: len(pairs[index] & missing))
        chosen.append(found[best])
        missing -= pairs[best]
    return chosen


def _pairs(case: Case) -> set[tuple[object, object]]:
    """What a sample covers: each pair of a run's properties."""
    told = {
        "topology": case.topology,
        "variant": (case.variant, case.split, case.entry),
        "edition": case.edition,
        "policy": case.policy,
        "padding": case.padding,
        "placement": case.placement,
        "mode": case.mode,
        "driven": (case.halves, len(case.cuts)),
    }
    # Where a stack is cut has to occur, but not with everything else.
    return set(combinations(told.items(), 2)) | {("cuts", case.cuts)}


def _cuts(layers: int) -> list[tuple[int, ...]]:
    """No cut, one before each layer, and one before all of them."""
    return [(), *((layer,) for layer in range(1, layers)), tuple(range(1, layers))]


def _detailed(
    case: Case, cuts: tuple[int, ...], entries: tuple[Entry, ...], draw: random.Random
) -> Case:
    """The case with what only its variant has; ``entries`` are how its stack may be entered."""
    case = replace(case, cuts=cuts, entry=entries[0])
    if case.variant == CONTEXT_PARALLEL:
        return replace(case, split=draw.choice(("zigzag", "interleaved")))
    if case.variant == INPUT_SCATTERED:
        return replace(case, entry=draw.choice(entries))
    return case
