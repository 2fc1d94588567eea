"""Publishing: all or nothing, nothing without need, nothing of others."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from boundaryc.emit import publish as publishing
from boundaryc.emit.files import digest, with_header
from boundaryc.emit.manifest import sealed
from boundaryc.emit.publish import PublishError, preview, publish, publish_all, retire
from tests.emit.compiled import MOE, compiled
from tests.emit.tiny import NEW, OLD, ORIGIN, contents, output, tree


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


def test_a_late_file_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written while we are busy is not lost, nor does it replace what we wrote."""
    publish(output(**OLD), tmp_path)
    theirs = tmp_path / "tiny/theirs.txt"
    theirs.write_text("first")
    swap = publishing.exchange

    def late(one: Path, other: Path) -> bool:
        (tmp_path / "tiny/late.txt").write_text("late")
        theirs.unlink()  # as editors save
        theirs.write_text("second")
        return swap(one, other)

    monkeypatch.setattr(publishing, "exchange", late)
    publish(output(**NEW), tmp_path)

    expected = {"tiny/late.txt": "late", "tiny/theirs.txt": "second"}
    assert contents(tmp_path) == tree(output(**NEW)) | expected


def test_several_stacks_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stack is replaced before there was room for all."""
    other = replace(output(**OLD), stack="other")
    publish_all([output(**OLD), other], tmp_path)
    before = contents(tmp_path)

    def full(path: str, mode: str) -> IO[Any]:
        if ".other" in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        return open(path, mode)  # noqa: PTH123 - as it is written there

    monkeypatch.setattr(publishing, "open", full, raising=False)
    with pytest.raises(OSError, match="No space"):
        publish_all([output(**NEW), replace(output(**NEW), stack="other")], tmp_path)

    assert contents(tmp_path) == before


def test_a_link_instead_of_the_stacks_folder(tmp_path: Path) -> None:
    """Nothing is written through it, in whole or in part."""
    publish(output(**OLD), tmp_path / "real")
    out = tmp_path / "out"
    out.mkdir()
    (out / "tiny").symlink_to(tmp_path / "real/tiny")
    assert publish(output(**OLD), out).written == ()

    with pytest.raises(PublishError, match="is a link"):
        publish(output(**NEW), out)

    assert contents(tmp_path / "real") == tree(output(**OLD))


def test_links_inside_and_above(tmp_path: Path) -> None:
    """A linked output folder is as good as any; links of others stay links."""
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "out").symlink_to(real)
    publish(output(**OLD), tmp_path / "out")
    (real / "tiny/folder").symlink_to(tmp_path)
    (real / "tiny/gone").symlink_to("nowhere")

    publish(output(**NEW), tmp_path / "out")

    assert (real / "tiny/folder").readlink() == tmp_path
    assert (real / "tiny/gone").is_symlink()
    assert (tmp_path / "out").is_symlink()
    inside = replace(output(**NEW), files={**output(**NEW).files, "folder/x.py": ""})
    with pytest.raises(PublishError, match="tiny/folder is not a folder"):
        publish(inside, tmp_path / "out")


def test_two_at_once(tmp_path: Path) -> None:
    """The second waits for the first, and the result is one of the two."""
    made = [output(a=f"A = {index}\n", **{f"m{index}": ""}) for index in range(4)]
    publish(made[0], tmp_path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: publish(one, tmp_path), made * 5))

    assert contents(tmp_path) in [tree(one) for one in made]


def test_caches_of_modules_that_changed_go(tmp_path: Path) -> None:
    """Python might take them for the new module's; the others are kept."""
    publish(output(**OLD), tmp_path)
    cache = tmp_path / "tiny/__pycache__"
    cache.mkdir()
    for name in ("a.cpython-311.pyc", "b.cpython-311.pyc"):
        (cache / name).write_bytes(b"")

    publish(output(a="A = 2\n", b=""), tmp_path)

    assert [path.name for path in cache.iterdir()] == ["b.cpython-311.pyc"]


@pytest.mark.parametrize("sealed_", [True, False])
def test_a_manifest_that_somebody_changed(tmp_path: Path, sealed_: bool) -> None:
    """Its word does not suffice to delete a file that carries no header."""
    publish(output(**OLD), tmp_path)
    (tmp_path / "tiny/data.json").write_text("[]\n")
    manifest = tmp_path / "tiny/manifest.json"
    document = json.loads(manifest.read_text())
    document["files"]["data.json"] = f"sha256:{digest('[]' + chr(10))}"
    manifest.write_text(sealed(document) if sealed_ else json.dumps(document))

    done = publish(output(**NEW), tmp_path)

    assert ("data.json" in done.removed) == sealed_
    assert (tmp_path / "tiny/data.json").exists() != sealed_


def test_a_preview_writes_nothing(tmp_path: Path) -> None:
    """And says what would be."""
    publish(output(**OLD), tmp_path)
    before = {path: path.stat() for path in tmp_path.rglob("*")}

    (done,) = preview([output(**NEW)], tmp_path)

    assert {path: path.stat() for path in tmp_path.rglob("*")} == before
    assert done == publish(output(**NEW), tmp_path)
    assert preview([output(**NEW)], tmp_path / "none")[0].written
    assert not (tmp_path / "none").exists()


def test_no_room_for_the_new_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure while staging leaves the old tree alone."""
    old = output(a="A = 1\n")
    publish(old, tmp_path)

    def full(path: str, mode: str) -> IO[Any]:
        if path.endswith("b.py"):
            raise OSError(28, "No space left on device")
        return open(path, mode)  # noqa: PTH123 - as it is written there

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "open", full, raising=False)
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
