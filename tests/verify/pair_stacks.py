"""A stack in which every kind of stage is followed by every other kind, one stage a layer."""

from __future__ import annotations

KINDS = {
    "A": "attention: {kind: attention}",
    "H": "heads: {kind: attention, reduction: scoped}",
    "M": "mixer: {kind: mixer}",
    "D": "mlp: {kind: ffn}",
    "T": "tail: {kind: ffn, reduction: local_tail}",
    "E": "experts: {kind: ffn, sparse: true}",
}


def every_pair(letters: str) -> str:
    """A word in which every two of ``letters`` follow each other once, two equal ones too.

    >>> every_pair("AB")
    'ABBAA'
    """
    word, left = letters[0], {one: list(letters) for one in letters}
    for one in letters:  # the walk stops where it began, so it goes home last
        left[one].sort(key=lambda other: (other == letters[0], other != one))
    while left[word[-1]]:
        word += left[word[-1]].pop(0)
    return word


PAIRS = "stages:\n" + "".join(f"  {text}\n" for text in KINDS.values())
PAIRS += f"layers:\n  pattern: {every_pair(''.join(KINDS))}\n  stages: {{"
PAIRS += ", ".join(f"{one}: [{text.partition(':')[0]}]" for one, text in KINDS.items()) + "}\n"
