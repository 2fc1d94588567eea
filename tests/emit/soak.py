"""Compilations that are killed, starved of disk and set against each other, in numbers.

    python -m tests.emit.soak [--seed 0] [--kills 200] [--full-disks 50] [--pairs 50]

After each, the tree is the old one or the new one, whole, and `check` says which. Ends with 1 at
the first that is torn. The tests run a small sample of the same.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import boundaryc
from boundaryc.emit.build import build
from boundaryc.emit.publish import publish

ROOT = Path(__file__).resolve().parents[2]
STACK = ROOT / "examples/qwen3/stack.yaml"
CHANGES = (("{tp: 2}", "{tp: 8}"), ("  tp4_dp4: {tp: 4, attn_dp: 4}\n", ""), ("1.0e-6", "1.0e-5"))
"""What makes the new stack of the old one: most files change, some go, some stay."""

Contents = dict[str, bytes]


class Torn(AssertionError):  # noqa: N818 - says what the tree is
    """The tree is neither the old one nor the new one, or `check` says something else."""


class Field:
    """Two versions of a stack beside one output folder."""

    def __init__(self, root: Path, out: Path | None = None) -> None:
        self.out = out or root / "generated"
        self.sources = root / "old/stack.yaml", root / "new/stack.yaml"
        text = STACK.read_text(encoding="utf-8")
        for source in self.sources:
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text, encoding="utf-8")
            for before, after in CHANGES:
                text = text.replace(before, after)
        self.outputs = [build(source, self.out)[0].output for source in self.sources]
        self.trees = [
            {name: text.encode() for name, text in output.files.items()} for output in self.outputs
        ]
        if len(set(map(str, self.trees))) != 2 or self.trees[0].keys() == self.trees[1].keys():
            raise AssertionError("the two versions are too alike to tell anything")

    def reset(self) -> None:
        """Publishes the old version."""
        publish(self.outputs[0], self.out)

    def start(self, version: int) -> subprocess.Popen[bytes]:
        """A process that compiles one of the versions."""
        words = ("compile", self.sources[version], "--out", self.out, "--replace")
        return start("-m", "boundaryc", *words)

    def judge(self) -> int:
        """Which version is published; raises Torn."""
        found = contents(self.out / self.outputs[0].stack)
        if found not in self.trees:
            raise Torn(f"neither old nor new: {sorted(found)}")
        version = self.trees.index(found)
        for index, source in enumerate(self.sources):
            for full in (False, True):
                fresh = boundaryc.check(source, out=self.out, full=full).fresh
                if fresh != (index == version):
                    raise Torn(f"version {version} is published; check of {index} says {fresh}")
        return version


def start(*words: str | Path) -> subprocess.Popen[bytes]:
    """A process of this interpreter that says nothing."""
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def contents(folder: Path) -> Contents:
    """The bytes of all files below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def killed_compilations(field: Field, count: int, dice: random.Random) -> Counter[str]:
    """Compilations of the new version, killed at any moment between their start and their end."""
    field.reset()
    length = 60.0
    outcomes: Counter[str] = Counter()
    for number in range(count + 1):
        field.reset()
        begin = time.monotonic()
        process = field.start(1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(dice.uniform(0, length) if number else None)
            length = min(length, time.monotonic() - begin)  # it may end sooner another time
        process.send_signal(signal.SIGKILL)
        process.wait()
        if number:
            outcomes[("old", "new")[field.judge()]] += 1
    return outcomes


def killed_publishers(field: Field, count: int, dice: random.Random) -> Counter[str]:
    """Processes that publish the versions in turn, killed when most likely in the midst of it."""
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        field.reset()
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.emit.soak_publisher",
                *map(str, field.sources),
                field.out,
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        time.sleep(dice.uniform(0, 0.1))
        process.kill()
        process.wait()
        process.stdout.close()
        leftovers = [path for path in field.out.iterdir() if path.name.startswith(".")]
        version = ("old", "new")[field.judge()]
        outcomes[f"{version}, {'in the midst' if leftovers else 'between'}"] += 1
    return outcomes


def pairs(field: Field, count: int, dice: random.Random) -> Counter[str]:
    """Both versions compiled at once, started up to a twentieth of a second apart."""
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        order = [0, 1] if dice.random() < 0.5 else [1, 0]
        first = field.start(order[0])
        time.sleep(dice.uniform(0, 0.05))
        codes = [field.start(order[1]).wait(), first.wait()]
        if any(codes):
            raise Torn(f"compilations ended with {codes}")
        outcomes[("old", "new")[field.judge()]] += 1
    return outcomes


def full_disks(root: Path, count: int, dice: random.Random) -> Counter[str]:
    """The new version compiled onto a disk that the old one has left little of; and read-only."""
    outcomes: Counter[str] = Counter()
    disk = root / "disk"
    disk.mkdir()
    field = Field(root, disk / "generated")
    used = sum(-(-len(data) // 4096) * 4096 for data in field.trees[0].values())
    for number in range(count):
        with mounted(disk, int(used * dice.uniform(1.1, 2.6))):
            field.reset()
            if number % 10 == 9:
                remount_read_only(disk)
            code = field.start(1).wait()
            version = field.judge()
            if (code, version) not in ((0, 1), (2, 0)):
                raise Torn(f"exit code {code}, version {version} is published")
            kind = "read-only" if number % 10 == 9 else "full" if code else "room enough"
            outcomes[f"{('old', 'new')[version]}, {kind}"] += 1
    return outcomes


@contextlib.contextmanager
def mounted(folder: Path, size: int) -> Iterator[None]:
    """A file system in memory; OSError where we may not mount any."""
    run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    try:
        yield
    finally:
        run("umount", folder)


def remount_read_only(folder: Path) -> None:
    """Takes the right to write from all, root too."""
    run("mount", "-o", "remount,ro", folder)


def run(*words: str | Path) -> None:
    """Runs a command of the system; OSError with what it says if it fails."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip() or f"{words[0]} failed")


def main() -> int:
    """Runs everything and prints one line for each kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--full-disks", type=int, default=50)
    parser.add_argument("--pairs", type=int, default=50)
    asked = parser.parse_args()
    dice = random.Random(asked.seed)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        field = Field(root / "field")
        for name, soak, count in (
            ("killed compilations", killed_compilations, asked.kills),
            ("killed publishers", killed_publishers, asked.kills),
            ("concurrent pairs", pairs, asked.pairs),
        ):
            show(name, count, soak(field, count, dice))
        try:
            show("full disks", asked.full_disks, full_disks(root, asked.full_disks, dice))
        except OSError as problem:
            show(f"full disks skipped, no tmpfs can be mounted ({problem})", 0, Counter())
    return 0


def show(name: str, count: int, outcomes: Counter[str]) -> None:
    """One line of the result."""
    words = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
    sys.stdout.write(f"{count} {name}: {words or 'none'}; none torn\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
