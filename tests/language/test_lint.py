"""Lint: what each rule reports and what it leaves alone, and how a comment allows a finding."""

from __future__ import annotations

import pytest

from boundaryc.language import Severity, loads
from boundaryc.language.explain import complete
from boundaryc.language.lint import lint
from tests.language.derived import ROOT

SPARSE = "stages:\n  attention: {kind: attention}\n  mlp: {kind: ffn, sparse: true}\n"
READ = (
    "operations: {peek: {role: read, call: m:f, FACTS}}\n"
    "stages:\n  attention: {kind: attention, read: peek}\n  mlp: {kind: ffn}\n"
)
DRAFT = "drafts: {d: {layers: {count: 1, default: [attention, mlp]}, "


def _lint(fragment: str) -> list[tuple[str, int, int]]:
    """The code, line and column of each finding in a completed fragment."""
    text = complete(fragment)
    found = lint(loads(text, "m.yaml"), text)
    assert all(item.severity is not Severity.ERROR and item.help for item in found)
    return [(i.code, i.span.start.line, i.span.start.column) for i in found if i.span]


@pytest.mark.parametrize(
    ("fragment", "place"),
    [
        (SPARSE + "topologies: {t: {tp: 4, moe: {ep: 2, tp: 2}}}\n", ("BC601", 4, 42)),
        (SPARSE + "topologies: {t: {tp: 4, moe: {ep: 1}}}\n", ("BC601", 4, 25)),
        ("topologies: {t: {tp: 4, dense_tp: attn_tp}}\n", ("BC601", 1, 35)),
        ("topologies: {t: {tp: 4, attn_dp: 4, dense_tp: attn_tp}}\n", ("BC601", 1, 47)),
        ("topologies: {t: {tp: 1, dense_tp: 1}}\n", ("BC601", 1, 35)),
        ("layers: {count: 3, default: [mlp, attention], at: {1: [mlp, attention]}}\n",
         ("BC601", 1, 52)),
        ("stages:\n  attention: {kind: attention, norm: {kind: rms, eps: 1.0e-6}}\n"
         "  mlp: {kind: ffn}\n", ("BC601", 2, 32)),
        ("policy: {auto: rs}\ntopologies: {t: {tp: 4, dense_tp: 1}}\n", ("BC602", 1, 16)),
        (
            SPARSE + "topologies: {t: {tp: 4, moe: {all_to_all: true}}}\npolicy: {auto: rsv}\n",
            ("BC602", 5, 16),
        ),
        ("stages:\n  attention: {kind: attention, order: token}\n  mlp: {kind: ffn}\n",
         ("BC602", 2, 39)),
        ("stages:\n  attention: {kind: mixer, gathers_tp_input: false}\n  mlp: {kind: ffn}\n",
         ("BC602", 2, 46)),
        (
            "stages:\n  attention: {kind: attention}\n  mlp: {kind: ffn, joins_sum: allow}\n"
            "topologies: {t: {tp: 4, dense_tp: 1}}\n",
            ("BC602", 3, 31),
        ),
        ("topologies: {t: {tp: 1, link: {latency_us: 3}}}\n", ("BC602", 1, 25)),
        ("topologies: {t: {tp: 1}}\nfusion: {providers: [a]}\n", ("BC602", 2, 1)),
        ("topologies: {t: {tp: 4}}\nfusion: {providers: [a, builtin]}\n", ("BC602", 2, 1)),
        (
            SPARSE.replace("sparse: true", "sparse: true, finalize: deferred")
            + "topologies: {t: {tp: 4, moe: {all_to_all: true}}}\nfusion: {providers: [a]}\n",
            ("BC602", 3, 44),
        ),
        (READ.replace("FACTS", "facts: [row_wise], read_whole: [attn_tp]"), ("BC603", 1, 63)),
        (READ.replace("FACTS", "read_local: [attn_dp]"), ("BC603", 1, 44)),
        ("topologies: {b: {tp: 4}, a: {tp: 4, dense_tp: tp}}\n", ("BC604", 1, 26)),
        ("variants: [sequence_parallel, ordinary]\ntopologies: {t: {tp: 4}, one: {tp: 1}}\n",
         ("BC605", 1, 12)),
        ("topologies: {t: {tp: 4, attn_cp: 2}}\n", ("BC606", 1, 34)),
        (DRAFT + "stages: {mlp: {kind: ffn, update: {scaled_add: 1}}}}}\n", ("BC601", 1, 87)),
        (
            "topologies: {t: {tp: 4, dense_tp: 1}}\npolicy: {auto: ar}\n" + DRAFT
            + "policy: {auto: rs}}}\n",
            ("BC602", 3, 76),
        ),
    ],
)  # fmt: skip
def test_what_is_reported(fragment: str, place: tuple[str, int, int]) -> None:
    """Each is found once, where it is written."""
    assert _lint(fragment) == [place]


