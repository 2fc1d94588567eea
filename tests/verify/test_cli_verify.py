"""`boundaryc verify` at the command line: what it refuses, what it says, how it ends."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from boundaryc.cli import main
from boundaryc.language import loads
from boundaryc.plan.compose import plan_stack
from boundaryc.verify.cells import Outcome
from boundaryc.verify.matrix import Selection, matrix
from boundaryc.verify.scene import Scene
from tests.cli.process import command

HEAD = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
layers: {count: 1, default: [attention, mlp]}
"""
STACK = f"""{HEAD}stages: {{attention: {{kind: attention}}, mlp: {{kind: ffn}}}}
topologies:
  tp1: {{tp: 1}}
  tp2_dp2: {{tp: 2, attn_dp: 2}}
  tp2_cp2: {{tp: 2, attn_cp: 2}}
  tp2: {{tp: 2}}
variants: [ordinary, context_parallel, input_scattered]
"""
CUSTOM = f"""{HEAD.replace("sample", "custom")}stages:
  attention: {{kind: attention}}
  mlp: {{kind: ffn, update: mine}}
operations:
  mine: {{role: update, call: "own_operations:update", facts: [row_wise]}}
topologies: {{tp1: {{tp: 1}}}}
variants: [ordinary]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A compiled stack and one with an operation of its own, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("stack.yaml").write_text(STACK)
    Path("custom.yaml").write_text(CUSTOM)
    assert main(["compile", "stack.yaml"]) == 0
    yield tmp_path
    sys.modules.pop("own_operations", None)


def verify(*words: str) -> int:
    return main(["verify", "stack.yaml", *words])


def test_rows_skip_the_topologies_that_they_do_not_fit(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify("--rows", "3, 0", "--policy", "auto", "--padding", "unpadded") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if " cells " in line] == ["tp2_dp2"]

    assert verify("--rows", "3,0", "--topology", "tp1", "--topology", "tp2") == 2
    assert "--rows has 2 number(s)" in (error := capsys.readouterr().err)
    assert "tp1 1, tp2 1" in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rows=-1,2"], "--rows takes numbers"),
        (["--rows", "a"], "--rows takes numbers"),
        (["--rows", ""], "--rows takes numbers"),
        (["--rows", "9" * 5000], "--rows takes numbers"),
        (["--rows", "99999999"], "--rows takes at most"),
        (["--rows", "3", "--batches", "even"], "--rows is a batch"),
        (["--seed", "1" + "0" * 40], "--seed"),
        (["--seed", "-1"], "--seed"),
        (["--batches", "evn"], "--batches: unknown name 'evn'"),
        (["--split", "evn"], "--split: unknown name 'evn'"),
        (["--entry", "evn"], "--entry: unknown name 'evn'"),
        (["--size", "evn"], "--size: unknown name 'evn'"),
        (["--topology", "tp1", "--variant", "context_parallel"], "no cell is selected"),
    ],
)
def test_what_it_cannot_run(
    words: list[str], said: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(*words) == 2
    assert said in (error := capsys.readouterr().err)
    assert "bug" not in error


@pytest.mark.parametrize("content", [b"", b"no recording", b"PK\x03\x04", b"\x80\x02."])
def test_recordings_that_torch_cannot_load(
    content: bytes, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.pt").write_bytes(content)
    torch.save([torch.zeros(2, 4)], "good.pt")

    assert verify("--against", "bad.pt", "--observed", "good.pt") == 2
    assert "--against: bad.pt" in capsys.readouterr().err
    assert verify("--against", "good.pt", "--observed", "bad.pt") == 2
    assert "--observed: bad.pt" in capsys.readouterr().err
    assert verify("--against", "good.pt", "--observed", "good.pt", "--tolerance", "nan") == 2
    assert "--tolerance" in capsys.readouterr().err


OPERATIONS = {
    "no module": (None, "cannot be imported: ModuleNotFoundError"),
    "no attribute": ("x = 1\n", "cannot be imported: AttributeError"),
    "not callable": ("update = 3\n", "cannot be called: it is of type int"),
    "a broken module": ("1 / 0\n", "cannot be imported: ZeroDivisionError"),
    "a module that exits": ("raise SystemExit(5)\n", "cannot be imported: SystemExit: 5"),
    "it raises": ("def update(c, r):\n    raise KeyError('k')\n", "failed: KeyError: 'k'"),
    "it exits": ("def update(c, r):\n    raise SystemExit\n", "failed: SystemExit"),
    "no tensor": ("def update(c, r):\n    return None\n", "returned no tensor"),
    "another shape": ("def update(c, r):\n    return c[:, :1]\n", "returned shape"),
}


@pytest.mark.parametrize("what", OPERATIONS)
def test_a_broken_operation_is_named(
    what: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, said = OPERATIONS[what]
    if source is not None:
        Path("own_operations.py").write_text(source)
    assert main(["compile", "custom.yaml"]) == 0

    assert main(["verify", "custom.yaml", "--rows", "3", "--json"]) == 1
    shown = capsys.readouterr()
    assert f"operation `mine` (own_operations:update) {said}" in shown.err
    assert "bug" not in shown.err
    document = json.loads(shown.out[shown.out.index("{") :])
    assert (document["version"], document["kind"]) == (1, "error")


def test_operations_are_found_in_the_current_folder(project: Path) -> None:
    """By the installed script too, which does not look there by itself."""
    Path("own_operations.py").write_text("def update(c, r):\n    return r + c\n")
    script = project / "bin" / "script.py"
    script.parent.mkdir()
    script.write_text("import sys\nfrom boundaryc.cli import main\nsys.exit(main())\n")
    assert main(["compile", "custom.yaml"]) == 0

    done = command(str(script), "verify", "custom.yaml", "--rows", "3", folder=project)

    assert done.returncode == 0, done.stderr
    assert "15 of 15 cells hold" in done.stderr


def test_it_says_that_greenlet_is_missing(project: Path) -> None:
    code = "import sys; sys.modules['greenlet'] = None; from boundaryc.cli import main; "
    words = ["verify", "stack.yaml", "--rows", "3"]

    done = command("-c", f"{code}sys.exit(main({words!r}))", folder=project)

    assert done.returncode == 2
    assert "boundaryc[verify]" in done.stderr


def test_what_is_not_compiled_says_how(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("--out", "other place") == 2
    assert "run: boundaryc compile stack.yaml --out 'other place'" in capsys.readouterr().err


@pytest.mark.parametrize("cut", [False, True])
def test_every_cell_has_options_that_select_it_alone(cut: bool) -> None:
    from boundaryc.cli.verify import _cell_words, _selection

    wide = STACK.replace("hidden_size: 64", "hidden_size: 4096")  # size of batch matters there
    wide = wide.replace("{kind: attention}", "{kind: attention, quantized_sum: int8}")
    wide = wide.replace("count: 1", "count: 4")
    wide += "pipeline: {payload: partial}\noverlap: {two_batch: true}\n" * cut
    plan = plan_stack(loads(wide))
    every = list(matrix(plan, Selection()))
    assert {cell.entry for cell in every} == {"complete", "partial"}
    assert {cell.many for cell in every} == {False, True}
    assert {cell.mode for cell in every} == {"prefill", "decode"}
    assert {cell.split for cell in every} == {"", "zigzag", "interleaved"}
    names = {
        "--topology": "topologies",
        "--variant": "variants",
        "--policy": "policies",
        "--padding": "paddings",
        "--split": "splits",
        "--entry": "entries",
        "--size": "sizes",
        "--mode": "modes",
        "--halves": "halves",
    }
    for cell in (*every[::17], *[cell for cell in every if cell.many][::17]):
        words = _cell_words(cell, can_cut=cut, can_split=cut)
        given = dict(zip(words[::2], words[1::2], strict=True))
        chosen: dict[str, object] = {
            key: (given[name],) if name in given else () for name, key in names.items()
        }
        more = {"batches": (), "rows": given["--rows"], "cut": given.get("--cut")}
        selection = _selection({**chosen, **more})
        assert list(matrix(plan, selection)) == [cell]


def test_a_stack_is_cut_where_it_is_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the named layers, or not at all; what is no place for a cut is refused."""
    text = (project / "stack.yaml").read_text().replace("count: 1", "count: 3")
    (project / "stack.yaml").write_text(text + "pipeline: {payload: complete}\n")
    assert main(["compile", "stack.yaml", "--out", "made"]) == 0
    words = ["--out", "made", "--topology", "tp2_cp2", "--variant", "ordinary", "--policy", "ar"]
    words += ["--padding", "sum_len", "--batches", "even", "--size", "few"]
    capsys.readouterr()

    for cut, cells in (("1,2", 1), ("none", 1), ("2", 1)):
        assert verify(*words, "--cut", cut) == 0
        assert f"{cells} of {cells} cells hold" in capsys.readouterr().err
    assert verify(*words) == 0
    assert "2 of 2 cells hold" in capsys.readouterr().err
    for cut, why in (("0", "0 are not layers before which"), ("x", "--cut takes layers, as in")):
        assert verify(*words, "--cut", cut) == 2
        assert why in capsys.readouterr().err


def test_a_failing_cell_is_rerun_by_the_line_it_shows(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["compile", "stack.yaml", "--out", "made"]) == 0
    monkeypatch.setattr("boundaryc.verify.run.run_cell", _failing)
    words = ["--out", "made", "--topology", "tp2_cp2", "--variant", "context_parallel"]
    words += ["--policy", "auto", "--padding", "sum_len", "--batches", "even"]

    assert verify(*words) == 1
    shown = capsys.readouterr().err
    line = shown.partition("rerun: boundaryc ")[2].splitlines()[0]
    for part in ("--out made", "--split zigzag", "--entry complete", "--size few", "--seed 0"):
        assert part in line

    assert main(shlex.split(line)) == 1
    assert "0 of 1 cells hold" in capsys.readouterr().err


def _failing(scene: Scene, seed: int | None = None) -> Outcome:
    return Outcome(scene.cell, 1.0, 0, 0, "wrong on purpose")
