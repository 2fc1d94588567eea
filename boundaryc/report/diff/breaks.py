"""Why a change breaks the model, the engine or the ranks that use the generated code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PAYLOAD = "ranks that run different versions cannot exchange it"

_RANKS = "the groups and the rows of its ranks are others"
_ADDS = "add_extras takes other arguments"

_CHANGED: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("topology", "tp"): _RANKS,
        ("topology", "attn_dp"): _RANKS,
        ("topology", "attn_cp"): _RANKS,
        ("topology", "attn_tp"): _RANKS,
        ("topology", "dense_tp"): _RANKS,
        ("topology", "moe"): _RANKS,
        ("stage", "kind"): "what its compute takes and returns follows from it",
        ("stage", "sparse"): "its compute runs on other ranks",
        ("stage", "reduction"): "its compute has to end its sum in another way",
        ("stage", "order"): "its compute gets its rows in another order",
        ("stage", "quantize"): "its compute gets its input in another form",
        ("stage", "additive"): "its compute has to add the replicated term in another way",
        ("stage", "post_addition"): "the model adds a tensor before it, or no longer",
        ("stage", "latent_input"): "its compute gets another input",
        ("stage", "gathers_tp_input"): "its compute may get other rows",
        ("stage", "finalize"): "its compute may hand on what it has not finalised, or no longer",
        ("capture", "layers"): "batch.captured gives other tensors",
        ("capture", "where"): "batch.captured gives other tensors",
        ("capture", "rows"): "what is captured lies on other rows",
        ("capture", "travels"): "payloads of cuts have other tensors",
        ("extra", "layers"): "add_extras is called after other layers",
        ("setting", "hidden_size"): "tensors have another width",
        ("setting", "entry"): "the stack's input has to be given in another state",
        ("setting", "residual.streams"): "residuals have another number of streams",
        ("setting", "terminal.norm"): "what ends the stack is another call",
    }
)
"""The keys whose meaning callers depend on, with what is below them."""

_GONE: Mapping[str, str] = MappingProxyType(
    {
        "pipeline": "to_pp and from_pp are gone",
        "segments": "a forward cannot stop between layers",
        "overlap.two_batch": "batches cannot be split",
        "lora": "batches do not say which tokens the rows of an input are",
        "fusion": "engines cannot install what is gone",
    }
)
"""Keys of a stack that callers may use where they say something."""


def changed(of: str, key: str, before: str, after: str) -> str:
    """Why another value of a key breaks callers; empty where it does not."""
    if of == "setting" and key in _GONE:
        return _GONE[key] if _lost(key, before, after) else ""
    while key:
        if (of, key) in _CHANGED:
            return _CHANGED[of, key]
        key = key.rpartition(".")[0]
    return ""


def _lost(key: str, before: str, after: str) -> bool:
    if key == "fusion":
        return bool(set(before.split(", ")) - {"none", *after.split(", ")})
    return after in ("", "false")


def added(of: str) -> str:
    """Why something new breaks callers; empty where it does not."""
    return _ADDS if of == "extra" else ""


def removed(of: str, name: str) -> str:
    """Why it breaks callers that something is gone; empty where it does not."""
    return {
        "stack": "its package is not generated any more",
        "topology": f'load("{name}") fails',
        "variant": "such batches are refused",
        "stage": f"layers have no `{name}`",
        "capture": f'batch.captured("{name}") fails',
        "extra": _ADDS,
        "entry point": "what uses it fails",
    }.get(of, "")


def renamed(before: str, after: str) -> str:
    """Why another name of a stage breaks callers."""
    return f"layers have `{after}` where they had `{before}`"


def layers(before: tuple[tuple[str, ...], ...], after: tuple[tuple[str, ...], ...]) -> str:
    """Why other layers break callers; empty where there are only more of them."""
    for index, (was, now) in enumerate(zip(before, after, strict=False)):
        if was != now:
            return f"layer({index}) has other stages"
    return "layers that a model loads are not there" if len(after) < len(before) else ""
