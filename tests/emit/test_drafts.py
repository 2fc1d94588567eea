"""Drafts: packages of their own, compiled, checked, published and retired with their stack."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import boundaryc
from boundaryc.api import Compiled, plan, sources
from boundaryc.emit import build as building
from boundaryc.emit.freshness import State
from boundaryc.emit.publish import PublishError
from boundaryc.language import BoundarycError
from tests.emit.compiled import DRAFTS, ROOT, family

_HEAD, _, _TAIL = DRAFTS.read_text(encoding="utf-8").partition("topologies:")
_DRAFTS = _TAIL[_TAIL.index("drafts:") :]
SMALL = (
    f"{_HEAD}topologies: {{tp2: {{tp: 2}}, tp2_dp2: {{tp: 2, attn_dp: 2}}}}\n"
    f"variants: [ordinary, sequence_parallel]\n{_DRAFTS}"
)
"""The same stacks on two topologies."""

NAMES = ["target", "target_mtp", "target_nextn"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A published stack with two drafts; returns its source."""
    path = tmp_path / "stack.yaml"
    path.write_text(SMALL, encoding="utf-8")
    boundaryc.compile(path, out=tmp_path / "generated")
    return path


def _edit(source: Path, before: str, after: str) -> None:
    text = source.read_text(encoding="utf-8")
    assert before in text
    source.write_text(text.replace(before, after), encoding="utf-8")


def _compiled(source: Path, **how: bool) -> Compiled:
    return boundaryc.compile(source, out=source.parent / "generated", **how)


def _found(source: Path) -> set[tuple[State, str]]:
    """State and stack of every finding."""
    report = boundaryc.check(source, out=source.parent / "generated")
    return {(finding.state, finding.path.partition("/")[0]) for finding in report.findings}


def test_one_file_makes_several_packages(source: Path) -> None:
    """Each with a manifest of its own, which names the one file."""
    out = source.parent / "generated"
    manifests = {path.parent.name: json.loads(path.read_text()) for path in out.glob("*/*.json")}

    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == NAMES
    assert sorted(manifests) == NAMES
    assert [manifests[name]["stack"] for name in NAMES] == NAMES
    assert {manifest["path"] for manifest in manifests.values()} == {"../stack.yaml"}
    assert len({manifest["source"] for manifest in manifests.values()}) == 3
    assert sources(out) == [out / "../stack.yaml"] or [p.resolve() for p in sources(out)] == [
        source
    ]


