"""Which stages each layer has, from the words that configs have for it; and that as YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

from boundaryc.language.limits import MAX_LAYERS
from boundaryc.scaffold.answers import Answers

Layers = tuple[tuple[str, ...], ...]
Schedule = Callable[[Answers], Layers]

DENSE, SPARSE = ("attention", "mlp"), ("attention", "experts")

_HYBRID: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"M": ("mamba",), "*": ("attention",), "-": ("mlp",), "E": ("experts",)}
)
_HYBRID_WORDS = {
    "linear_attention": "M",
    "mamba": "M",
    "full_attention": "*",
    "attention": "*",
    "mlp": "-",
    "moe": "E",
}
_MIXERS = {
    "linear_attention": "linear",
    "indexed_attention": "attention",
    "full_attention": "attention",
}
_FFNS = {"dense": "mlp", "sparse": "experts"}
_MOST_RUNS = 6
"""Runs of equal layers that are written one by one; of more there is a pattern."""
_WIDTH = 100


def depth(answers: Answers) -> int:
    """How many layers the model has."""
    return answers.integer("num_hidden_layers", 1, MAX_LAYERS)


def alike(*stages: str) -> Schedule:
    """Every layer has the same stages."""
    return lambda answers: (stages,) * depth(answers)


def by_step(answers: Answers) -> Layers:
    """Experts in every so many layers, but for those that are listed."""
    count = depth(answers)
    step = answers.integer("decoder_sparse_step", 1, MAX_LAYERS, 1)
    dense = set(answers.integers("mlp_only_layers", 0, MAX_LAYERS))
    if not answers.integer("num_experts", 0, 1 << 20, 1):
        dense.update(range(count))
    return tuple(
        SPARSE if layer not in dense and (layer + 1) % step == 0 else DENSE
        for layer in range(count)
    )


def dense_first(answers: Answers) -> Layers:
    """Dense layers first, then experts in every so many."""
    count = depth(answers)
    dense = answers.integer("first_k_dense_replace", 0, MAX_LAYERS, 3)
    every = answers.integer("moe_layer_freq", 1, MAX_LAYERS, 1)
    return tuple(
        SPARSE if layer >= dense and layer % every == 0 else DENSE for layer in range(count)
    )


def by_type(answers: Answers) -> Layers:
    """The mixer and the FFN of each layer by name; three dense layers and every fourth mixer else.

    These are what Transformers takes where a config does not list them.
    """
    count = depth(answers)
    mixers = ["attention" if layer % 4 == 3 else "linear" for layer in range(count)]
    ffns = ["mlp" if layer < 3 else "experts" for layer in range(count)]
    mixers = _named(answers, "layer_types", _MIXERS, mixers)
    ffns = _named(answers, "mlp_layer_types", _FFNS, ffns)
    return tuple(zip(mixers, ffns, strict=True))


def _named(answers: Answers, key: str, names: dict[str, str], default: list[str]) -> list[str]:
    if not answers.has(key):
        return default
    found = [names[word] for word in answers.words(key, names)]
    if found and len(found) != len(default):
        message = f"`{key}` is of {len(found)} layers, and the model has {len(default)}"
        answers.report("BC213", key, message)
    return found if len(found) == len(default) else default


def hybrid(answers: Answers) -> Layers:
    """One stage in each layer, by a pattern of characters or by a list of words."""
    key = "hybrid_override_pattern"
    if answers.has(key):
        pattern = answers.characters(key, _HYBRID)
    else:
        key = answers.first("layers_block_type", "layer_types")
        pattern = "".join(_HYBRID_WORDS[word] for word in answers.words(key, _HYBRID_WORDS))
    if len(pattern) > MAX_LAYERS:
        message = f"`{key}` is of {len(pattern)} layers, and may be of 1 to {MAX_LAYERS}"
        answers.report("BC104", key, message)
        return ()
    return tuple(_HYBRID[kind] for kind in pattern)


def shortcut(answers: Answers) -> Layers:
    """Attention and experts; what lies beside the experts is in the branch."""
    if answers.has("num_layers"):
        return (SPARSE,) * answers.integer("num_layers", 1, MAX_LAYERS)
    # Transformers counts the two attentions of a layer as layers.
    return (SPARSE,) * max(1, answers.integer("num_hidden_layers", 2, 2 * MAX_LAYERS) // 2)


def layer_lines(layers: Layers) -> tuple[str, ...]:
    """`layers` of a stack file, in the shortest of its forms."""
    runs = [(stages, len(list(group))) for stages, group in groupby(layers)]
    if len(runs) > _MOST_RUNS:
        return _pattern(layers)
    counts = {stages: 0 for stages, _ in runs}
    for stages, length in runs:
        counts[stages] += length
    default = max(counts, key=lambda stages: counts[stages])
    at, first = [], 0
    for stages, length in runs:
        if stages != default:
            index = f"{first}" if length == 1 else f"{first}-{first + length - 1}"
            at.append(f"{index}: {_list(stages)}")
        first += length
    line = f"layers: {{count: {len(layers)}, default: {_list(default)}"
    whole = f"{line}, at: {{{', '.join(at)}}}}}" if at else f"{line}}}"
    if len(whole) <= _WIDTH:
        return (whole,)
    head = ("layers:", f"  count: {len(layers)}", f"  default: {_list(default)}", "  at:")
    return (*head, *(f"    {one}" for one in at))


def _pattern(layers: Layers) -> tuple[str, ...]:
    """One character a layer: those that Nemotron-H's configs have, else letters in order."""
    usual = {stages: kind for kind, stages in _HYBRID.items()}
    kinds = list(dict.fromkeys(layers))
    if not all(stages in usual for stages in kinds):
        usual = {stages: chr(ord("A") + at) for at, stages in enumerate(kinds)}
    meanings = [f"{_quoted(usual[stages])}: {_list(stages)}" for stages in kinds]
    return (
        "layers:",
        f'  pattern: "{"".join(usual[stages] for stages in layers)}"',
        f"  stages: {{{', '.join(meanings)}}}",
    )


def _quoted(kind: str) -> str:
    return kind if kind.isalpha() else f'"{kind}"'


def _list(stages: Sequence[str]) -> str:
    return f"[{', '.join(stages)}]"