@pytest.mark.parametrize(
    "fragment",
    [
        "",
        "policy: {auto: ar}\n",
        "policy: {auto: rsv}\n",
        "variants: [ordinary]\noperations: {}\n",
        "stages:\n  attention: {kind: attention, read: norm, update: add, order: shard,"
        " reduction: partial}\n  mlp: {kind: ffn, sparse: false, joins_sum: allow}\n",
        SPARSE + "topologies: {t: {tp: 4, moe: {ep: 2}}}\n",
        "topologies: {t: {tp: 4, attn_dp: 2, dense_tp: attn_tp}}\n",
        "topologies: {t: {tp: 4, attn_dp: 4, dense_tp: 1}}\n",
        "topologies: {t: {tp: 4, dense_tp: tp, attn_dp: 1}}\n",
        "topologies: {t: {tp: 4}, u: {tp: 4, link: {latency_us: 3}}}\n",
        "topologies: {t: {tp: 4, attn_cp: 2}}\nvariants: [ordinary, context_parallel]\n",
        "topologies: {t: {tp: 4, moe: {ep: 2}, dense_tp: 1}}\npolicy: {auto: rs}\n"
        + DRAFT
        + "stages: {mlp: {kind: ffn, sparse: true}}}}\n",
        "layers: {count: 3, default: [attention, mlp], at: {1: [mlp, attention]}}\n",
        "layers: {pattern: AB, stages: {A: [attention, mlp], B: [attention, mlp]}}\n",
        READ.replace("FACTS", "read_local: [attn_tp]"),
        READ.replace("FACTS", "facts: [row_wise]"),
        READ.replace("FACTS", "read_local: [attn_dp]") + "topologies: {t: {tp: 4, attn_dp: 2}}\n",
    ],
)
def test_what_is_left_alone(fragment: str) -> None:
    """Defaults that explain, and everything that has an effect."""
    assert _lint(fragment) == []


SAME = "topologies:\n  tp4: {tp: 4}\n  four: {tp: 4}"


@pytest.mark.parametrize(
    ("fragment", "found"),
    [
        (SAME, [("BC604", 3, 3)]),
        (SAME + " # boundaryc: allow BC604 because of old names", []),
        (SAME.replace("  four", "  #boundaryc:allow BC604 because x\n  four"), []),
        (SAME.replace("  four", "  #boundaryc: allow BC604 because x\n  four"), []),
        (
            SAME.replace("  four", "  # boundaryc: allow BC604 because x\n\n  four"),
            [("BC692", 3, 3), ("BC604", 5, 3)],
        ),
        (SAME + " # boundaryc: allow BC604", [("BC604", 3, 3), ("BC691", 3, 17)]),
        (SAME + " # boundaryc: allow BC604 because", [("BC604", 3, 3), ("BC691", 3, 17)]),
        (SAME + " # boundaryc: allow BC604 for a reason", [("BC604", 3, 3), ("BC691", 3, 17)]),
        (SAME + " # boundaryc: allow because x", [("BC604", 3, 3), ("BC691", 3, 17)]),
        (SAME + " # boundaryc: allow BC205 because x", [("BC604", 3, 3), ("BC691", 3, 17)]),
        (SAME + " # boundaryc: allow BC691 because x", [("BC604", 3, 3), ("BC691", 3, 17)]),
        (SAME + " # boundaryc: allow BC602 because x", [("BC604", 3, 3), ("BC692", 3, 17)]),
        (SAME + " # boundaryc: ignore", [("BC604", 3, 3), ("BC691", 3, 17)]),
        (SAME + " # the boundaryc: allow BC604 because x", [("BC604", 3, 3)]),
        ('stack: "demo" # see "x # boundaryc: allow"', [("BC691", 1, 24)]),
        ("layers: {pattern: 'A', stages: {'A': [attention, mlp]}}", []),
    ],
)
def test_suppression(fragment: str, found: list[tuple[str, int, int]]) -> None:
    """With one code of lint and a reason, on the line or alone above it; else a finding itself."""
    assert _lint(fragment + "\n") == found


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe"])
def test_the_examples_have_no_warning(name: str) -> None:
    """Notes only."""
    path = ROOT / "examples" / name / "stack.yaml"
    text = path.read_text(encoding="utf-8")
    found = lint(loads(text, str(path)), text)
    assert {item.severity for item in found} <= {Severity.NOTE}


def test_byte_order_mark_and_line_ends() -> None:
    """Lint sees the same lines as everything else."""
    text = "\ufeff" + complete(SAME + " # boundaryc: allow BC604 because x\n").replace("\n", "\r\n")
    assert lint(loads(text), text) == ()
