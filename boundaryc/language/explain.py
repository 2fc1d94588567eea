"""What each code means, with an example that is refused and one that is not.

The texts are the Markdown files in `explanations/`, one a code: a story, then `## Fails` and
`## Works` with one fenced block each. The examples are parts of the file `stack.yaml` beside them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from boundaryc.language.codes import CODES
from boundaryc.language.names import suggest

_FOLDER = Path(__file__).parent / "explanations"
_FORM = re.compile(
    r"(?P<story>.*?)\n\n## Fails\n\n```(?P<kind>\w+)(?P<whole> whole)?\n(?P<fails>.*?)\n```\n\n"
    r"## Works\n\n```(?P<working>\w+)\n(?P<works>.*?)\n```\n",
    re.S,
)
_KEY = re.compile(r"^(\w+):", re.M)


@dataclass(frozen=True, slots=True)
class Explanation:
    """One code explained.

    `fails` and `works` are examples in the languages `kind` and `working`: "yaml", or "sh" and
    "python" where what is wrong is not in the text of a file. `whole` says that `fails` is a whole
    file; the others are completed by `complete`.
    """

    code: str
    title: str
    story: str
    fails: str
    kind: str
    whole: bool
    works: str
    working: str


def explanation(code: str) -> Explanation:
    """What `code` means, in parts. Raises ValueError, which names close ones, for no such code."""
    if code not in CODES:
        close = suggest(code, CODES)
        hint = f"; did you mean {close}?" if close else ""
        raise ValueError(f"there is no code {code[:20]}{hint}")
    match = _FORM.fullmatch((_FOLDER / f"{code}.md").read_text(encoding="utf-8"))
    if match is None:
        raise AssertionError(f"explanations/{code}.md is not in the form of the others")
    return Explanation(
        code=code,
        title=CODES[code],
        story=match["story"],
        fails=match["fails"] + "\n",
        kind=match["kind"],
        whole=bool(match["whole"]),
        works=match["works"] + "\n",
        working=match["working"],
    )


def explain(code: str) -> str:
    """What `code` means, as text for people, with a final newline.

    Raises ValueError for no such code.
    """
    parts = explanation(code)
    blocks = [
        f"{code}: {parts.title}",
        parts.story,
        f"Fails:\n\n{_indented(parts.fails)}",
        f"Works:\n\n{_indented(parts.works)}",
    ]
    return "\n\n".join(blocks) + "\n"


def base() -> str:
    """The file whose keys the examples replace."""
    return (_FOLDER / "stack.yaml").read_text(encoding="utf-8")


def complete(fragment: str) -> str:
    """A whole file: `fragment`, then what it does not say itself, from `base`.

    The fragment comes first, so that its lines keep their numbers.
    """
    said = set(_KEY.findall(fragment))
    rest = [part for part in re.split(r"^(?=\w)", base(), flags=re.M) if part]
    return fragment + "".join(part for part in rest if part.partition(":")[0] not in said)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
