"""What the harness must know of an architecture: its sublayers and what binds its boundaries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from boundaryc.topology.contracts import VARIANTS

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded: weights are random

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
"""Sizes that every tiny model shares. Output projections have 64 columns or more, one for each of
64 ranks."""


@dataclass(frozen=True, slots=True)
class Sublayer:
    """What a stage computes with.

    module   takes hidden states [1, rows, width], and returns them or a tuple that begins with them
    output   the linear map inside ``module`` that makes its output, whose input columns are cut
             over ranks; empty for a mixture of experts, whose experts and their columns are
    tail     a mixture of experts has a part that no rank can cut, such as experts that return what
             they are given: its output with all output weights zero
    takes    what its input is multiplied by
    times    what its output is multiplied by
    beside   another mixer of the same stage, whose output is added
    """

    module: nn.Module
    output: str = ""
    tail: bool = False
    takes: float = 1.0
    times: float = 1.0
    beside: Sublayer | None = None

    @property
    def producers(self) -> tuple[Sublayer, ...]:
        """This one and those beside it."""
        return (self, *self.beside.producers) if self.beside else (self,)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A tiny Hugging Face model and how it is taken apart.

    name       of the stack; its file is examples/<name>/stack.yaml
    build      the model, float64 and random
    sublayers  of a layer of it, by the names of their stages
    bindings   what ``bind`` of a layer takes
    leave      what ``stack.norm`` takes behind the batch
    given      what the model's input embeddings take for the ids of a sequence
    extras     what is added to the output of a layer, by name, for tokens that ``given`` is of
    variants   the kinds of batch that its stack can run
    without    editions that its stack cannot have, see `examples.hf.editions`
    multipliers  of embeddings and of logits, which the model applies outside its stack
    """

    name: str
    build: Callable[[], nn.Module]
    sublayers: Callable[[nn.Module, int], Mapping[str, Sublayer]]
    bindings: Callable[[nn.Module, int], Mapping[str, object]]
    leave: Callable[[nn.Module], tuple[object, ...]]
    given: Callable[[nn.Module, Tensor], Tensor] = lambda _, ids: ids
    extras: Callable[[nn.Module, int, Tensor], Mapping[str, Tensor]] = lambda *_: {}
    variants: tuple[str, ...] = VARIANTS
    without: tuple[str, ...] = ()
    multipliers: tuple[float, float] = (1.0, 1.0)


def architecture_names() -> list[str]:
    """The examples that the harness runs."""
    examples = Path(__file__).resolve().parent.parent
    return sorted(found.parent.name for found in examples.glob("*/hf.py"))


def attention_and_mlp(model: Any, index: int) -> dict[str, Sublayer]:
    """The sublayers of a layer of attention and a dense FFN, by their usual names."""
    layer = model.model.layers[index]
    return {
        "attention": Sublayer(layer.self_attn, "o_proj"),
        "mlp": Sublayer(layer.mlp, "down_proj"),
    }


def norms(model: Any, index: int) -> dict[str, object]:
    """The norms in front of them, by their usual names."""
    layer = model.model.layers[index]
    return {"attention": layer.input_layernorm, "mlp": layer.post_attention_layernorm}


def final_norm(model: Any) -> tuple[object, ...]:
    """The norm at the end of the stack, by its usual name."""
    return (model.model.norm,)


def tiny(model_type: str, without: tuple[str, ...] = (), **sizes: Any) -> nn.Module:
    """A random causal language model; ``without`` are the common sizes that its config lacks."""
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    common = {name: size for name, size in SIZES.items() if name not in without}
    config = CONFIG_MAPPING[model_type](**{**common, **sizes})
    config._experts_implementation = "eager"
    make: Any = AutoModelForCausalLM.from_config
    with seeded():
        return spread(make(config, attn_implementation="eager"))


@contextmanager
def seeded() -> Iterator[None]:
    """Within it all ranks, processes of their own, make the same model."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@torch.no_grad()
def spread(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model in float64, with every parameter drawn anew.

    As they are initialised norms are ones and biases zeros: a boundary that left one out, or had it
    twice, would make no difference.
    """
    model = model.double().eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    named: list[tuple[str, Tensor]] = [*model.named_parameters()]
    named += [one for one in model.named_buffers() if one[0].endswith("correction_bias")]
    for name, tensor in named:
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        if tensor.dim() < 2:
            tensor.add_(0.2 * noise)
        elif "embed" in name:
            tensor.copy_(noise)
        else:
            tensor.copy_(noise * tensor.shape[-1] ** -0.5)
    return model
