"""`boundaryc diff`: exactly what changed, in files, folders and git revisions."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from boundaryc.cli import Exit, main
from boundaryc.report.diff import breaks
from boundaryc.report.schemas import result_schema
from tests.language.json_check import problems
from tests.report.example import QWEN3_MOE
from tests.report.seeded import BASE, SEEDED, Seeded


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a user works, at no terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # a run on several processes sets it
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *words: str, code: Exit = Exit.OK) -> Any:
    """What a comparison prints as JSON, which is as published."""
    assert main(["diff", *words, "--json", "--no-code"]) == code
    found = json.loads(capsys.readouterr().out)
    schema = result_schema("diff")
    assert list(problems(found, schema, schema)) == []
    return found


@pytest.mark.parametrize("seeded", SEEDED, ids=lambda one: one.name.replace(" ", "_"))
def test_what_changed(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it and nothing else; only what breaks callers is a finding, where that is asked."""
    Path("old.yaml").write_text(seeded.base, encoding="utf-8")
    Path("new.yaml").write_text(seeded.changed, encoding="utf-8")

    code = main(["diff", "old.yaml", "new.yaml", "--no-code", "--breaking"])

    shown = capsys.readouterr().out
    assert shown == seeded.said
    assert code == (Exit.FINDINGS if "breaks callers: " in shown else Exit.OK)


def test_the_text_of_the_code_comes_last(capsys: pytest.CaptureFixture[str]) -> None:
    """A rename in the modules that have the name, without headers and hashes; counted first."""
    Path("old.yaml").write_text(BASE, encoding="utf-8")
    Path("new.yaml").write_text(BASE.replace("eps: 1.0e-6", "eps: 1.0e-5"), encoding="utf-8")

    assert main(["diff", "old.yaml", "new.yaml"]) == Exit.OK
    meaning, _, code = capsys.readouterr().out.partition("0 changes break callers\n")
    assert "  generated code: " in meaning
    assert code.startswith("\n--- ")
    changed = [line for line in code.splitlines() if line.startswith(("+", "-"))]
    assert len(changed) == 2 * 3 + 8
    assert all("1e-0" in line or "py (" in line for line in changed)


def test_revisions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file or a folder in a revision, a revision of what the other side is, and two of them."""
    models = folder / "models"
    models.mkdir()
    (models / "stack.yaml").write_text(BASE, encoding="utf-8")
    (models / "other.yaml").write_text("a: 1\n", encoding="utf-8")
    Path("aside.yaml").write_text(BASE.replace("tiny", "aside"), encoding="utf-8")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    changed = BASE.replace("  tp2: {tp: 2}\n", "")
    (models / "stack.yaml").write_text(changed, encoding="utf-8")
    git("commit", "-qam", "two")
    before = "HEAD~1:models/stack.yaml"

    for old, new in (
        (before, "models/stack.yaml"),
        ("HEAD~1", "models/stack.yaml"),
        ("HEAD~1:models", "models"),
        ("HEAD~1", str(models)),
        ("HEAD~1", "HEAD"),
        (before, "HEAD"),
    ):
        found = document(capsys, old, new, "--breaking", code=Exit.FINDINGS)
        [stack] = found["stacks"]
        assert [(one["kind"], one["of"], one["name"]) for one in stack["changes"]] == [
            ("removed", "topology", "tp2")
        ]
        whole = ["aside"] if (old, new) == ("HEAD~1", "HEAD") else []
        assert (found["breaking"], found["compared"]) == (1, [*whole, "tiny"])
    assert document(capsys, "HEAD", "models")["stacks"] == []


def git(*words: str) -> None:
    """Runs git as somebody."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], check=True, capture_output=True)


