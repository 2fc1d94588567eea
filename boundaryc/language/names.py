"""What may be called what.

Names from a stack file become Python identifiers, module names and folder names, so the grammar is
narrow and whatever generated code or a file system already uses is taken.
"""

from __future__ import annotations

import difflib
import keyword
import re
import unicodedata
from collections.abc import Iterable

MAX_NAME = 40

_NAME = re.compile(r"[a-z](?:_?[a-z0-9])*\Z")
_CALL = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z", re.ASCII)

# `type` is a soft keyword from Python 3.12 on; a name must not depend on who compiles
_PYTHON = frozenset(word.lower() for word in (*keyword.kwlist, *keyword.softkwlist, "type"))
_DEVICES = frozenset(
    {"aux", "con", "nul", "prn"} | {f"{port}{i}" for port in ("com", "lpt") for i in range(10)}
)
_MODULES = frozenset(
    {
        "boundaryc",
        "hyper",
        "hyper_kernels",
        "import_module",
        "kernels",
        "load",
        "manifest",
        "move_kernels",
        "moves",
        "policies",
        "rowwise",
        "runtime",
        "supports",
        "symmetric",
        "symmetric_kernels",
    }
    | {"topologies", "torch", "triton"}
)

_PARTS = ("hyper_kernels_of_", "kernels_of_")
"""What modules of one kernel begin with, which stand beside the folders of topologies."""

_LOCALS = frozenset(
    {"batch", "contribution", "groups", "hidden", "residual", "rows", "self", "stream"}
)

_HELPERS = frozenset(
    {"add", "add_rms_norm", "add_term", "check_term", "join", "quantize_fp8"}
    | {"add_biased_layer_norm", "add_layer_norm", "biased_layer_norm", "layer_norm"}
    | {"quantize_int8", "quantized_all_reduce", "rms_norm"}
    | {"place_rows", "to_shards", "to_tokens"}
)  # a parameter of that name would hide what its function calls

RESERVED = {
    "stack": _DEVICES | _MODULES,
    "topology": _DEVICES | _MODULES | {"layers"},
    "stage": frozenset(
        {"batch", "bind", "enter", "exit", "final", "finish", "groups", "hidden", "layer"}
        | {"layers", "load", "merge", "norm", "prepare", "rows", "select", "self"}
        | {"stack", "start"}
        | {"stream", "torch"}
    ),
    "operation": frozenset(
        {"add", "hyper_connections", "identity", "norm", "post_norm", "raw", "sandwich"}
        | {"scale", "scaled_add", "learned_head", "hyper_enter", "hyper_head"}
        | {"hyper_mean", "hyper_read", "hyper_update"}
    ),
    "param": _LOCALS | _HELPERS | {"beside", "outputs"},
    "state": _LOCALS | _HELPERS,
    "capture": frozenset(),
    "extra": frozenset(),
    "draft": frozenset(),
    "provider": frozenset(),
    "additive": _LOCALS | _HELPERS | {"output_norm"},
}
"""Names that each kind of thing may not have, beside Python's keywords."""


def name_problem(kind: str, name: str) -> tuple[str, str, str] | None:
    """Why `name` cannot be a `kind`, which is a key of `RESERVED`.

    None if it can; otherwise code, message and help.
    """
    if len(name) > MAX_NAME:
        shown = f"{name[:12]}..."
        help_ = f"names have at most {MAX_NAME} characters"
        return "BC201", f"the {kind} name `{shown}` has {len(name)} characters", help_
    if not name.isascii():
        message = f"the {kind} name `{name}` contains {foreign(name)}"
        return "BC201", message, _plain_help(name)
    if not _NAME.match(name):
        help_ = "use a-z, 0-9 and single underscores, beginning with a letter"
        return "BC201", f"`{name}` cannot be the name of {article(kind)}", help_
    if name in _PYTHON:
        return "BC202", f"`{name}` is a word of Python", f"choose another name, like `{name}_1`"
    if name in RESERVED[kind] or (kind == "topology" and name.startswith(_PARTS)):
        help_ = f"choose another name; `{name}` already means something in this place"
        message = f"`{name}` is reserved and cannot be the name of {article(kind)}"
        return "BC202", message, help_
    if kind == "stage" and "_to_" in name:
        help_ = "leave out `_to_`: it separates producer and consumer in generated names"
        return "BC202", f"`{name}` cannot be the name of a stage", help_
    return None


def foreign(word: str) -> str:
    r"""The first character of `word` outside ASCII, by number and name; empty if there is none.

    >>> foreign("d\u0435mo")
    'U+0435 CYRILLIC SMALL LETTER IE'
    """
    for char in word:
        if not char.isascii():
            return f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()
    return ""


def _plain_help(name: str) -> str:
    """Help for a name outside ASCII: its compatible plain form, if that is a name."""
    plain = unicodedata.normalize("NFKC", name)
    if plain.isascii() and _NAME.match(plain):
        return f"type it as `{plain}`, in plain letters"
    return "use a-z, 0-9 and single underscores, beginning with a letter"


def article(noun: str) -> str:
    """`noun` after "a" or "an"."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def call_problem(call: str) -> str | None:
    """Why `call` is not `package.module:function`; None if it is. Nothing is imported."""
    if not call.isascii():
        return f"`{call[:60]}` contains {foreign(call)}"
    if not _CALL.match(call) or len(call) > 200:
        return f"`{call[:60]}` is not of the form package.module:function"
    for part in re.split(r"[.:]", call):
        if keyword.iskeyword(part) or part.startswith("__"):
            return f"`{part}` in `{call[:60]}` is not an ordinary Python name"
    return None


def suggest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was probably meant to be."""
    close = difflib.get_close_matches(word[:MAX_NAME], sorted(known), n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean(word: str, known: Iterable[str], what: str, planned: Iterable[str] = ()) -> str:
    """Help for an unknown word: the closest known or planned one, or all known ones."""
    options = sorted(known)
    close = suggest(word, [*options, *planned])
    if close:
        why = f" the word contains {foreign(word)}" if not word.isascii() else ""
        return f"did you mean `{close}`?{why}"
    listed = ", ".join(f"`{option}`" for option in options[:12])
    return f"{what}: {listed}" if options else f"{what}: none"
