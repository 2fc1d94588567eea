"""What constructs mean that are read in full before they are built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boundaryc.language import (
    Additive,
    Capture,
    Extra,
    NormSpec,
    Quantize,
    Stack,
    Stage,
    Transform,
    canonical,
    loads,
)
from boundaryc.language.lint import lint
from boundaryc.language.model import Terminal

FIXTURES = Path(__file__).parents[1] / "fixtures" / "language"
BASE = (FIXTURES / "base.yaml").read_text(encoding="utf-8")
ALL = (FIXTURES / "constructs.yaml").read_text(encoding="utf-8")
NONE: frozenset[str] = frozenset()


def _draft(name: str) -> Stack:
    (found,) = [draft for draft in loads(ALL).drafts if draft.name == name]
    return found


def test_stages() -> None:
    """Each key of a stage arrives, and what is left out has its default."""
    stages = {stage.name: stage for stage in loads(ALL).stages}
    names = "mamba attention mlp gated experts tail plain scaled centred bare after around"
    assert list(stages) == names.split()
    assert stages["mamba"] == Stage(
        *("mamba", "mixer", False, "scoped", "norm", "add"),
        needs_every_row=frozenset({"attn_tp", "attn_cp"}),
        additive=(Additive("skip", "rank0"),),
        defer=False,
    )
    assert stages["attention"] == Stage(
        *("attention", "attention", False, "partial", "norm", "scaled_add"),
        update_scale=0.22,
        transform=Transform("norm", None, False),
        before_gather=frozenset({"attn_dp"}),
        post_addition=True,
        latent_input=True,
        additive=(Additive("bias", "rank0"), Additive("sink", "divided")),
    )
    assert stages["gated"] == Stage(
        *("gated", "attention", False, "scoped", "norm", "add"),
        post_addition=True,
    )
    assert stages["mlp"] == Stage(
        *("mlp", "ffn", False, "scoped", "norm", "add"),
        joins_sum=True,
        transform=Transform("scale", 2.0, True),
    )
    assert stages["experts"] == Stage(
        *("experts", "ffn", True, "scoped", "norm", "add"),
        transform=Transform("soften", None, True),
        quantize=Quantize("fp8", "group128", True),
        additive=(Additive("shared", "after_sum"),),
    )
    assert stages["tail"] == Stage(
        *("tail", "ffn", False, "local_tail", "norm", "add"),
        quantize=Quantize("int8", "token", False),
    )
    assert stages["plain"] == Stage(
        *("plain", "ffn", False, "scoped", "norm", "merge"), quantized_sum="int8"
    )
    assert stages["scaled"] == Stage(
        *("scaled", "ffn", False, "scoped", "norm", "add"),
        norm=NormSpec("rms", 1e-5, "rounded", 1.0),
    )
    assert stages["centred"].norm == NormSpec("layer", 1e-5, "fp32", bias=True)
    assert stages["bare"] == Stage("bare", "ffn", False, "scoped", "raw", "add")
    normed = Transform("norm", None, False)
    assert stages["after"] == Stage(
        *("after", "ffn", False, "scoped", "raw", "add"), transform=normed
    )
    assert stages["around"] == Stage(
        *("around", "ffn", False, "scoped", "norm", "add"), transform=normed
    )


def test_a_plain_stage_uses_none_of_it() -> None:
    """The defaults are those of a stage that says nothing."""
    plain = Stage("mlp", "ffn", False, "scoped", "norm", "add")
    assert loads(BASE).stage("mlp") == plain
    assert (plain.update_scale, plain.transform, plain.quantize) == (None, None, None)
    assert (plain.before_gather, plain.needs_every_row, plain.additive) == (NONE, NONE, ())
    assert (plain.post_addition, loads(BASE).captures, loads(BASE).drafts) == (False, (), ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fp8, scale: token", Quantize("fp8", "token", False)),
        ("fp8, scale: static, keep: false", Quantize("fp8", "static", False)),
        ("fp8, scale: group128, keep: true", Quantize("fp8", "group128", True)),
        ("int8, scale: token, keep: true", Quantize("int8", "token", True)),
    ],
)
def test_every_quantisation(text: str, expected: Quantize) -> None:
    """The formats and scales that go together, also with a raw read."""
    found = loads(
        BASE.replace("64", "384").replace(
            "mlp: {kind: ffn", f"mlp: {{kind: ffn, read: raw, quantize: {{format: {text}}}"
        )
    )
    assert found.stage("mlp").quantize == expected


def test_layers_may_be_empty() -> None:
    """In a pattern, in `at`, and as the default."""
    assert loads(ALL).layers[2] == ()
    text = BASE.replace("{0: [", "{2-3: [], 0: [")
    assert [bool(layer) for layer in loads(text).layers] == [True, True, False, False]
    text = BASE.replace("default: [attention, experts]", "default: []").replace(
        "0: [attention, mlp]", "1: [mlp, attention], 3: [experts]"
    )
    assert loads(text).layers == ((), ("mlp", "attention"), (), ("experts",))


def test_captures() -> None:
    """By name, layers ascending, ranges with both ends; the producer's rows by default."""
    assert loads(ALL).captures == (
        Capture("eagle3", (1, 4, 5), "after", "producer", travels=True),
        Capture("probe", (0, 2), "before", "input"),
    )


