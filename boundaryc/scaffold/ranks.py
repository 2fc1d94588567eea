"""Topologies as they are written on the command line: `tp8-attn_dp4-ep8`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from boundaryc.language.names import name_problem

_SIZE = re.compile(r"(tp|attn_dp|attn_cp|moe_dp|ep)([1-9][0-9]{0,3})")
_MOE = {"moe_dp": "dp", "ep": "ep", "all_to_all": "all_to_all"}
_DENSE = {"dense_tp1": "1", "dense_attn_tp": "attn_tp"}
_FORM = (
    "tp8, then any of attn_dp4, attn_cp2, dense_tp1, dense_attn_tp, moe_dp2, ep8, all_to_all, "
    "with - between them; another name goes in front, like wide=tp8-attn_dp4"
)


class RanksError(ValueError):
    """A topology on the command line that is none; the message says how one is written."""


def topology_line(text: str) -> str:
    """The entry of `topologies` that a word stands for, with the word's own name.

    Another name may stand before it, with =. Raises RanksError for a word that does not stand for
    one. Whether its sizes fit together is found when the file is loaded.

    >>> topology_line("tp8-attn_dp4-ep8")
    'tp8_attn_dp4_ep8: {tp: 8, attn_dp: 4, moe: {ep: 8}}'
    >>> topology_line("wide=tp8-attn_dp4")
    'wide: {tp: 8, attn_dp: 4}'
    """
    entries: dict[str, str] = {}
    moe: dict[str, str] = {}
    name, given, words = text.rpartition("=")
    if given and name_problem("topology", name) is not None:
        raise RanksError(f"{text}: no topology can be called {name[:40]!r}")
    for word in words.split("-"):
        key, value = _entry(word, text)
        own, said = (moe, _MOE[key]) if key in _MOE else (entries, key)
        if said in own:
            raise RanksError(f"{text} says {key} twice")
        own[said] = value
    if next(iter(entries), None) != "tp":
        raise RanksError(f"{text} does not begin with the number of ranks; write {_FORM}")
    if moe:
        entries["moe"] = _mapping(moe)
    return f"{name or words.replace('-', '_')}: {_mapping(entries)}"


def _entry(word: str, text: str) -> tuple[str, str]:
    if word in _DENSE:
        return "dense_tp", _DENSE[word]
    if word == "all_to_all":
        return word, "true"
    size = _SIZE.fullmatch(word)
    if size is None:
        raise RanksError(f"{text} is not a topology: no `{word[:40]}` is known; write {_FORM}")
    return size[1], size[2]


def _mapping(entries: dict[str, str]) -> str:
    return f"{{{', '.join(f'{key}: {value}' for key, value in entries.items())}}}"


def usual(sparse: bool) -> Sequence[str]:
    """What is compiled for where nothing is asked: eight ranks, with the same and own tokens."""
    return ("tp8-ep8", "tp8-attn_dp4-ep8") if sparse else ("tp8", "tp8-attn_dp4")
