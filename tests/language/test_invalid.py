"""Invalid files: the exact code, line, column and remedy of every error.

Each case edits a valid file; `tests/fixtures/language/invalid.txt` says how, and adding a case is
adding lines there. `«` marks where an error must be reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from boundaryc.language import BoundarycError, loads

FIXTURES = Path(__file__).parents[1] / "fixtures" / "language"
BASE = (FIXTURES / "base.yaml").read_text(encoding="utf-8")
Edits = list[tuple[str, str]]
VARIANTS = "variants: [ordinary]"
MLP = "mlp: {kind: ffn}"


def _operation(text: str, use: str = "update: gate") -> Edits:
    return [
        (MLP, "mlp: {kind: ffn, " + use + "}"),
        (VARIANTS, "operations: {gate: {" + text + "}}"),
    ]


GATE = "role: update, call: pkg.ops:gate"


def _unescaped(text: str) -> str:
    """The text of a fixture with its escapes resolved."""
    return re.sub(
        r"\\(\\|n|t|x..|u....)",
        lambda m: {"n": "\n", "t": "\t", "\\": "\\"}.get(m[1]) or chr(int(m[1][1:], 16)),
        text,
    )


@dataclass(slots=True)
class Case:
    """One invalid file: the codes, remedies and edits, and by marks in these the places."""

    title: str
    codes: str
    helps: list[str] = field(default_factory=list)
    edits: Edits = field(default_factory=list)


DEEP = "a stack of any depth fits in a few lines: use `layers` with `count` or `pattern`"
TOO_LARGE: list[Case] = [
    Case(
        "long number", "BC104", ["numbers have at most 18 characters"], [("64", "«" + "9" * 5000)]
    ),
    Case(
        "long name",
        "BC201",
        ["names have at most 40 characters"],
        [("stack: demo", "stack: «" + "d" * 41)],
    ),
    Case(
        "long text",
        "BC012",
        ["shorten it; nothing in the language is that long"],
        [("stack: demo", "stack: «" + "d" * 10_001)],
    ),
    Case(
        "top level is a list",
        "BC103",
        ["start with `boundaryc: 1` and `stack: name`"],
        [(BASE, "«- boundaryc: 1\n")],
    ),
    Case(
        "huge file",
        "BC011",
        [DEEP],
        [("boundaryc: 1", "«boundaryc: 1"), (VARIANTS, "#" * 1_000_000)],
    ),
    Case(
        "too many stages",
        "BC104",
        ["write at most 256 entries for `stages`: the compute stages by name"],
        [
            ("stages:", "«stages:"),
            (MLP, "\n  ".join([MLP, *(f"s{i}: {{kind: ffn}}" for i in range(300))])),
        ],
    ),
]


def _cases() -> list[Case]:
    """The cases of the fixture, and those too large for it."""
    cases = list(TOO_LARGE)
    for line in (FIXTURES / "invalid.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("=== "):
            codes, _, title = line[4:].partition(": ")
            cases.append(Case(title, codes))
        elif line.startswith("! "):
            cases[-1].helps.append(line[2:])
        elif " => " in line and not line.startswith("#"):
            old, _, new = line.partition(" => ")
            cases[-1].edits.append((_unescaped(old), _unescaped(new)))
    return cases


CASES = _cases()


def test_the_fixture_is_read() -> None:
    """The table is as long as it should be, so that a broken reader is noticed."""
    assert len(CASES) >= 110
    assert all(case.edits for case in CASES)
    assert all(len(case.helps) == len(case.codes.split()) for case in CASES)
    assert len({case.title for case in CASES}) == len(CASES)


def _places(marked: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without marks, and the line and column of each mark."""
    places = []
    for number, line in enumerate(marked.split("\n"), start=1):
        parts = line.split("«")
        before = 0
        for part in parts[:-1]:
            before += len(part)
            places.append((number, before + 1))
    return marked.replace("«", ""), places