def test_extras() -> None:
    """By name, layers ascending, ranges with both ends."""
    assert loads(ALL).extras == (Extra("deepstack", (0, 1, 3)),)
    assert loads(BASE).extras == ()


def test_a_draft_inherits_what_it_does_not_say() -> None:
    """And has nothing that it does not use."""
    target, draft = loads(ALL), _draft("demo_nextn")
    assert [stack.name for stack in target.drafts] == ["demo_mtp", "demo_nextn"]
    assert draft.layers == (("attention", "light"), ())
    assert draft.stages == (
        target.stage("attention"),
        Stage("light", "ffn", False, "scoped", "norm", "gate"),
    )
    assert (draft.norm, draft.hidden_size) == (target.norm, target.hidden_size)
    assert (draft.topologies, draft.variants) == (target.topologies, target.variants)
    assert (draft.entry, draft.policy_auto) == ("partial", "ar")
    assert (draft.captures, draft.extras, draft.drafts) == ((), (), ())
    assert (target.entry, target.policy_auto) == ("complete", "rsv")
    assert [operation.name for operation in draft.operations] == ["gate"]
    assert [operation.name for operation in target.operations] == ["merge", "soften"]


def test_a_draft_puts_a_stage_in_place_of_the_stacks() -> None:
    """The whole entry: nothing of the replaced one is left, and the stack keeps its own."""
    draft = _draft("demo_mtp")
    assert draft.stage("experts") == Stage("experts", "ffn", False, "scoped", "raw", "add")
    assert loads(ALL).stage("experts").sparse
    assert (draft.entry, draft.policy_auto, draft.operations) == ("complete", "rsv", ())


def test_a_sparse_stage_of_a_draft_uses_moe() -> None:
    """And a dense one `dense_tp`: what a topology says is used by the stack or by a draft."""
    text = BASE.replace("  experts: {kind: ffn, sparse: true}\n", "").replace("experts]", "mlp]")
    text = text.replace(", at: {0: [attention, mlp]}", "")
    drafts = "drafts: {d: {layers: {count: 1, default: [moe]}, stages: {moe: {kind: ffn, X}}}}\n"
    assert loads(text + drafts.replace("X", "sparse: true")).drafts[0].stage("moe").sparse


def test_places_in_a_draft() -> None:
    """By the paths of a file of its own: what it says is there, what it inherits where that is."""
    lines = ALL.splitlines()

    def row(stack: Stack, path: str) -> str:
        span = stack.span(path)
        assert span is not None
        return lines[span.start.line - 1].strip().partition(":")[0]

    nextn, mtp = _draft("demo_nextn"), _draft("demo_mtp")
    assert row(nextn, "stack") == "nextn"
    assert row(nextn, "layers.at.1") == "layers"
    assert row(nextn, "stages.light.update") == "stages"
    assert row(nextn, "stages.attention.update.scaled_add") == "update"
    assert (row(nextn, "policy.auto"), row(mtp, "policy.auto")) == ("policy", "policy")
    assert nextn.span("policy.auto") != mtp.span("policy.auto")
    assert row(mtp, "stages.experts") == "stages"
    assert row(mtp, "stages.experts.quantize.scale") == "stages"  # not the replaced one's
    assert row(mtp, "topologies.tp4_dp2.moe") == "tp4_dp2"
    assert mtp.span("layers") != loads(ALL).span("layers")
    assert row(loads(ALL), "captures.eagle3.after.0") == "eagle3"
    assert row(loads(ALL), "stages.attention.additive.bias") == "additive"


FUSED = BASE.replace("sparse: true}", "sparse: true, finalize: deferred}") + (
    "fusion: {providers: [first, second]}\n"
)
ENDS = {
    "": Terminal(),
    "terminal: {norm: false}\n": Terminal(norm=False),
    "terminal: {finalize: deferred}\n": Terminal(finalize="deferred"),
}


@pytest.mark.parametrize("end", ENDS)
def test_fusion_and_ends(end: str) -> None:
    """Providers keep their order, a draft has them too, and an end of its own."""
    draft = (
        "drafts: {next: {layers: {count: 1, default: [attention, mlp]}, terminal: {norm: false}}}\n"
    )
    stack = loads(FUSED + end + draft)
    assert (stack.fusion, stack.terminal) == (("first", "second"), ENDS[end])
    assert stack.stage("experts").finalize == "deferred"
    assert (stack.drafts[0].fusion, stack.drafts[0].terminal) == (
        stack.fusion,
        Terminal(norm=False),
    )
    texts = [canonical(loads(FUSED + other)) for other in ENDS]
    assert len({*texts, canonical(loads(FUSED.replace("first, second", "second, first")))}) == 4


