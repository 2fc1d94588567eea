"""Random edits of the examples' YAML: each ends with a stack or with diagnostics, at once.

`python -m tests.language.fuzz --count 100000 --seed 1` is the long run; the tests run a short one.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from boundaryc.language import FORMATS, BoundarycError, Diagnostic, canonical, loads, render
from boundaryc.language.codes import CODES
from boundaryc.language.lint import lint
from tests.language.hang import SECONDS, no_hang

ROOT = Path(__file__).parents[2]
CONSTRUCTS = ROOT / "tests" / "fixtures" / "language" / "constructs.yaml"
LIMIT = SECONDS
"""Seconds after which a text is said to hang."""

PIECES = (
    *("", " ", "  ", "\n", "\r\n", "\t", ":", ": ", ",", "{", "}", "[", "]", "- ", "? ", "---\n"),
    *(
        "&a ",
        "*a",
        "<<: ",
        "!!str ",
        "!x ",
        "'",
        '"',
        "|\n",
        ">\n",
        "%YAML 1.1\n",
        "#",
        " # x",
        "@",
    ),
    *(
        "0",
        "1",
        "-1",
        "2",
        "3",
        "4096",
        "99999999999999999999",
        "0x10",
        "1.5",
        ".inf",
        ".nan",
        "1e999",
    ),
    *("~", "null", "true", "yes", "tp", "attn_dp", "attn_cp", "moe", "link", "order", "joins_sum"),
    *(
        "context_parallel",
        "mixer",
        "transform",
        "{scale: 0.5}",
        "after",
        "drafts",
        "additive",
        "rank0",
        "input_scattered",
        "branch",
        "class",
        "norm",
        "kernels",
        "a_to_b",
        "__x__",
    ),
    *("\ufeff", "\x00", "\x1b[31m", "\x85", "\u2028", "\u0435", "\uff41", "\u202e", "\ud800"),
    *("\U0001f600", "\u0301", "x" * 50, "x" * 11_000, "[" * 40, "{a: " * 40, "0-2: ", "pattern: A"),
    *("# boundaryc: allow BC601 because x\n", "# boundaryc: allow"),
)

_TOKEN = re.compile(r"[\w.+-]+")

Edit = Callable[[random.Random, str], str]


@dataclass(slots=True)
class Statistics:
    """What a run met: how many texts, how many were stacks, codes by how often, the slowest."""

    count: int = 0
    stacks: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        codes = ", ".join(f"{code} {number}" for code, number in sorted(self.codes.items()))
        return (
            f"{self.count} texts: {self.stacks} stacks, {self.count - self.stacks} refused, "
            f"{len(self.failures)} failures, slowest {self.slowest * 1000:.0f} ms\n{codes}"
        )


def _replace(rng: random.Random, text: str) -> str:
    start = rng.randint(0, len(text))
    end = min(len(text), start + rng.choice((0, 0, 1, 2, 5, 12)))
    return text[:start] + rng.choice(PIECES) + text[end:]


def _character(rng: random.Random, text: str) -> str:
    start = rng.randint(0, len(text))
    return (
        text[:start] + chr(rng.choice((rng.randrange(128), rng.randrange(0x110000)))) + text[start:]
    )


def _lines(rng: random.Random, text: str) -> str:
    """Drop, repeat, swap or indent a line."""
    lines = text.splitlines(keepends=True) or [""]
    here, there = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[here]
        case 1:
            lines.insert(there, lines[here])
        case 2:
            lines[here], lines[there] = lines[there], lines[here]
        case _:
            lines[here] = " " * rng.randint(1, 4) + lines[here]
    return "".join(lines)


def _words(rng: random.Random, text: str) -> str:
    """Put one word of the text, or one that the language knows, in place of another."""
    words = text.split(" ")
    words[rng.randrange(len(words))] = rng.choice((rng.choice(words), rng.choice(PIECES)))
    return " ".join(words)


def _tokens(rng: random.Random, text: str) -> str:
    """Put one word or number of the text, or another, in place of one; the rest still parses."""
    found = list(_TOKEN.finditer(text))
    if not found:
        return text
    old, new = rng.choice(found), rng.choice(found).group()
    if rng.random() < 0.3:
        new = rng.choice(PIECES)
    return text[: old.start()] + new + text[old.end() :]


def _copy(rng: random.Random, text: str) -> str:
    """Repeat a part of the text, up to a few thousand times."""
    start = rng.randint(0, len(text))
    part = text[start : start + rng.randint(1, 30)]
    return text[:start] + part * rng.choice((1, 2, 10, 100, 2000)) + text[start:]


EDITS: tuple[Edit, ...] = (_replace, _character, _lines, _words, _copy, *[_tokens] * 5)


def mutated(rng: random.Random, texts: list[str]) -> str:
    """One of `texts` after one to five random edits."""
    text = rng.choice(texts)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        text = rng.choice(EDITS)(rng, text)
    return text


def examine(text: str) -> tuple[Diagnostic, ...]:
    """Everything that is done with a file before planning. Empty for a stack.

    Raises AssertionError where a diagnostic is not what it should be.
    """
    try:
        stack = loads(text, "stack.yaml")
    except BoundarycError as caught:
        found = caught.diagnostics
        assert found
        assert all(item.span and item.help and item.code in CODES for item in found)
        for name in FORMATS:
            shown = render(found, caught.sources, name)
            assert "\x1b" not in shown
            assert len(shown) < 100_000
        return found
    assert canonical(stack)
    lint(stack, text)
    return ()


def run(count: int, seed: int) -> Statistics:
    """Examine `count` mutated texts, the same ones for the same seed.

    A text fails if anything but BoundarycError is raised, or if it takes longer than `LIMIT`. The
    time that the slowest takes is reported and nothing more: it depends on what else runs.
    """
    rng = random.Random(seed)
    folder = ROOT / "examples"
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*/stack.yaml"))]
    assert texts
    texts.append(CONSTRUCTS.read_text(encoding="utf-8"))
    stats = Statistics()
    for number in range(count):
        text = mutated(rng, texts)
        begin = time.perf_counter()
        try:
            with no_hang(LIMIT):
                found = examine(text)
        except Exception as problem:  # whatever it is, it is a failure
            found = ()
            stats.failures.append(f"text {number}: {problem!r}\n{text[:2000]!r}")
        else:
            stats.stacks += not found
        stats.slowest = max(stats.slowest, time.perf_counter() - begin)
        stats.count += 1
        stats.codes.update({item.code for item in found})
    return stats


def main() -> int:
    """The long run: prints statistics and the first failures; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    stats = run(options.count, options.seed)
    failures = "\n".join(stats.failures[:10])
    sys.stdout.write(f"seed {options.seed}, {stats}\n{failures}\n")
    return bool(stats.failures)


if __name__ == "__main__":
    sys.exit(main())
