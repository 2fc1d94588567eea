"""`init` on the config of each example's model gives the plans of the stack file beside it.

`deepnorm` is no model of Transformers and has no config; the draft is in the file of its target.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from typing import Any

import pytest

from boundaryc.emit.diagnose import planned_family
from boundaryc.emit.plan_json import plan_json, shared_plan
from boundaryc.language import Stack, TopologySpec, canonical, load
from boundaryc.scaffold.config import parse_config
from boundaryc.scaffold.families import FAMILIES
from boundaryc.scaffold.start import started
from examples.hf.architecture import architecture_names
from tests.cli.process import ROOT

NAMES = sorted({*architecture_names()} - {"deepnorm", "deepseek_v3_nextn"})
TOPOLOGIES = {"tp4", "tp4_dp2", "tp4_cp2", "tp8_cp8", "tp4_dp4"}
"""Of those of the examples; more would show nothing else."""


def config_of(name: str) -> str:
    """The config of an example's model, as Transformers writes it beside weights."""
    module = importlib.import_module(f"examples.{name}.hf")
    model: Any = module.ARCHITECTURE.build()
    config = getattr(model, "config", None) or model.model.config
    text: str = config.to_json_string(use_diff=True)
    if name != "qwen3_vl_text":
        return text
    vision = {"deepstack_visual_indexes": [*range(module.DEEP)]}
    whole = {"model_type": "qwen3_vl", "text_config": json.loads(text), "vision_config": vision}
    return json.dumps(whole)


def word_of(spec: TopologySpec) -> str:
    """A topology as `init` is asked for it."""
    words = [f"tp{spec.tp}"]
    sizes = {"attn_dp": spec.attn_dp, "attn_cp": spec.attn_cp}
    sizes |= {"moe_dp": spec.moe.dp, "ep": spec.moe.ep}
    words += [f"{name}{size}" for name, size in sizes.items() if size > 1]
    dense = {spec.attn_tp: "dense_attn_tp", 1: "dense_tp1", spec.tp: ""}[spec.dense_tp]
    words += [dense] if dense else []
    return "-".join([*words, "all_to_all"] if spec.moe.all_to_all else words)


def on(stack: Stack, specs: tuple[TopologySpec, ...], like: Stack) -> Stack:
    """A stack on some topologies, with what deployments add that no config knows of."""
    drafts = tuple(
        dataclasses.replace(one, topologies=specs, two_batch=like.two_batch) for one in stack.drafts
    )
    return dataclasses.replace(
        stack,
        topologies=specs,
        drafts=drafts,
        pipeline=like.pipeline,
        two_batch=like.two_batch,
        fusion=like.fusion,
    )


def plans(stack: Stack) -> dict[tuple[str, str, str, int], Any]:
    """What runs by stack, topology, variant and boundary, and what plans say besides."""
    found: dict[tuple[str, str, str, int], Any] = {}
    for plan in planned_family(stack, {}):
        for topology in plan.topologies:
            document = json.loads(plan_json(plan, topology, shared_plan(plan, topology)))
            at = (plan.stack.name, topology.spec.name)
            for variant, content in document.pop("variants").items():
                for index, boundary in enumerate(content.pop("boundaries")):
                    found[(*at, variant, index)] = boundary
                found[(*at, variant, -1)] = content
            found[(*at, "", -1)] = document
    return found


def test_every_example_is_of_a_known_family() -> None:
    assert set(NAMES) == {one.name for one in FAMILIES.values()}


@pytest.mark.parametrize("name", NAMES)
def test_the_same_plans(name: str) -> None:
    """On the same ranks, and nothing is left to say."""
    hand = load(ROOT / f"examples/{name}/stack.yaml")
    specs = tuple(spec for spec in hand.topologies if spec.name in TOPOLOGIES)
    config = parse_config(config_of(name), "config.json")
    made = started(config, [word_of(spec) for spec in specs], hand.variants, "stack.yaml")

    assert made.findings == ()
    named = {word_of(spec).replace("-", "_"): spec.name for spec in specs}
    renamed = tuple(
        sorted(
            (dataclasses.replace(one, name=named[one.name]) for one in made.stack.topologies),
            key=lambda one: (one.tp, one.attn_dp, one.name),
        )
    )
    ours, theirs = on(made.stack, renamed, hand), on(hand, specs, hand)
    assert canonical(ours) == canonical(theirs)
    assert len(specs) >= 2
    assert plans(ours) == plans(theirs)
