"""Publishing: all or nothing, nothing without need, nothing of others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from boundaryc.emit import publish as publishing
from boundaryc.emit.files import Origin, digest, with_header
from boundaryc.emit.output import Output
from boundaryc.emit.publish import PublishError, publish, retire
from tests.emit.compiled import MOE, compiled

ORIGIN = Origin("stack.yaml", "boundaryc compile stack.yaml", "0" * 64)


def output(**modules: str) -> Output:
    """A tiny output: modules by name, with headers and a manifest."""
    files = {f"{name}.py": with_header(ORIGIN, text) for name, text in modules.items()}
    files["plan.json"] = '{"stack": "tiny"}\n'
    hashes = {name: f"sha256:{digest(text)}" for name, text in files.items()}
    document = {"boundaryc": "0", "stack": "tiny", "files": hashes}
    files["manifest.json"] = json.dumps(document)
    return Output("tiny", ORIGIN, files)


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_whole_stack(tmp_path: Path) -> None:
    """What is published is what was compiled, and a second run touches nothing."""
    built = compiled(MOE).output

    first = publish(built, tmp_path)
    assert len(first.written) == len(built.files)
    assert contents(tmp_path / "qwen3_moe") == dict(built.files)
    before = {path: path.stat() for path in tmp_path.rglob("*")}
    second = publish(built, tmp_path)

    assert str(second) == f"qwen3_moe: 0 written, {len(built.files)} unchanged, 0 removed"
    assert {path: path.stat() for path in tmp_path.rglob("*")} == before


def test_unchanged_files_keep_their_time(tmp_path: Path) -> None:
    """Build tools see only what changed."""
    publish(output(a="A = 1\n", b="B = 1\n"), tmp_path)
    os.utime(tmp_path / "tiny/a.py", (1, 1))

    done = publish(output(a="A = 1\n", b="B = 2\n"), tmp_path)

    assert done.written == ("b.py", "manifest.json")
    assert (tmp_path / "tiny/a.py").stat().st_mtime == 1


def test_what_is_not_generated_any_more_goes(tmp_path: Path) -> None:
    """But only what is ours and untouched."""
    publish(output(a="", b="", c=""), tmp_path)
    edited = tmp_path / "tiny/c.py"
    edited.write_text(edited.read_text() + "MINE = 1\n")
    foreign = tmp_path / "tiny/notes/mine.txt"
    foreign.parent.mkdir()
    foreign.write_text("mine")
    (tmp_path / "tiny/link").symlink_to("notes/mine.txt")

    done = publish(output(a=""), tmp_path)

    assert done.removed == ("b.py",)
    assert done.kept == ("c.py",)
    assert edited.read_text().endswith("MINE = 1\n")
    assert foreign.read_text() == "mine"
    assert (tmp_path / "tiny/link").is_symlink()


def test_a_file_with_our_header_that_the_manifest_does_not_know_stays(tmp_path: Path) -> None:
    """A copy that somebody made of our file is theirs."""
    publish(output(a=""), tmp_path)
    copy = tmp_path / "tiny/copy.py"
    copy.write_text((tmp_path / "tiny/a.py").read_text())

    assert publish(output(a="A = 1\n"), tmp_path).kept == ("copy.py",)
    assert copy.exists()


def test_without_a_manifest_only_the_header_tells(tmp_path: Path) -> None:
    """A file that has lost both may be anybody's."""
    publish(output(a="A = 1\n"), tmp_path)
    (tmp_path / "tiny/manifest.json").unlink()
    assert publish(output(a="A = 2\n"), tmp_path).written == ("a.py", "manifest.json")

    (tmp_path / "tiny/manifest.json").unlink()
    (tmp_path / "tiny/a.py").write_text("")
    with pytest.raises(PublishError, match=r"tiny/a.py was not written by boundaryc"):
        publish(output(a="A = 1\n"), tmp_path)


