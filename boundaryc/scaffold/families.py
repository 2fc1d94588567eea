"""What models of each known family have between their sublayers, whatever their sizes.

A family is one record here, with how its config says what differs from model to model, and one
template, `templates/init/<name>.yaml.jinja`, with everything that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from boundaryc.language.norm_shape import SMALLEST
from boundaryc.scaffold import schedule
from boundaryc.scaffold.answers import Answers
from boundaryc.scaffold.schedule import Layers, Schedule

Facts = Mapping[str, str | bool]
"""What a template is given besides sizes; texts are YAML."""

SHARDED = ("ordinary", "context_parallel", "sequence_parallel")
"""Batch variants that stacks have as far as a topology gives them a meaning."""

_FACTOR = (1e-9, 1e6)
"""What a stack file allows a factor to be, but for zero."""
_LEAST, _MOST = SMALLEST, 0.999
"""What an eps may be."""


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of model.

    name      of its stacks, and of the template
    layers    the stages of each layer
    eps       the key of the norm's eps, and what Transformers takes without it
    facts     what else the template is given
    variants  the batch variants that its stacks can have
    biases    whether the config's words for biases are of output projections too
    drafts    whether the template writes layers of multi-token prediction
    """

    name: str
    layers: Schedule
    eps: tuple[str, float] = ("rms_norm_eps", 1e-6)
    facts: Callable[[Answers, Layers], Facts] = lambda answers, layers: {}
    variants: tuple[str, ...] = SHARDED
    biases: bool = True
    drafts: bool = False


def read_eps(answers: Answers, key: str, default: float) -> float:
    """The eps of the norms."""
    return answers.number(key, _LEAST, _MOST, default)


def number(value: float) -> str:
    """A number as YAML of any version reads it.

    >>> number(1e-06), number(0.22), number(1.5625e-07), number(1.0)
    ('1.0e-6', '0.22', '1.5625e-7', '1.0')
    """
    mantissa, _, exponent = repr(float(value)).partition("e")
    if not exponent:
        return mantissa
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    sign = "-" if int(exponent) < 0 else "+"
    return f"{mantissa}e{sign}{abs(int(exponent))}"


def _stages(answers: Answers, layers: Layers) -> Facts:
    """Which of the stages there are that only some models of a family have."""
    used = {stage for layer in layers for stage in layer}
    return {stage: stage in used for stage in ("attention", "experts", "linear", "mamba", "mlp")}


def _granite(answers: Answers, layers: Layers) -> Facts:
    factor = answers.number("residual_multiplier", *_FACTOR, 1.0)
    return {"factor": number(factor) if factor != 1 else False}


def _falcon_h1(answers: Answers, layers: Layers) -> Facts:
    factors = answers.numbers("mlp_multipliers", 2, *_FACTOR) or (1.0, 1.0)
    return {"factor": number(factors[1]) if factors[1] != 1 else False}


def _deepseek_v3(answers: Answers, layers: Layers) -> Facts:
    """The query's input is a latent only where it has a rank; a draft where layers are counted."""
    key = answers.first("num_nextn_predict_layers", "num_mtp_layers")
    stages = _stages(answers, layers)
    return {
        **stages,
        "latent": answers.has("q_lora_rank"),
        "draft": bool(stages["experts"]) and answers.integer(key, 0, 64, 0) > 0,
    }


def _longcat_flash(answers: Answers, layers: Layers) -> Facts:
    """Whether some experts return what they are given."""
    if answers.has("zero_expert_type"):
        answers.word("zero_expert_type", ("identity",))
    return {"tail": answers.integer("zero_expert_num", 0, 1 << 20, 0) > 0}


def _glm5_next(answers: Answers, layers: Layers) -> Facts:
    return {
        **_stages(answers, layers),
        "streams": str(answers.integer("hc_mult", 2, 64, 4)),
        "iterations": str(answers.integer("hc_sinkhorn_iters", 1, 1000, 20)),
        "eps": number(answers.number("hc_eps", _LEAST, _MOST, 1e-6)),
    }


def _qwen3_vl_text(answers: Answers, layers: Layers) -> Facts:
    """After which layers something is added: as many as the vision model gives of its own."""
    vision = answers.config.whole.get("vision_config")
    indexes = vision.get("deepstack_visual_indexes") if isinstance(vision, dict) else None
    if not isinstance(indexes, list):
        last, source = 2, " # the config has no deepstack_visual_indexes: this is Transformers' 3"
    else:
        last, source = len(indexes) - 1, " # vision_config.deepstack_visual_indexes"
    last = min(last, len(layers) - 1)
    where = f'"0-{last}"' if last > 0 else "0"
    return {"deepstack": where if last >= 0 else False, "deepstack_from": source}


_DENSE = schedule.alike(*schedule.DENSE)
_QWEN3_VL = Family("qwen3_vl_text", _DENSE, facts=_qwen3_vl_text)
_GEMMA3 = Family("gemma3", _DENSE)
_GLM5_NEXT = Family("glm5_next", schedule.by_type, ("rms_norm_eps", 1e-5), _glm5_next)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "cohere2": Family(
            "cohere2", schedule.alike("attention"), ("layer_norm_eps", 1e-5), variants=("ordinary",)
        ),
        "deepseek_v3": Family(
            "deepseek_v3",
            schedule.dense_first,
            facts=_deepseek_v3,
            variants=(*SHARDED, "input_scattered"),
            drafts=True,
        ),
        "falcon_h1": Family(
            "falcon_h1", schedule.alike("mixer", "mlp"), ("rms_norm_eps", 1e-5), _falcon_h1
        ),
        "gemma3": _GEMMA3,
        "gemma3_text": _GEMMA3,
        "glm4": Family("glm4", _DENSE, ("rms_norm_eps", 1.5625e-7), biases=False),
        "glm5_next": _GLM5_NEXT,
        "glm5_next_text": _GLM5_NEXT,
        "granite": Family("granite", _DENSE, facts=_granite),
        "llama": Family("llama", _DENSE),
        "longcat_flash": Family(
            "longcat_flash",
            schedule.shortcut,
            ("rms_norm_eps", 1e-5),
            _longcat_flash,
            variants=("ordinary",),
        ),
        "mixtral": Family("mixtral", schedule.alike(*schedule.SPARSE), ("rms_norm_eps", 1e-5)),
        "nemotron_h": Family(
            "nemotron_h",
            schedule.hybrid,
            ("layer_norm_epsilon", 1e-5),
            _stages,
            variants=("ordinary",),
        ),
        "olmo2": Family("olmo2", _DENSE, ("rms_norm_eps", 1e-5)),
        "qwen3": Family("qwen3", _DENSE),
        "qwen3_moe": Family("qwen3_moe", schedule.by_step, facts=_stages),
        "qwen3_vl": _QWEN3_VL,
        "qwen3_vl_text": _QWEN3_VL,
        "starcoder2": Family("starcoder2", _DENSE, ("norm_epsilon", 1e-5)),
    }
)
"""The known families by the `model_type` of their configs."""