def test_folders_and_drafts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stacks are found by name: new ones, those that are gone, and drafts, each by itself."""
    draft = "drafts:\n  nextn: {layers: {count: 1, default: [attention, mlp]}}\n"
    for name in ("old", "new"):
        (folder / name).mkdir()
    (folder / "old/a.yaml").write_text(BASE + draft, encoding="utf-8")
    (folder / "old/b.yaml").write_text(BASE.replace("tiny", "gone"), encoding="utf-8")
    (folder / "new/c.yaml").write_text(BASE, encoding="utf-8")
    (folder / "new/d.yml").write_text(BASE.replace("tiny", "come"), encoding="utf-8")

    found = document(capsys, "old", "new")

    said = [(each["kind"], each["name"]) for one in found["stacks"] for each in one["changes"]]
    assert said == [("added", "come"), ("removed", "tiny_nextn"), ("removed", "gone")]
    assert found["breaking"] == 2
    (folder / "new/e.yaml").write_text(BASE, encoding="utf-8")
    assert main(["diff", "old", "new"]) == Exit.UNUSABLE
    assert "are both the stack `tiny`" in capsys.readouterr().err


def test_what_is_beside_stacks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other YAML, in whatever encoding, is left alone; a stack may begin with a byte order mark."""
    models = folder / "models"
    models.mkdir()
    (models / "stack.yaml").write_text(f"\ufeff{BASE}", encoding="utf-8")
    (models / "other.yaml").write_bytes("a: ä\n".encode("latin-1"))
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    (models / "stack.yaml").write_text(BASE.replace("1.0e-6", "1.0e-5"), encoding="utf-8")

    for old in ("HEAD", "HEAD:models"):
        [stack] = document(capsys, old, "models")["stacks"]
        assert [one["name"] for one in stack["changes"]] == ["norm.eps"]
    assert main(["diff", "models/none.yaml", "models"]) == Exit.UNUSABLE
    assert "models/none.yaml is no file, folder or git" in capsys.readouterr().err


def test_another_name_of_the_stack(capsys: pytest.CaptureFixture[str]) -> None:
    """One file on either side is the same stack, and its package is gone."""
    Path("old.yaml").write_text(BASE, encoding="utf-8")
    Path("new.yaml").write_text(BASE.replace("tiny", "small"), encoding="utf-8")

    found = document(capsys, "old.yaml", "new.yaml")

    assert found["compared"] == ["small"]
    [stack] = found["stacks"]
    [change] = stack["changes"]
    assert (change["kind"], change["before"], change["after"]) == ("renamed", "tiny", "small")
    assert change["breaks"]
    assert stack["boundaries"] == stack["payloads"] == []


