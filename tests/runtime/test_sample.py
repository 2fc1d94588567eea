"""A hand-written topology package on four gloo ranks, against one rank without boundaries."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import MappedGroups, Sizes
from tests.gloo.pool import shared_pool
from tests.runtime import sample
from tests.runtime.model import reference
from tests.runtime.ranks import Model

ATTENTION_TO_FFN = ["all_reduce(attn_tp)", "all_gather(attn_dp)"]
AR = [*ATTENTION_TO_FFN, "all_reduce(tp)"] * 4
RS = [*ATTENTION_TO_FFN, "reduce_scatter(attn_dp)", "all_reduce(attn_tp)"] * 4


@pytest.mark.parametrize("policy", sample.POLICIES)
@pytest.mark.parametrize("padding", ["sum_len", "max_len", "unpadded"])
@pytest.mark.parametrize("tokens", [(3, 0), (0, 4), (2, 5), (4, 4), (1, 0), (0, 0)])
def test_forward_equals_one_rank(tokens: tuple[int, int], padding: str, policy: str) -> None:
    """Every rank ends with its group's rows, after the same collectives as the others."""
    results = shared_pool().run("tests.runtime.ranks:forward", policy, tokens, padding, False)

    expected = reference(tokens)
    even = tokens[0] == tokens[1] or padding == "max_len"
    scatters = policy != "ar" and (even or policy != "rs")
    for rank, (output, census, flags) in enumerate(results):
        torch.testing.assert_close(output, expected[rank // 2], rtol=0, atol=1e-11)
        assert census == (RS if scatters else AR)
        assert flags == [(not scatters, scatters)] * 3 + [(False, scatters)]


def test_a_failed_forward_leaves_the_batch_usable() -> None:
    """Compute that raises on every rank: the next forward of the same batch is right."""
    results = shared_pool().run("tests.runtime.ranks:forward", "auto", (2, 5), "sum_len", True)

    expected = reference((2, 5))
    for rank, (output, census, _) in enumerate(results):
        torch.testing.assert_close(output, expected[rank // 2], rtol=0, atol=1e-11)
        assert census == RS


class Group:
    """A group whose members all hold what this rank holds."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of equal tensors."""
        return x * self.size

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """Equal rows, once per member."""
        return torch.cat([x] * self.size)

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """The first rows of the sum of equal tensors."""
        return x[: x.shape[0] // self.size] * self.size


def stack(**options: object) -> sample.tp4_dp2.Stack:
    """The sample's stack on rank 2 of four ranks that are all alike."""
    groups = {"attn_dp": Group(1, 2), "attn_tp": Group(0, 2), "tp": Group(2, 4)}
    return sample.load("tp4_dp2", MappedGroups(2, groups), **options)  # type: ignore[arg-type]


def test_load_lists_what_exists() -> None:
    """An unknown topology or policy is a ValueError that names the known ones."""
    with pytest.raises(ValueError, match=r"unknown topology 'tp8'; known: tp4_dp2"):
        sample.load("tp8", MappedGroups(2, {}))
    with pytest.raises(ValueError, match=r"unknown policy 'fast'; known: ar, auto, rs, rs\+rsv"):
        stack(policy="fast")


def test_layers_are_runs_within_the_range() -> None:
    """A layer outside this rank's range is an IndexError that names the range."""
    whole, part = stack(), stack(layers=range(1, 3))

    assert [type(whole.layer(index)).__name__ for index in range(4)] == [
        "AttentionMlp",
        *["AttentionExperts"] * 3,
    ]
    leaves = [layer.experts._leave for layer in map(whole.layer, (1, 2, 3))]
    assert leaves[0] is leaves[1]
    assert leaves[1] is not leaves[2]
    assert part.layer(2).experts._leave is leaves[1]
    for index in (-1, 4):
        with pytest.raises(IndexError, match=rf"layer {index} is not one of .* 0\.\.3"):
            whole.layer(index)
    for index in (0, 3):
        with pytest.raises(IndexError, match=rf"layer {index} is not one of .* 1\.\.2"):
            part.layer(index)


@pytest.mark.parametrize("layers", [range(0), range(5), range(-1, 2), range(0, 4, 2), [1, 2], 2])
def test_layers_must_be_consecutive_ones_of_the_stack(layers: object) -> None:
    """A range that the stack does not have is refused where the stack is loaded."""
    with pytest.raises(ValueError, match="layers must be consecutive"):
        stack(layers=layers)


def test_bind_takes_exactly_the_stages_of_the_layer() -> None:
    """A missing or a surplus norm is a TypeError that names the layer's class."""
    layer = stack().layer(0)
    with pytest.raises(TypeError, match=r"AttentionMlp.bind.*'mlp'"):
        layer.bind(attention=None)  # type: ignore[call-arg,arg-type]
    with pytest.raises(TypeError, match=r"AttentionMlp.bind.*'experts'"):
        layer.bind(attention=None, mlp=None, experts=None)  # type: ignore[call-arg,arg-type]


@pytest.mark.parametrize("policy", ["ar", "rsv"])
def test_a_forward_is_one_graph(policy: str) -> None:
    """torch.compile traces every boundary without a break, streams and exits included."""
    model = Model(stack(policy=policy), 2)
    batch = model.stack.batch(rows_per_dp=[4, 4], padding="sum_len", mode="decode")

    expected, _ = model.forward(batch)
    traced = torch.compile(lambda: model.forward(batch)[0], backend="eager", fullgraph=True)

    torch.testing.assert_close(traced(), expected, rtol=0, atol=0)