def test_nothing_is_rendered_without_need(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifests of all three are enough."""
    monkeypatch.setattr(building, "build", lambda *_: pytest.fail("rendered"))
    report = boundaryc.check(source, out=source.parent / "generated")

    assert report.fresh
    files = [path for path in (source.parent / "generated").rglob("*.*") if path.is_file()]
    assert report.compared == len([path for path in files if path.suffix in (".py", ".json")])


def test_a_change_of_a_draft_is_no_change_of_its_stack(source: Path) -> None:
    _edit(
        source,
        "layers: {count: 2, default: [attention, wide]}",
        "layers: {count: 3, default: [attention, wide]}",
    )

    assert {stack for _, stack in _found(source)} == {"target_mtp"}
    done = {one.stack: one for one in _compiled(source).published}
    assert done["target_mtp"].written
    assert not done["target"].written
    assert not done["target_nextn"].written
    assert _found(source) == set()


def test_a_damaged_draft_is_found(source: Path) -> None:
    out = source.parent / "generated"
    path = out / "target_nextn" / "layers.py"
    path.write_text(path.read_text() + "\n")
    shutil.rmtree(out / "target_mtp")

    assert _found(source) == {(State.EDITED, "target_nextn"), (State.MISSING, "target_mtp")}


def test_a_removed_draft_is_an_orphan_until_it_is_retired(source: Path) -> None:
    """A dry run says so and keeps it."""
    _edit(source, "  nextn: {layers: {count: 1, default: [attention, experts]}}\n", "")
    folder = source.parent / "generated" / "target_nextn"

    assert _found(source) == {(State.ORPHANED, "target_nextn")}
    would = {one.stack: one for one in _compiled(source, dry_run=True).published}
    assert would["target_nextn"].removed
    assert folder.exists()
    _compiled(source)
    assert not folder.exists()
    assert _found(source) == set()


def test_a_draft_does_not_take_over_another_files_stack(source: Path) -> None:
    """Neither does a stack a draft's folder; nothing of the file is published then."""
    other = source.with_name("other.yaml")
    text = source.read_text(encoding="utf-8").partition("\ndrafts:")[0] + "\n"
    other.write_text(text.replace("stack: target", "stack: target_nextn"), encoding="utf-8")
    with pytest.raises(PublishError, match=r"target_nextn was compiled from .*stack\.yaml"):
        _compiled(other)
    with pytest.raises(PublishError, match="are both the stack `target_nextn`"):
        boundaryc.compile(source, other, out=source.parent / "fresh")
    assert not (source.parent / "fresh").exists()

    _compiled(other, replace=True)
    before = (source.parent / "generated/target/layers.py").read_text()
    _edit(source, "count: 3", "count: 4")
    with pytest.raises(PublishError, match=r"target_nextn was compiled from .*other\.yaml"):
        _compiled(source)
    assert (source.parent / "generated/target/layers.py").read_text() == before


def test_what_is_wrong_in_drafts_is_told_once(source: Path) -> None:
    """All drafts are planned; what they inherit is one error."""
    _edit(source, "tp2: {tp: 2}, ", "tp2: {tp: 12, attn_dp: 3, moe: {dp: 2}}, ")
    with pytest.raises(BoundarycError) as caught:
        _compiled(source)

    assert [found.code for found in caught.value.diagnostics] == ["BC402"]


def test_auto_is_a_drafts_own() -> None:
    """Its tables, like all that is its own, follow from what the file says of it."""
    target, mtp, nextn = (built.stack for built in family(DRAFTS))

    assert [stack.policy_auto for stack in (target, mtp, nextn)] == ["rsv", "ar", "rsv"]
    for built in family(DRAFTS):
        text = built.output.files["tp4_dp2/__init__.py"]
        tables = text[text.index("TABLES =") :]
        auto, own = (f'"{name}": ' for name in ("auto", built.stack.policy_auto))
        assert tables.split(auto)[1].split(",")[0] == tables.split(own)[1].split(",")[0]


def test_the_plan_of_a_draft() -> None:
    """By its short name."""
    assert plan(DRAFTS, draft="mtp").stack.name == "target_mtp"
    assert plan(boundaryc.load(DRAFTS).drafts[1]).stack.name == "target_nextn"
    with pytest.raises(ValueError, match="target has no draft 'eagle'; there is mtp, nextn"):
        plan(DRAFTS, draft="eagle")


def test_several_processes_make_the_same(source: Path, tmp_path: Path) -> None:
    """Drafts cross processes as stacks do."""
    other = tmp_path / "other.yaml"
    text = source.read_text(encoding="utf-8")
    other.write_text(text.replace("stack: target", "stack: second"), encoding="utf-8")
    done = boundaryc.compile(source, other, out=tmp_path / "generated", jobs=2)

    assert [one.stack for one in done.published if not one.written] == NAMES


PROGRAM = """
import sys
from generated import target_mtp, target_nextn
for module in (target_mtp, target_nextn):
    print(module.supports("tp2"), module.supports("tp2_dp2", "sequence_parallel"))
print(target_mtp.supports("tp9"))
assert "torch" not in sys.modules
"""


def test_supports_of_a_draft(source: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=source.parent, env={"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    why = "no sequence_parallel batches on tp2_dp2: attn_tp is 1, so there are no token slices"

    assert done.stdout.count(f"None {why}") == 2
    assert "unknown topology 'tp9'" in done.stdout