def test_a_slower_link(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else runs anywhere, but the plan for few rows does in larger batches."""
    deep = QWEN3_MOE.replace("variants: [ordinary, sequence_parallel]\n", "")
    slow = deep.replace("moe: {ep: 8}}", "moe: {ep: 8}, link: {latency_us: 40}}")
    Path("old.yaml").write_text(deep, encoding="utf-8")
    Path("new.yaml").write_text(slow, encoding="utf-8")

    [stack] = document(capsys, "old.yaml", "new.yaml")["stacks"]

    assert stack["boundaries"] == []
    assert [(one["name"], one["before"], one["after"]) for one in stack["changes"]] == [
        ("tp8.latency_us", "10.0", "40.0"),
        ("tp8_dp4.latency_us", "10.0", "40.0"),
        ("tp8_dp4.few_rows.ordinary", "976", "3904"),
    ]


def test_what_a_program_reads(capsys: pytest.CaptureFixture[str]) -> None:
    """Steps, collectives, kernels and bytes of a boundary; annotations; only what breaks."""
    seeded = next(one for one in SEEDED if one.name == "a dropped sum")
    Path("old.yaml").write_text(seeded.base, encoding="utf-8")
    Path("new.yaml").write_text(seeded.changed, encoding="utf-8")
    [stack] = document(capsys, "old.yaml", "new.yaml")["stacks"]
    assert stack["boundaries"][1] == {
        "boundary": "attention -> mlp",
        "before": {
            "steps": ["hand over", "placed all_reduce(tp)", "add_rms_norm"],
            "collectives": ["placed all_reduce(tp)"],
            "kernels": ["add_rms_norm"],
        },
        "after": {
            "steps": ["hand over", "all_reduce(attn_tp)", "add_rms_norm"],
            "collectives": ["all_reduce(attn_tp)"],
            "kernels": ["add_rms_norm"],
        },
        "places": [
            {
                "topology": "tp4_dp2",
                "variant": "ordinary",
                "policies": [],
                "when": "",
                "bytes_before": 192.0,
                "bytes_after": 64.0,
            }
        ],
    }
    words = ["diff", "old.yaml", "new.yaml", "--no-code", "--breaking"]
    assert main([*words, "--output-format", "github"]) == Exit.FINDINGS
    shown = capsys.readouterr().out
    assert len(re.findall("^::error file=new.yaml,line=[0-9]+,title=", shown, re.M)) == 4
    assert main([*words, "--quiet"]) == Exit.FINDINGS
    assert all(line.startswith(("tiny: ", "  ")) for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("stack.yaml", "nowhere"), Exit.UNUSABLE, "nowhere is no file, folder or git revision"),
        (("no:where", "stack.yaml"), Exit.UNUSABLE, "no:where is no file, folder or git"),
        (("empty", "stack.yaml"), Exit.UNUSABLE, "empty: there is no stack file in it"),
        (("wrong.yaml", "stack.yaml"), Exit.FINDINGS, "wrong.yaml:1:1"),
    ],
)
def test_what_cannot_be_compared(
    words: tuple[str, ...], code: Exit, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names what there is not, and shows what is wrong in a file."""
    Path("empty").mkdir()
    Path("stack.yaml").write_text(BASE, encoding="utf-8")
    Path("wrong.yaml").write_text("boundaryc: 1\n", encoding="utf-8")

    assert main(["diff", *words]) == code
    assert said in " ".join(capsys.readouterr().err.split())


def test_when_a_key_breaks_callers() -> None:
    """What is below a key counts as the key; what may be used must not go, and may come."""
    assert breaks.changed("topology", "moe.ep", "1", "2")
    assert not breaks.changed("topology", "latency_us", "10.0", "5.0")
    assert breaks.changed("setting", "fusion", "a, b", "b")
    assert not breaks.changed("setting", "fusion", "none", "b")
    assert breaks.changed("setting", "pipeline", "partial", "")
    assert not breaks.changed("setting", "pipeline", "partial", "complete")
    assert breaks.changed("setting", "segments", "true", "false")
    assert breaks.layers((("a",), ("a",)), (("a",),))
    assert not breaks.layers((("a",),), (("a",), ("b",)))


WRONG = {
    "a file that is wrong": BASE.replace("rms", "rsm"),
    "a stack without a plan": (Path(__file__).parent / "impossible.yaml")
    .read_text(encoding="utf-8")
    .replace("impossible", "tiny"),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("of", ["files", "folders"])
def test_what_is_wrong_in_the_old_version(
    text: str, of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with its diagnostics, or is left out on both sides where that is asked for."""
    for side, content in (("old", text), ("new", BASE)):
        Path(side).mkdir()
        Path(side, "stack.yaml").write_text(content, encoding="utf-8")
        other = BASE.replace("tiny", "other")
        if of == "folders":
            Path(side, "other.yaml").write_text(other, encoding="utf-8")
    sides = ["old", "new"] if of == "folders" else ["old/stack.yaml", "new/stack.yaml"]
    assert main(["diff", *sides, "--no-code"]) == Exit.FINDINGS
    capsys.readouterr()

    assert main(["diff", *sides, "--no-code", "--skip-wrong"]) == Exit.OK
    said = capsys.readouterr().out
    assert said.startswith("not compared: old/stack.yaml is no valid stack file: BC")
    compared = "1 stack" if of == "folders" else "0 stacks"
    assert said.endswith(f"{compared} compared: no difference in meaning\n")

    assert main(["diff", *reversed(sides), "--no-code", "--skip-wrong"]) == Exit.FINDINGS
