"""Stages that an SGLang model declares, as stages of a stack file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from boundaryc.engines import sglang_stages
from boundaryc.language import loads
from boundaryc.verify.cells import Outcome
from boundaryc.verify.matrix import Selection, covering, matrix
from tests.engines.ranks import FACTS, signature
from tests.verify.subjects import prover

ROOT = Path(__file__).resolve().parents[2]
EXAONE4 = ROOT / "examples/engines/sglang/exaone4/stack.yaml"
RECIPE = ROOT / "docs/migrate-sglang.md"


class _Operation:
    reads_before_dp_gather = reads_after_attn_tp_gather = False

    def __init__(self, **facts: Any) -> None:
        self.__dict__.update(facts)


class NormReadout(_Operation):
    """A read of SGLang, by its name."""


class NormQuantReadout(_Operation):
    """Likewise."""


class PlainReadout(_Operation):
    """Likewise."""


class PlainAdd(_Operation):
    """An update of SGLang, by its name."""


class PostNormAdd(_Operation):
    """Likewise."""


class MHCUpdate(_Operation):
    """An update of a model's own."""


def _declared(kind: str, **given: Any) -> Any:
    """A `StageDeclaration` with the fields that SGLang's has, and the defaults of `declare_*`."""
    (names,) = (
        found for key, found in FACTS["attributes"].items() if key.endswith(":StageDeclaration")
    )
    fields = dict.fromkeys(names)
    mixer = kind == "ATTENTION"
    fields |= {
        "kind": SimpleNamespace(name=kind),
        "read": NormQuantReadout() if mixer else NormReadout(),
        "update": PlainAdd(),
        "reduction": SimpleNamespace(name="ALWAYS_PARTIAL" if mixer else "EXIT_SCOPED"),
        "gathers_attn_tp_input": mixer,
        "tp_group": SimpleNamespace(name="ATTN_TP"),
    }
    assert set(given) <= set(names)
    return SimpleNamespace(**(fields | given))


def attn(**given: Any) -> Any:
    """What `declare_attn` makes."""
    return _declared("ATTENTION", **given)


def ffn(**given: Any) -> Any:
    """What `declare_ffn` makes."""
    return _declared("FFN", **given)


SCOPED = SimpleNamespace(name="EXIT_SCOPED")
NORM_OF_OUTPUT = SimpleNamespace(apply=None, before_reduce_scatter=False)