def _edited(edits: Edits) -> str:
    text = BASE
    for old, new in edits:
        assert old in text, f"the case does not apply: {old!r}"
        text = text.replace(old, new, 1)
    return text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_code_line_column_and_remedy(case: Case) -> None:
    """Every error is reported at its mark and nothing else is, and each says exactly what to do."""
    text, places = _places(_edited(case.edits))

    with pytest.raises(BoundarycError) as caught:
        loads(text, "demo.yaml")

    found = caught.value.diagnostics
    assert [item.code for item in found] == case.codes.split()
    assert [(i.span.start.line, i.span.start.column) for i in found if i.span] == places
    assert [item.help for item in found] == case.helps
    assert all(item.message and item.span for item in found)
    assert all(item.span.file == "demo.yaml" for item in found if item.span)


def test_base_is_valid() -> None:
    """The cases start from a file that has no error."""
    assert loads(BASE).name == "demo"


PLANNED: list[tuple[str, Edits]] = [
    *[
        (key, [(VARIANTS, f"«{key}: {{}}")])
        for key in ("branch", "captures", "drafts", "extras", "fusion", "lora", "overlap")
    ],
    *[
        (key, [(VARIANTS, f"«{key}: {{}}")])
        for key in ("pipeline", "residual", "residual_dtype", "segments", "terminal")
    ],
    *[
        (key, [(MLP, f"mlp: {{kind: ffn, «{key}: 1}}")])
        for key in ("adds", "defer", "finalize", "norm", "quantize")
    ],
    *[
        (key, [(MLP, f"mlp: {{kind: ffn, «{key}: 1}}")])
        for key in ("post_residual_addition", "quantized_sum", "scale", "transform", "latent_input")
    ],
    *[(word, [("kind: rms", f"kind: «{word}")]) for word in ("layer", "none")],
    *[(key, [("1.0e-6", f"1.0e-6, «{key}: true")]) for key in ("weight_offset", "bias")],
    ("variable_scatter", [("tp4: {tp: 4}", "tp4: {tp: 4, «variable_scatter: true}")]),
    *[
        (fact, _operation(GATE + f", facts: [«{fact}]"))
        for fact in ("writes_stream", "rewrites_residual", "quantized_sum", "per_call")
    ],
    *[(role, _operation(f"role: «{role}, call: a:b")) for role in ("enter", "transform")],
    *[(key, _operation(GATE + f", «{key}: [x]")) for key in ("state", "streams")],
    *[
        (name, [(MLP, f"mlp: {{kind: ffn, update: «{name}}}")])
        for name in ("scaled_add", "post_norm", "sandwich", "hyper_connections")
    ],
    ("post_norm", [(MLP, "mlp: {kind: ffn, read: «post_norm}")]),
    ("mixer", [("kind: attention", "kind: «mixer")]),
    ("reduction local_tail of ffn stages", [(MLP, "mlp: {kind: ffn, reduction: «local_tail}")]),
    (
        "reduction scoped of attention stages",
        [("{kind: attention}", "{kind: attention, reduction: «scoped}")],
    ),
    ("layer without stages", [("default:", "default:"), ("{0: [", "{«3: [], 0: [")]),
    ("drafts", [(VARIANTS, "policy: {«drafts: ar}")]),
]


@pytest.mark.parametrize(("word", "edits"), PLANNED, ids=lambda v: v if isinstance(v, str) else "")
def test_planned_constructs_are_rejected_by_name(word: str, edits: Edits) -> None:
    """What the language has and this version does not build is named, where it stands."""
    text, places = _places(_edited(edits))

    with pytest.raises(BoundarycError) as caught:
        loads(text)

    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == ("BC301", f"{word}: not yet supported")
    assert found.help.startswith("leave it out; docs/language.md")
    assert found.span is not None
    assert [(found.span.start.line, found.span.start.column)] == places