def test_an_end_that_is_written_out_is_the_default() -> None:
    """Nothing of it is in the canonical text."""
    plain = BASE + "terminal: {norm: true, finalize: here}\n"
    assert canonical(loads(plain)) == canonical(loads(BASE))


SAME = {
    "order of terms": ("{sink: divided, bias: rank0}", "{bias: rank0, sink: divided}"),
    "order of layers": ('["4-5", 1]', "[1, 5, 4]"),
    "order of extras": ('["0-1", 3]', '[3, "0-1"]'),
    "order of axes": ("[attn_tp, attn_cp]", "[attn_cp, attn_tp]"),
    "defaults": ("scale: token}", "scale: token, keep: false}, post_addition: false"),
    "number": ("{scale: 2}", "{scale: 2.0}"),
    "rows": ("1], travels", "1], rows: producer, travels"),
    "entry": ("  mtp:\n", "  mtp:\n    entry: complete\n    policy: {auto: rsv}\n"),
}


@pytest.mark.parametrize(("old", "new"), SAME.values(), ids=SAME.keys())
def test_canonical_ignores_what_has_no_meaning(old: str, new: str) -> None:
    """Equal meaning gives equal text."""
    if old == "scale: token}":
        new = new.replace(", post_addition: false", "")
    assert old in ALL
    assert canonical(loads(ALL.replace(old, new, 1), "other.yaml")) == canonical(loads(ALL))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.22", "0.23"),
        ("update: {scaled_add: 0.22}", "update: add"),
        ("transform: norm", "transform: {scale: 3}"),
        ("{scale: 2}, before_reduce_scatter: true, joins_sum: allow", "{scale: 2}"),
        ("[attn_tp, attn_cp]", "[attn_tp]"),
        ("before_gather: [attn_dp]", "before_gather: [attn_cp]"),
        ("keep: true", "keep: false"),
        ("scale: group128", "scale: token"),
        ("bias: rank0", "bias: divided"),
        ("reduction: scoped, post_addition: true", "reduction: scoped"),
        ("reduction: local_tail", "reduction: scoped"),
        ("kind: attention, reduction: scoped", "kind: mixer"),
        ('["4-5", 1]', "[4, 1]"),
        ('["0-1", 3]', "[1, 3]"),
        ("after: [", "before: ["),
        ("rows: input", "rows: producer"),
        ("entry: partial", "entry: complete"),
        ("auto: ar", "auto: rs"),
        ("count: 2", "count: 3"),
        ("read: raw", "update: add"),
        ("MA.GET", "MAGE.T"),
    ],
)
def test_canonical_sees_what_has_meaning(old: str, new: str) -> None:
    """Another meaning gives another text."""
    assert old in ALL
    changed = ALL.replace(old, new, 1)
    assert changed.startswith("boundaryc")
    assert canonical(loads(changed)) != canonical(loads(ALL))


def test_canonical_of_a_stack_without_them_knows_nothing_of_them() -> None:
    """So that generated code of such a stack stays what it is."""
    meaning = json.loads(canonical(loads(BASE)))
    assert sorted(meaning) == sorted(
        [
            "hidden_size",
            "language",
            "layers",
            "name",
            "norm",
            "operations",
            "policy_auto",
            "stages",
            "topologies",
            "variants",
        ]
    )
    for stage in meaning["stages"]:
        assert sorted(stage) == sorted(
            ["joins_sum", "kind", "name", "order", "read", "reduction", "sparse", "update"]
        )


def test_canonical_of_a_draft_is_part_of_its_stacks() -> None:
    """A draft has a text of its own, which the one of its stack contains."""
    whole = json.loads(canonical(loads(ALL)))
    assert [json.loads(canonical(draft)) for draft in loads(ALL).drafts] == whole["drafts"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("0.22", "1", ("BC601", "a sum scaled by 1 is what `add` does")),
        ("{scale: 2}", "{scale: 1.0}", ("BC601", "a transform that scales by 1 changes nothing")),
        (
            *("before_gather: [attn_dp]", "before_gather: [attn_cp]"),
            ("BC603", "`before_gather: attn_cp` has no effect: attn_cp is 1 in every topology"),
        ),
    ],
)
def test_lint(old: str, new: str, expected: tuple[str, str]) -> None:
    """Second spellings and axes that no topology has."""
    text = ALL.replace(", attn_cp]", "]")
    assert lint(loads(text), text) == ()
    changed = text.replace(old, new)
    (found,) = lint(loads(changed), changed)
    assert (found.code, found.message) == expected
    assert found.span is not None
    assert found.span.start.line > 1