@pytest.mark.parametrize(
    ("declaration", "stage"),
    [
        (attn(), {"kind": "attention"}),
        (ffn(), {"kind": "ffn"}),
        (ffn(sparse=True), {"kind": "ffn", "sparse": True}),
        (attn(reduction=SCOPED), {"kind": "mixer"}),
        (attn(gathers_attn_tp_input=False), {"kind": "attention", "gathers_tp_input": False}),
        (attn(in_token_order=True), {"kind": "attention", "order": "token"}),
        (attn(output_transform=NORM_OF_OUTPUT), {"kind": "attention", "update": "sandwich"}),
        (ffn(read=PlainReadout()), {"kind": "ffn", "read": "raw"}),
        (
            ffn(read=PlainReadout(), output_transform=NORM_OF_OUTPUT),
            {"kind": "ffn", "read": "raw", "transform": "norm"},
        ),
        (
            ffn(read=PlainReadout(), update=PostNormAdd(applied_at_exit=True)),
            {"kind": "ffn", "update": "post_norm"},
        ),
        (
            ffn(read=NormReadout(reads_before_dp_gather=True)),
            {"kind": "ffn", "before_gather": ["attn_dp"]},
        ),
        (
            attn(read=NormReadout(reads_after_attn_tp_gather=True)),
            {"kind": "attention", "needs_every_row": ["attn_tp"]},
        ),
    ],
)
def test_a_stage(declaration: Any, stage: dict[str, Any]) -> None:
    """It says what was declared, and the compiler takes it."""
    assert sglang_stages.stage(declaration) == stage
    other = {"kind": "attention"} if stage["kind"] == "ffn" else {"kind": "ffn"}
    moe = stage.get("sparse", False)
    loads(_file({"stages": {"one": stage, "two": other}, **_layers(["one", "two"])}, moe=moe))


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        (ffn(sum_impl=object()), "sum_impl: a sum of its own is a collective"),
        (attn(attn_tp_gather=print), "attn_tp_gather: a gather of its own"),
        (ffn(row_transport=object()), "row_transport: rows of its own"),
        (ffn(prepared_from=object()), "prepared_from: a branch is written as `branch`"),
        (ffn(output_complete=True), "output_complete: .* `all_to_all`"),
        (attn(tp_group=SimpleNamespace(name="TP")), "tp_group: heads over all of TP"),
        (ffn(update=MHCUpdate()), "update: MHCUpdate is an operation of its own"),
        (ffn(update=PostNormAdd()), "`post_norm` behind a plain read only"),
        (
            ffn(output_transform=SimpleNamespace(before_reduce_scatter=True)),
            "output_transform: one that may run before the sum",
        ),
    ],
)
def test_what_a_stage_cannot_say(declaration: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sglang_stages.stage(declaration)


def test_layers_are_runs_of_named_stages() -> None:
    """Stages that are alike share a name, within a layer they do not."""
    first, then = [attn(), ffn()], [attn(), ffn(sparse=True)]
    twice = [attn(), ffn(), attn(), ffn(read=PlainReadout())]
    found = sglang_stages.stack([first, first, then, then, then, twice])
    assert found["stages"] == {
        "attention": {"kind": "attention"},
        "mlp": {"kind": "ffn"},
        "experts": {"kind": "ffn", "sparse": True},
        "attention_2": {"kind": "attention"},
        "mlp_2": {"kind": "ffn", "read": "raw"},
    }
    assert found["layers"] == {
        "count": 6,
        "default": ["attention", "experts"],
        "at": {"0-1": ["attention", "mlp"], 5: ["attention", "mlp", "attention_2", "mlp_2"]},
    }
    loads(_file(found, moe=True))


def _file(found: dict[str, Any], *, moe: bool) -> str:
    """A whole stack file with these stages and layers."""
    rest = {
        "boundaryc": 1,
        "stack": "sample",
        "hidden_size": 64,
        "norm": {"kind": "rms", "eps": 1e-6},
        "topologies": {"tp2_dp2": {"tp": 2, "attn_dp": 2} | ({"moe": {"ep": 2}} if moe else {})},
    }
    return yaml.safe_dump(rest | found)


def _layers(stages: list[str]) -> dict[str, Any]:
    return {"layers": {"count": 2, "default": stages}}


def test_exaone4_is_what_its_layers_declare() -> None:
    """The migrated stack file; that SGLang's layers declare this is a test with SGLang."""
    layer = [
        attn(read=PlainReadout(), update=PostNormAdd()),
        ffn(read=PlainReadout(), update=PostNormAdd(applied_at_exit=True)),
    ]
    written = yaml.safe_load(EXAONE4.read_text("utf-8"))
    assert {key: written[key] for key in ("stages", "layers")} == sglang_stages.stack([layer] * 30)


def test_exaone4_compiles_and_verifies() -> None:
    """As `boundaryc verify --covering`, on simulated ranks against the oracle."""
    text = EXAONE4.read_text("utf-8").replace("count: 30", "count: 2")
    proof = prover(text.replace("stack: exaone4", "stack: sample"))
    chosen = Selection(topologies=("tp4_dp2",), policies=("auto",), paddings=("unpadded",))
    cells = covering(list(matrix(proof.subject.plan, chosen)))
    assert len(cells) > 5
    failed = [cell for cell, one in zip(cells, proof.prove(cells), strict=True) if not _good(one)]
    assert failed == []


def _good(outcome: Outcome) -> bool:
    return outcome.failure is None


def test_the_recipe_names_every_argument() -> None:
    """Each argument of `declare_attn` and `declare_ffn` has a row, each key of a row exists."""
    text = RECIPE.read_text("utf-8")
    for name in ("declare_attn", "declare_ffn"):
        for argument in signature(name).parameters:
            assert f"| `{argument}`" in text or f"`{argument}=" in text, f"{name}: {argument}"
    for field in sglang_stages.REFUSED:
        assert field in text
    assert "examples/engines/sglang/exaone4/stack.yaml" in text
