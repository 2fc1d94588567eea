"""The reader of `config.json`: places, and what is no config; and models of no known family."""

from __future__ import annotations

import json

import pytest

from boundaryc.language import BoundarycError, Position
from boundaryc.scaffold.config import parse_config
from boundaryc.scaffold.ranks import RanksError, topology_line
from boundaryc.scaffold.start import MisfitError, started
from boundaryc.scaffold.unknown import UNKNOWN

MYSTERY = {"model_type": "Mystery-X", "n_embd": 512, "n_layer": 7, "rms_norm_eps": 1e-5}


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("", "BC013", 1, 1),
        ('{"a": 1,\n "b": }', "BC013", 2, 7),
        ('{"a": 1,}', "BC013", 1, 9),
        ("[" * 100_000, "BC008", 1, 1),
        ("[1]", "BC103", 1, 1),
        ("7", "BC103", 1, 1),
        ('{"a": ' + "9" * 5000 + "}", "BC013", 1, 1),
        ('{"a": 1,\n  "b": {"a": 2}, "a": 3}', "BC004", 2, 18),
        ('{"text_config": {"a": [{"a": 1}],\n"a": 2}}', "BC004", 2, 1),
    ],
)
def test_what_is_no_config(text: str, code: str, line: int, column: int) -> None:
    """Has a code, a place and a remedy."""
    with pytest.raises(BoundarycError) as caught:
        parse_config(text, "config.json")

    (found,) = caught.value.diagnostics
    assert found.code == code
    assert found.span is not None
    assert found.span.start == Position(line, column)
    assert found.help


def test_the_text_model_of_several() -> None:
    """Its keys and their places, whatever else is there with the same names."""
    text = (
        '{"hidden_size": 1, "vision_config": {"hidden_size": 2},\n'
        ' "text_config": {"t\\"": [{}],\n  "hidden_size": 3}}'
    )
    config = parse_config(text, "config.json")

    assert config.values["hidden_size"] == 3
    assert config.place("hidden_size").start == Position(3, 3)
    assert config.place("absent").start == Position(1, 1)


def test_a_family_of_which_nothing_is_known() -> None:
    """The skeleton compiles, every question is a comment, and the finding points at all of them."""
    found = started(parse_config(json.dumps(MYSTERY), "config.json"), (), (), "stack.yaml")
    lines = found.text.splitlines()

    assert found.family is None
    assert (found.stack.name, found.stack.hidden_size) == ("mystery_x", 512)
    assert len(found.stack.layers) == 7
    (finding,) = found.findings
    assert finding.code == "BC608"
    asked = [
        lines[mark.span.start.line - 1][mark.span.start.column - 1 :] for mark in finding.labels
    ]
    assert [one.partition(":")[0] for one in asked] == [f"TODO {one.what}" for one in UNKNOWN]
    assert [mark.text for mark in finding.labels] == [f"write {one.write}" for one in UNKNOWN]


def test_what_its_config_hints_at() -> None:
    """Is said with the question; and what the skeleton ignores is named as lint names it."""
    said = {
        **MYSTERY,
        "rms_norm_eps": None,
        "num_experts": 64,
        "layer_types": ["a\n- evil"],
        "residual_multiplier": 0.5,
        "layernorm_mlp_alpha": 3.5,
        "logit_scale": 4.0,
        "attention_multiplier": 0.1,
        "router_aux_loss_coef": 0.1,
    }
    found = started(parse_config(json.dumps(said), "config.json"), (), (), "stack.yaml")

    assert "The config says num_experts = 64." in found.text
    assert "The config says 1 layer_types." in found.text
    assert "evil" not in found.text
    assert "eps: 1.0e-6} # TODO eps: the config says none" in found.text
    ignored = {one.message.split(" = ")[0].split()[-1] for one in found.findings[1:]}
    assert ignored == {"residual_multiplier", "layernorm_mlp_alpha", "num_experts"}
    assert all(one.labels for one in found.findings)


@pytest.mark.parametrize("called", ["", "torch", "9", "a" * 60, None, 3])
def test_a_type_that_makes_no_name(called: object) -> None:
    """The stack has another one."""
    text = json.dumps({**MYSTERY, "model_type": called})

    assert started(parse_config(text, "c"), (), (), "s").stack.name == "model"


def test_topologies() -> None:
    """As words, whose names are the words."""
    assert topology_line("tp16-attn_dp2-attn_cp2-dense_attn_tp-moe_dp2-ep4-all_to_all") == (
        "tp16_attn_dp2_attn_cp2_dense_attn_tp_moe_dp2_ep4_all_to_all: {tp: 16, attn_dp: 2, "
        "attn_cp: 2, dense_tp: attn_tp, moe: {dp: 2, ep: 4, all_to_all: true}}"
    )
    assert topology_line("tp4-dense_tp1") == "tp4_dense_tp1: {tp: 4, dense_tp: 1}"
    assert topology_line("own=tp4-ep4") == "own: {tp: 4, moe: {ep: 4}}"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("", "no `` is known; write tp8"),
        ("tp", "no `tp` is known"),
        ("tp0", "no `tp0` is known"),
        ("attn_dp4", "does not begin with the number of ranks"),
        ("tp8-dp4", "no `dp4` is known"),
        ("tp8-ep2-ep4", "says ep twice"),
        ("tp8-dense_tp1-dense_attn_tp", "says dense_tp twice"),
        ("wide: {}=tp8", "no topology can be called 'wide: {}'"),
        ("{tp: 8}", "no `{tp: 8}` is known"),
    ],
)
def test_what_is_no_topology(word: str, said: str) -> None:
    """Is refused with the form of one."""
    with pytest.raises(RanksError) as caught:
        topology_line(word)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("topologies", "variants", "said"),
    [
        (["tp8-attn_dp3"], [], "attn_dp = 3 does not divide tp = 8 (BC205)"),
        (["tp8-ep8"], [], "`moe` is declared and no stage is sparse (BC204)"),
        (["tp8", "tp8"], [], "appears twice (BC004)"),
        (["tp9999"], [], "(BC104)"),
        (["tp8"], ["context_parallel", "ordinary"], "context_parallel applies to no topology"),
        ([], ["odd"], "there is no variant 'odd'; there is ordinary,"),
    ],
)
def test_what_does_not_fit(topologies: list[str], variants: list[str], said: str) -> None:
    """Options that a valid file cannot have."""
    with pytest.raises(MisfitError) as caught:
        started(None, topologies, variants, "stack.yaml")
    assert said in str(caught.value)
