"""Valid files: what they resolve to, what their meaning is, and where their parts are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boundaryc.language import (
    MoeSpec,
    NormSpec,
    OperationDecl,
    Position,
    Stack,
    Stage,
    TopologySpec,
    canonical,
    load,
    loads,
)
from boundaryc.language.reader import resolve

ROOT = Path(__file__).parents[2]
BASE = (ROOT / "tests" / "fixtures" / "language" / "base.yaml").read_text(encoding="utf-8")
LAYERS = "layers: {count: 4, default: [attention, experts], at: {0: [attention, mlp]}}"


def _with(old: str, new: str) -> Stack:
    assert old in BASE
    return loads(BASE.replace(old, new))


def test_everything_is_resolved() -> None:
    """Defaults are filled in, sizes are computed, and nothing depends on the order of keys."""
    stack = loads(BASE, "demo.yaml")

    assert stack.norm == NormSpec("rms", 1e-6, "fp32")
    assert stack.stages == (
        Stage("attention", "attention", False, "partial", "norm", "add"),
        Stage("mlp", "ffn", False, "scoped", "norm", "add"),
        Stage("experts", "ffn", True, "scoped", "norm", "add"),
    )
    dense, sparse = ("attention", "mlp"), ("attention", "experts")
    assert stack.layers == (dense, sparse, sparse, sparse)
    assert stack.topologies == (
        TopologySpec("tp4", 4, 1, 1, 4, 4, MoeSpec(1, 1, 4, False)),
        TopologySpec("tp4_dp2", 4, 2, 1, 2, 4, MoeSpec(1, 2, 2, False)),
    )
    assert (stack.variants, stack.operations) == (("ordinary",), ())
    assert (stack.policy_auto, stack.source) == ("rs+rsv", "demo.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{tp: 8}", (8, 1, 8, 8, MoeSpec(1, 1, 8, False))),
        ("{tp: 8, attn_dp: 8}", (8, 8, 1, 8, MoeSpec(1, 1, 8, False))),
        ("{tp: 8, attn_dp: 2, dense_tp: attn_tp}", (8, 2, 4, 4, MoeSpec(1, 1, 8, False))),
        ("{tp: 8, attn_dp: 2, dense_tp: tp}", (8, 2, 4, 8, MoeSpec(1, 1, 8, False))),
        ("{tp: 8, dense_tp: 1}", (8, 1, 8, 1, MoeSpec(1, 1, 8, False))),
        ("{tp: 12, attn_dp: 3, moe: {ep: 2}}", (12, 3, 4, 12, MoeSpec(1, 2, 6, False))),
        ("{tp: 8, moe: {dp: 2, ep: 2, tp: 2}}", (8, 1, 8, 8, MoeSpec(2, 2, 2, False))),
        ("{tp: 8, moe: {ep: 8, all_to_all: true}}", (8, 1, 8, 8, MoeSpec(1, 8, 1, True))),
        ("{tp: 1, attn_cp: 1}", (1, 1, 1, 1, MoeSpec(1, 1, 1, False))),
    ],
)
def test_topologies(text: str, expected: tuple[int, int, int, int, MoeSpec]) -> None:
    """Unset sizes are what remains of tp; the dense width is a number of ranks."""
    found = _with("tp4: {tp: 4}", f"one: {text}")
    (spec,) = [spec for spec in found.topologies if spec.name == "one"]
    assert (spec.tp, spec.attn_dp, spec.attn_tp, spec.dense_tp, spec.moe) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{count: 3, default: [a, b]}", "AAA"),
        ("{count: 3, default: [a, b], at: {2: [a]}}", "AAB"),
        ('{count: 5, default: [a, b], at: {"1-3": [a]}}', "ABBBA"),
        ("{count: 5, default: [a, b], at: {1-3: [a], 4: [b]}}", "ABBBC"),
        ("{count: 2, at: {0-1: [a, b]}}", "AA"),
        ("{count: 2, at: {1: [b], 0: [a]}}", "BC"),
        ('{pattern: "AB*", stages: {A: [a, b], B: [a], "*": [b]}}', "ABC"),
        ("{pattern: AaA, stages: {A: [a, b], a: [a]}}", "ABA"),
    ],
)
def test_layers(text: str, expected: str) -> None:
    """Ranges include both ends, in either spelling; a pattern has one character per layer."""
    kinds = {"A": ("a", "b"), "B": ("a",), "C": ("b",)}
    stages = "  a: {kind: attention}\n  b: {kind: ffn}"
    text = (
        "boundaryc: 1\nstack: s\nhidden_size: 8\nnorm: {kind: rms, eps: 1e-5}\n"
        f"stages:\n{stages}\nlayers: {text}\ntopologies: {{t: {{tp: 1}}}}\n"
    )
    assert loads(text).layers == tuple(kinds[char] for char in expected)


def test_custom_operations() -> None:
    """An operation of the file arrives with its facts and in call order."""
    stack = loads(
        BASE.replace("mlp: {kind: ffn}", "mlp: {kind: ffn, read: local, update: gate}")
        + "operations:\n"
        "  gate: {role: update, call: 'my_pkg.Ops.x:gate', facts: [at_producer], params: [w, b]}\n"
        "  local: {role: read, call: a:b, read_local: [attn_dp], read_whole: [attn_tp]}\n"
    )

    none: frozenset[str] = frozenset()
    gate = OperationDecl(
        "gate", "update", "my_pkg.Ops.x:gate", frozenset({"at_producer"}), ("w", "b"), none, none
    )
    local = OperationDecl(
        "local", "read", "a:b", none, (), frozenset({"attn_dp"}), frozenset({"attn_tp"})
    )
    assert stack.operations == (gate, local)
    assert (stack.stage("mlp").read, stack.stage("mlp").update) == ("local", "gate")


def test_raw_read_and_policy() -> None:
    """The words that are not defaults."""
    stack = loads(BASE.replace("{kind: ffn}", "{kind: ffn, read: raw}") + "policy: {auto: ar}\n")
    assert (stack.stage("mlp").read, stack.policy_auto) == ("raw", "ar")


SAME = {
    "comments": BASE.replace("\n", " # a comment\n"),
    "crlf": BASE.replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + BASE,
    "no final newline": BASE.rstrip("\n"),
    "explicit document": "%YAML 1.2\n---\n" + BASE + "...\n",
    "keys reversed": "\n".join(
        [*BASE.splitlines()[9:13], *BASE.splitlines()[4:9], *BASE.splitlines()[:4]]
    ),
    "stages reversed": BASE.replace("  mlp: {kind: ffn}\n", "").replace(
        "sparse: true}\n", "sparse: true}\n  mlp: {kind: ffn}\n"
    ),
    "block style": BASE.replace(
        "norm: {kind: rms, eps: 1.0e-6}", "norm:\n  eps: 1e-6\n  kind: rms"
    ),
    "json style": BASE.replace("stack: demo", '"stack": "demo"'),
    "number spelled otherwise": BASE.replace("64", "0x40").replace("1.0e-6", "0.000001"),
    "defaults written out": BASE.replace("{kind: attention}", "{kind: attention, update: add}"),
    "range of one form or the other": BASE.replace(
        LAYERS, "layers: {count: 4, at: {0: [attention, mlp], 1-3: [attention, experts]}}"
    ),
    "defaults of the newer keys": BASE.replace(
        "{kind: attention}", "{kind: attention, order: shard, joins_sum: never}"
    ).replace("{tp: 4}", "{tp: 4, link: {latency_us: 10, bandwidth_gb_s: 300.0}}"),
    "empty link": BASE.replace("{tp: 4}", "{tp: 4, link: {}, attn_cp: 1}"),
    "pattern": BASE.replace(
        LAYERS, "layers: {pattern: AEEE, stages: {A: [attention, mlp], E: [attention, experts]}}"
    ),
}


def test_context_shards_links_and_token_order() -> None:
    """Sizes are resolved with attn_cp, links are numbers, stages know their order."""
    text = BASE.replace("tp4: {tp: 4}", "tp4: {tp: 8, attn_cp: 2, dense_tp: attn_tp, LINK}")
    text = text.replace("LINK", "link: {latency_us: 2, bandwidth_gb_s: 0.5}")
    text = text.replace("{kind: attention}", "{kind: attention, order: token, joins_sum: allow}")
    stack = loads(text.replace("[ordinary]", "[sequence_parallel, context_parallel, ordinary]"))
    spec = stack.topologies[1]
    assert (spec.attn_dp, spec.attn_cp, spec.attn_tp, spec.dense_tp) == (1, 2, 4, 4)
    assert (spec.latency_us, spec.bandwidth_gb_s, spec.alpha) == (2.0, 0.5, 1000)
    assert stack.topologies[0].alpha == 3_000_000
    attention, mlp, _ = stack.stages
    assert (attention.order, attention.joins_sum, mlp.order, mlp.joins_sum) == (
        "token",
        True,
        "shard",
        False,
    )
    assert stack.variants == ("ordinary", "context_parallel", "sequence_parallel")


def test_nothing_depends_on_the_order_of_keys() -> None:
    """Topologies, variants and operations come in an order of their own."""
    head = BASE.partition("topologies:")[0].replace(
        "{kind: ffn}", "{kind: ffn, read: b, update: a}"
    )
    topologies = ["  t2: {tp: 2}", "  t4: {tp: 4}", "  t4b: {tp: 4, attn_dp: 2}", "  t4c: {tp: 4}"]
    operations = ["  a: {role: update, call: m:a}", "  b: {role: read, call: m:b}"]
    variants = ["  - ordinary", "  - sequence_parallel"]

    def text(step: int) -> str:
        rows = [head, "topologies:", *topologies[::step], "operations:", *operations[::step]]
        return "\n".join([*rows, "variants:", *variants[::step]])

    found = [loads(text(1)), loads(text(-1))]
    assert found[0] == found[1]
    assert [spec.name for spec in found[0].topologies] == ["t2", "t4", "t4c", "t4b"]
    assert found[0].variants == ("ordinary", "sequence_parallel")


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_canonical_ignores_what_has_no_meaning(text: str) -> None:
    """Equal meaning gives equal text, so that no generated file changes."""
    assert text != BASE
    assert canonical(loads(text, "other.yaml")) == canonical(loads(BASE))
    assert loads(text, "other.yaml") == loads(BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("hidden_size: 64", "hidden_size: 65"),
        ("1.0e-6", "1.0e-5"),
        ("1.0e-6", "1.0e-6, accumulate: rounded"),
        ("stack: demo", "stack: demo2"),
        ("{0: [", "{1: ["),
        ("[attention, mlp]", "[mlp, attention]"),
        ("count: 4", "count: 5"),
        ("{kind: ffn}", "{kind: ffn, read: raw}"),
        ("ep: 2", "ep: 4"),
        ("ep: 2", "ep: 2, all_to_all: true"),
        ("tp4: {tp: 4}", "tp4: {tp: 4, dense_tp: 1}"),
        ("[ordinary]", "[ordinary, sequence_parallel]"),
        ("variants: [ordinary]", "policy: {auto: ar}"),
        ("{kind: attention}", "{kind: attention, order: token}"),
        ("{kind: ffn}", "{kind: ffn, joins_sum: allow}"),
        ("tp4: {tp: 4}", "tp4: {tp: 4, attn_cp: 2}"),
        ("tp4: {tp: 4}", "tp4: {tp: 4, link: {latency_us: 11}}"),
        ("tp4: {tp: 4}", "tp4: {tp: 4, link: {bandwidth_gb_s: 301}}"),
        ("[ordinary]", "[ordinary, input_scattered]"),
    ],
)
def test_canonical_sees_what_has_meaning(old: str, new: str) -> None:
    """Another meaning gives another text."""
    assert canonical(_with(old, new)) != canonical(loads(BASE))


def test_canonical_is_json_and_short() -> None:
    """A thousand layers take no more room than four."""
    deep = canonical(_with("count: 4", "count: 9999"))
    assert json.loads(deep)["layers"] == [
        [1, ["attention", "mlp"]],
        [9998, ["attention", "experts"]],
    ]
    assert len(deep) < len(canonical(loads(BASE))) + 10


def test_spans_point_at_keys_and_values() -> None:
    """A node with parts is where its key is; a scalar is where its value is."""
    stack = loads(BASE, "demo.yaml")
    lines = BASE.splitlines()

    def text(path: str) -> str:
        span = stack.span(path)
        assert span is not None
        assert span.file == "demo.yaml"
        assert span.start.line == span.end.line
        return lines[span.start.line - 1][span.start.column - 1 : span.end.column - 1]

    assert text("stages.mlp") == "mlp"
    assert text("stages.mlp.kind") == "ffn"
    assert text("stages.mlp.read") == "mlp"  # left out: the nearest node around it
    assert text("topologies.tp4_dp2.moe") == "moe"
    assert text("topologies.tp4_dp2.attn_dp") == "2"
    assert text("layers.at.0.1") == "mlp"
    assert stack.span("nothing") is None
    first = stack.spans["stack"]
    assert (first.start, first.end) == (Position(2, 8), Position(2, 12))
    with pytest.raises(TypeError):
        stack.spans["x"] = first  # type: ignore[index]


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe"])
def test_examples_load(name: str) -> None:
    """The examples are valid, under the name of their folder."""
    path = ROOT / "examples" / name / "stack.yaml"
    stack = load(path)
    assert (stack.name, stack.source) == (name, str(path))
    hash(stack)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("Null", None), ("nULL", "nULL"),
        ("true", True), ("FALSE", False), ("yes", "yes"), ("on", "on"), ("tRue", "tRue"),
        ("0", 0), ("-12", -12), ("+3", 3), ("010", 10), ("0o17", 15), ("0xfF", 255),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("12:30", "12:30"), ("-0x1", "-0x1"), ("1.", 1.0), (".5", 0.5), ("1e3", 1000.0),
        ("-1.5E-3", -0.0015), (".", "."), ("1e", "1e"), ("2001-01-01", "2001-01-01"), ("=", "="),
        ("-.INF", float("-inf")), ("inf", "inf"), ("\u0661", "\u0661"), ("1\n", "1\n"),
    ],
)  # fmt: skip
def test_core_schema(text: str, value: object) -> None:
    """Plain scalars follow the core schema of YAML 1.2, by type as well as by value."""
    found = resolve(text)
    assert (type(found), found) == (type(value), value)
