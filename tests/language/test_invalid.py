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
from boundaryc.language.planned import PLANNED

FIXTURES = Path(__file__).parents[1] / "fixtures" / "language"
BASE = (FIXTURES / "base.yaml").read_text(encoding="utf-8")
ALL = (FIXTURES / "constructs.yaml").read_text(encoding="utf-8")
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


def _cases(name: str) -> list[Case]:
    """The cases of a fixture."""
    cases: list[Case] = []
    for line in (FIXTURES / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("=== "):
            codes, _, title = line[4:].partition(": ")
            cases.append(Case(title, codes))
        elif line.startswith("! "):
            cases[-1].helps.append(line[2:])
        elif " => " in line and not line.startswith("#"):
            old, _, new = line.partition(" => ")
            cases[-1].edits.append((_unescaped(old), _unescaped(new)))
    return cases


CASES = [*TOO_LARGE, *_cases("invalid.txt")]
OPENED = _cases("invalid_constructs.txt")


def test_the_fixture_is_read() -> None:
    """The table is as long as it should be, so that a broken reader is noticed."""
    assert len(CASES) >= 110
    assert len(OPENED) >= 70
    for cases in (CASES, OPENED):
        assert all(case.edits for case in cases)
        assert all(len(case.helps) == len(case.codes.split()) for case in cases)
        assert len({case.title for case in cases}) == len(cases)


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


def _edited(edits: Edits, text: str = BASE) -> str:
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

    _check(case, caught.value, places)


@pytest.mark.parametrize("case", OPENED, ids=lambda case: case.title)
def test_constructs_are_checked_in_full(case: Case) -> None:
    """The same for what is read in full, whether it is built or not."""
    text, places = _places(_edited(case.edits, ALL))

    with pytest.raises(BoundarycError) as caught:
        loads(text, "demo.yaml")

    _check(case, caught.value, places)


def _check(case: Case, problem: BoundarycError, places: list[tuple[int, int]]) -> None:
    found = problem.diagnostics
    assert [item.code for item in found] == case.codes.split()
    assert [(i.span.start.line, i.span.start.column) for i in found if i.span] == places
    assert [item.help for item in found] == case.helps
    assert all(item.message and item.span for item in found)
    assert all(item.span.file == "demo.yaml" for item in found if item.span)


def test_base_is_valid() -> None:
    """The cases start from a file that has no error."""
    assert loads(BASE).name == "demo"


def _key(*keys: str) -> Edits:
    """A key of the file each, with any value."""
    return [(VARIANTS, "\n".join(f"«{key}: 1" for key in keys))]


def _of_stage(text: str) -> Edits:
    return [(MLP, "mlp: {kind: ffn, " + text + "}")]


def _fact(name: str) -> Edits:
    return _operation(GATE + f", facts: [«{name}]")


REJECTED: dict[str, Edits] = {
    "additive": _of_stage("«additive: 1"),
    "before_gather": _of_stage("«before_gather: [attn_dp]"),
    "captures": _key("captures"),
    "drafts": _key("drafts"),
    "layer without stages": [("{0: [", "{«3: [], 0: [")],
    "mixer": [("kind: attention", "kind: «mixer")],
    "needs_every_row": _of_stage("«needs_every_row: [attn_dp]"),
    "post_addition": _of_stage("«post_addition: 1"),
    "quantize": _of_stage("«quantize: {format: {}}"),
    "reduction local_tail of ffn stages": _of_stage("reduction: «local_tail"),
    "reduction scoped of attention stages": [
        ("{kind: attention}", "{kind: attention, reduction: «scoped}")
    ],
    "scaled_add": [
        ("{kind: attention}", "{kind: attention, update: {«scaled_add: 1}}"),
        (MLP, "mlp: {kind: ffn, update: «scaled_add}"),
    ],
    "transform": [
        (MLP, "mlp: {kind: ffn, «transform: 1, «before_reduce_scatter: 1}"),
        (VARIANTS, "operations: {gate: {role: «transform, call: a:b}}"),
    ],
    "defer": _of_stage("«defer: 1"),
    "enter": _operation("role: «enter, call: a:b"),
    "extras": _key("extras"),
    "gathers_tp_input": _of_stage("«gathers_tp_input: 1"),
    "hyper_connections": _of_stage("read: «hyper_connections, update: «hyper_connections"),
    "latent_input": _of_stage("«latent_input: 1"),
    "lora": _key("lora"),
    "norm bias": [("1.0e-6", "1.0e-6, «bias: true")],
    "norm kinds": [("kind: rms", "kind: «layer")],
    "norm of a stage": _of_stage("«norm: 1"),
    "overlap": _key("overlap"),
    "per_call": _fact("per_call"),
    "pipeline": _key("pipeline"),
    "post_norm": _of_stage("read: «post_norm, update: «post_norm"),
    "residual": _key("residual"),
    "residual_dtype": _key("residual_dtype"),
    "rewrites_residual": _fact("rewrites_residual"),
    "sandwich": _of_stage("read: «sandwich, update: «sandwich"),
    "segments": _key("segments"),
    "state": _operation(GATE + ", «state: [x]"),
    "streams": _operation(GATE + ", «streams: 2"),
    "variable_scatter": [("tp4: {tp: 4}", "tp4: {tp: 4, «variable_scatter: true}")],
    "weight_offset": [("1.0e-6", "1.0e-6, «weight_offset: true")],
    "writes_stream": _fact("writes_stream"),
}
"""Uses of each construct that this version does not build or once did not, marked, and no other."""


@pytest.mark.parametrize("construct", PLANNED)
def test_planned_constructs_are_rejected_by_name(construct: str) -> None:
    """What the language has and this version does not build is named wherever it stands."""
    text, places = _places(_edited(REJECTED[construct]))

    with pytest.raises(BoundarycError) as caught:
        loads(text)

    found = caught.value.diagnostics
    words = {re.split("[.=]", place)[-1] for place in PLANNED[construct]} or {construct}
    assert {(item.code, item.message) for item in found} <= {
        ("BC301", f"{word}: not yet supported") for word in words
    }
    assert all(item.help.startswith("leave it out; docs/language.md") for item in found)
    assert [(i.span.start.line, i.span.start.column) for i in found if i.span] == places


def test_a_planned_word_is_suggested_but_not_listed() -> None:
    """A misspelt one is recognised; the list of what is possible has only what is built."""
    with pytest.raises(BoundarycError) as caught:
        loads(BASE.replace("kind: attention", "kind: mixr").replace("kind: ffn}", "kind: zzz}"))
    near, far = caught.value.diagnostics
    assert near.help == "did you mean `mixer`?"
    assert "mixer" not in far.help or "mixer" not in PLANNED