def test_files_of_others_are_not_overwritten(tmp_path: Path) -> None:
    """Nothing at all is written then."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/a.py").write_text("mine = 1\n")

    with pytest.raises(PublishError, match=r"tiny/a.py was not written by boundaryc"):
        publish(output(a="A = 1\n", b=""), tmp_path)

    assert contents(tmp_path) == {"tiny/a.py": "mine = 1\n"}


def test_an_edited_file_is_replaced(tmp_path: Path) -> None:
    """The manifest says that it is ours."""
    publish(output(a="A = 1\n"), tmp_path)
    (tmp_path / "tiny/a.py").write_text("")

    assert publish(output(a="A = 1\n"), tmp_path).written == ("a.py",)


def cut_off(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Ends the process at the ``at``-th rename, before it happens."""
    rename, calls = Path.rename, [0]

    def once(self: Path, target: Path) -> Path:
        calls[0] += 1
        if calls[0] >= at:
            raise SystemExit
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", once)


@pytest.mark.parametrize("at", [1, 2])
def test_a_run_that_is_cut_off_between_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The old tree is whole, at once or after the next run's first step."""
    old, new = output(a="A = 1\n", b=""), output(a="A = 2\n", c="")
    publish(old, tmp_path)
    with monkeypatch.context() as patch:
        cut_off(patch, at)
        with pytest.raises(SystemExit):
            publish(new, tmp_path)
    publishing._Places(tmp_path, "tiny").recover()

    assert contents(tmp_path) == {f"tiny/{name}": text for name, text in old.files.items()}
    assert publish(new, tmp_path).removed == ("b.py",)
    assert contents(tmp_path) == {f"tiny/{name}": text for name, text in new.files.items()}


def test_a_run_that_is_cut_off_after_the_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new tree is whole, and the old one goes with the next run."""
    old, new = output(a="A = 1\n", b=""), output(a="A = 2\n", c="")
    publish(old, tmp_path)

    def stop(self: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(publishing._Places, "_discard", stop)
        with pytest.raises(SystemExit):
            publish(new, tmp_path)

    assert contents(tmp_path / "tiny") == dict(new.files)
    late = tmp_path / ".tiny.boundaryc-old/late.txt"
    late.write_text("written by somebody while we were busy")
    assert publish(new, tmp_path).written == ()
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
    assert (tmp_path / "tiny/late.txt").exists()


def test_no_room_for_the_new_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure while staging leaves the old tree alone."""
    old = output(a="A = 1\n")
    publish(old, tmp_path)
    write: Callable[[Path, bytes], int] = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if self.name == "b.py":
            raise OSError(28, "No space left on device")
        return write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space"):
            publish(output(a="A = 2\n", b=""), tmp_path)

    assert contents(tmp_path / "tiny") == dict(old.files)


def test_a_stack_that_its_source_no_longer_makes(tmp_path: Path) -> None:
    """Everything of ours goes, and with it the folder; edits keep both."""
    publish(output(a="A = 1\n", b=""), tmp_path)
    (tmp_path / "tiny/__pycache__").mkdir()

    assert len(retire(tmp_path, "tiny").removed) == 4
    assert not (tmp_path / "tiny").exists()

    publish(output(a="A = 1\n", b=""), tmp_path)
    (tmp_path / "tiny/b.py").write_text("MINE = 1\n")
    assert retire(tmp_path, "tiny").kept == ("b.py",)
    assert contents(tmp_path) == {"tiny/b.py": "MINE = 1\n"}


def test_a_manifest_cannot_reach_outside(tmp_path: Path) -> None:
    """Names in a manifest are compared with what is in the folder, never followed."""
    publish(output(a=""), tmp_path)
    outside = tmp_path / "outside.py"
    outside.write_text(with_header(ORIGIN, ""))
    manifest = tmp_path / "tiny/manifest.json"
    document = json.loads(manifest.read_text())
    document["files"]["../outside.py"] = "sha256:0"
    manifest.write_text(json.dumps(document))

    publish(replace(output(a="A = 1\n")), tmp_path)

    assert outside.exists()
