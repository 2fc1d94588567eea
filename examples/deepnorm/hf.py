"""A decoder with residual operations of its own taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

from torch import nn

from examples.deepnorm.model import Decoder
from examples.hf.architecture import SIZES, Architecture, Sublayer, seeded, spread


def build() -> nn.Module:
    """Three layers, with all weights drawn."""
    sizes = (SIZES["vocab_size"], SIZES["hidden_size"], SIZES["intermediate_size"])
    with seeded():
        return spread(Decoder(*sizes, heads=SIZES["num_attention_heads"], layers=3))


def sublayers(model: Any, index: int) -> dict[str, Sublayer]:
    """What the two sublayers compute with, without what they do to the residual."""
    return {
        "attention": Sublayer(model.attentions[index].inner, "o_proj"),
        "mlp": Sublayer(model.mlps[index].inner, "down_proj"),
    }


def bindings(model: Any, index: int) -> dict[str, object]:
    """The parameters of the operations, by the stage's name and their own."""
    stages = {"attention": model.attentions[index], "mlp": model.mlps[index]}
    return {
        f"{stage}_{name}": getattr(sublayer, name)
        for stage, sublayer in stages.items()
        for name in ("norm", "keep", "gain")
    }


ARCHITECTURE = Architecture(
    name="deepnorm",
    build=build,
    sublayers=sublayers,
    bindings=bindings,
    leave=lambda model: (model.norm,),
)
