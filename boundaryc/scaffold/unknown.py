"""What no config says, and a model of an unknown family may have all the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from boundaryc.scaffold.config import Config

Place = Literal["norm", "stages", "layers"]


@dataclass(frozen=True, slots=True)
class Unknown:
    """One question that only the model's code answers.

    near     the key of the stack file before which it is asked
    what     what it is about, in a word or two
    asks     the question; the skeleton has the plainest answer
    write    what to write for another answer
    hints    keys of configs that have to do with it
    """

    near: Place
    what: str
    asks: str
    write: str
    hints: tuple[str, ...] = ()

    def line(self, config: Config) -> str:
        """The question as a comment, with what the config says about it."""
        said = [one for key in self.hints if (one := hint(key, config.values.get(key))) is not None]
        about = f" The config says {', '.join(said)}." if said else ""
        return f"# TODO {self.what}: {self.asks}{about}"


def hint(key: str, value: object) -> str | None:
    """What a config says under a key that may matter; None for what means nothing.

    >>> hint("num_experts", 64), hint("parallel_attn", False), hint("layer_types", ["a", "b"])
    ('num_experts = 64', None, '2 layer_types')
    """
    if isinstance(value, bool):
        return f"{key} = true" if value else None
    if isinstance(value, int | float):
        return f"{key} = {value:g}" if value not in (0, 1) else None
    if isinstance(value, list | str) and value:
        return f"{len(value)} {key}" if isinstance(value, list) else f"{key}"
    return None


UNKNOWN = (
    Unknown(
        "norm",
        "kind of norm",
        "does it subtract the mean, have a bias, multiply by 1 + weight?",
        "`kind: layer`, `bias: true`, `weight_offset: 1`",
        ("norm_type", "layernorm_zero_centered_gamma"),
    ),
    Unknown(
        "stages",
        "sandwich norms",
        "are outputs normalised before they are added?",
        "`update: sandwich`, or `update: post_norm` without a norm in front",
        ("use_post_norm", "sandwich_norm", "apply_residual_connection_post_layernorm"),
    ),
    Unknown(
        "stages",
        "residual multipliers",
        "are outputs, or the residual, multiplied?",
        "`update: {scaled_add: 0.22}`, `transform: {scale: 0.5}`, or an operation of your own",
        ("residual_multiplier", "residual_scale", "scale_depth"),
    ),
    Unknown(
        "stages",
        "parallel blocks",
        "do attention and FFN read one norm?",
        "`branch: {beside: attention, stages: [mlp], merges_sum: allow}`",
        ("parallel_attn", "use_parallel_residual", "parallel_residual", "parallel_block"),
    ),
    Unknown(
        "stages",
        "experts",
        "which layers have some, and does every rank hold shared ones whole?",
        "a stage `{kind: ffn, sparse: true}`, with `reduction: local_tail` for whole shared ones",
        ("num_experts", "num_local_experts", "n_routed_experts", "n_shared_experts"),
    ),
    Unknown(
        "stages",
        "other mixers",
        "do some layers scan tokens, or have one stage only?",
        "`order: token` for a scan, `kind: mixer` in a layer of its own, `layers.pattern`",
        ("layer_types", "layers_block_type", "hybrid_override_pattern", "attn_layer_period"),
    ),
    Unknown(
        "stages",
        "biases",
        "do output projections have biases, which count once in a sum?",
        "nothing if compute adds them on one rank, else `additive: {bias: rank0}`",
        ("attention_bias", "mlp_bias", "use_bias"),
    ),
    Unknown(
        "stages",
        "residual streams",
        "has a token several, or a residual of another form?",
        "`residual: {kind: hyper_connections, streams: 4}`, or operations of your own",
        ("hc_mult",),
    ),
    Unknown(
        "layers",
        "between layers",
        "is anything added there, and are there layers of multi-token prediction?",
        "`extras`, `drafts`",
        ("num_nextn_predict_layers", "num_mtp_layers"),
    ),
)
"""Everything that a boundary depends on and a config does not tell."""


def todos(config: Config) -> Mapping[Place, tuple[str, ...]]:
    """The questions as comments, by the key before which they are asked."""
    near: tuple[Place, ...] = ("norm", "stages", "layers")
    return {
        place: tuple(one.line(config) for one in UNKNOWN if one.near == place) for place in near
    }
