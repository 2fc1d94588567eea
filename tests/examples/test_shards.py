"""The parts that ranks compute add up to what one rank computes."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import ExitDecision, FfnBoundary
from examples.common.attention import Attention, KVCache, tokens
from examples.common.config import Config
from examples.common.decoder import Mlp
from examples.common.parallel import Parallel, Part, RowParallelLinear, Weights
from examples.qwen3_moe.experts import Exchange, Experts
from examples.reference import Reference, reference
from tests.runtime import doubling
from tests.runtime.test_mixers import SCATTERED

WIDTH = 64


@pytest.fixture(scope="module")
def model() -> Reference:
    """A mixture of experts with a dense first layer."""
    return reference(width=WIDTH, layers=2, dense=[0], sparse=True, lengths=[6, 4], seed=0)


def place(
    *,
    rank: int = 0,
    tp: int = 1,
    attn_tp: int = 1,
    dense_tp: int = 1,
    moe: tuple[int, int] = (1, 1),
    all_to_all: bool = False,
) -> Parallel:
    """A rank's place; `moe` is (expert parallel, tensor parallel)."""
    return Parallel(rank, tp, attn_tp, dense_tp, *moe, all_to_all)


def hidden(rows: int) -> Tensor:
    """Random input rows."""
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(rows))


def close(actual: Tensor, expected: Tensor) -> None:
    """Float32 sums in another order."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_attention_heads_add_up(model: Reference, ranks: int) -> None:
    """Over prefill and decode, with fewer KV heads than ranks too, and one bias in the sum."""

    def run(parallel: Parallel) -> Tensor:
        weights = Weights(model.weights, "model.layers.0.self_attn.")
        attention = Attention(0, model.config, parallel, weights)
        cache, outputs = KVCache(), []
        for lengths in ((3, 2), (1, 1)):
            new = tokens(model.config, cache, [(i, [0] * count) for i, count in enumerate(lengths)])
            outputs.append(attention(hidden(sum(lengths)), new, cache))
        return torch.cat(outputs)

    parts = [run(place(rank=rank, tp=ranks, attn_tp=ranks)) for rank in range(ranks)]

    close(torch.stack(parts).sum(0), run(place()))


def test_attention_never_sees_pad_rows(model: Reference) -> None:
    """Whatever they hold, they come out as zeros; no rows at all come out as none."""
    weights = Weights(model.weights, "model.layers.0.self_attn.")
    attention = Attention(0, model.config, place(), weights)
    new = tokens(model.config, KVCache(), [(0, [0] * 3)])
    padded = torch.cat((hidden(3), torch.full((2, WIDTH), torch.nan)))
    nothing = tokens(model.config, KVCache(), [])

    output = attention(padded, new, KVCache())

    close(output[:3], attention(hidden(3), new, KVCache()))
    assert output[3:].eq(0).all()
    assert attention(hidden(0), nothing, KVCache()).shape == (0, WIDTH)


@pytest.mark.parametrize("ranks", [2, 4])
def test_dense_columns_add_up(model: Reference, ranks: int) -> None:
    """Over the innermost ranks that share the FFN."""

    def run(parallel: Parallel) -> Tensor:
        output = Mlp(parallel, Weights(model.weights, "model.layers.0.mlp."))(hidden(5))
        assert isinstance(output, Tensor)
        return output

    parts = [run(place(rank=ranks + rank, tp=8, dense_tp=ranks)) for rank in range(ranks)]

    close(torch.stack(parts).sum(0), run(place()))


@pytest.mark.parametrize("kind", ["product", "experts"])
@pytest.mark.parametrize("decision", [doubling.SUMMED, doubling.OWED, SCATTERED])
def test_a_product_obeys_its_exit(model: Reference, decision: ExitDecision, kind: str) -> None:
    """It sums, here doubles, only where the exit leaves the sum to compute."""
    case = doubling.Case()
    out = FfnBoundary((doubling.planned(doubling.after_sum),), (decision,)).exit(case.batch)
    layer = RowParallelLinear(torch.eye(WIDTH)) if kind == "product" else experts(model, place())
    with out:
        output = layer(hidden(3), out)

    sums = not (out.fuse_mlp_allreduce or out.mlp_reduce_scatter)
    assert case.log == ["sum"] * sums
    close(output, layer(hidden(3)) * (2 if sums else 1))


def experts(model: Reference, parallel: Parallel, exchange: Threads | None = None) -> Experts:
    """A rank's experts of the second layer."""
    weights = Weights(model.weights, "model.layers.1.mlp.")
    swap = exchange.of(parallel.rank) if exchange else None
    return Experts(model.config, parallel, weights, swap)


@pytest.mark.parametrize("moe", [(4, 1), (2, 2), (1, 4), (2, 1)])
def test_experts_add_up(model: Reference, moe: tuple[int, int]) -> None:
    """Within one replica of the experts, whichever it is."""
    size = moe[0] * moe[1]
    replica = range(4 - size, 4)

    parts = [experts(model, place(rank=rank, tp=4, moe=moe))(hidden(7)) for rank in replica]

    close(torch.stack(parts).sum(0), experts(model, place())(hidden(7)))


class Threads:
    """Ranks as threads that swap rows through shared memory."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks, timeout=60)
        self.sent: list[list[Tensor]] = [[] for _ in range(ranks)]

    def of(self, rank: int) -> Exchange:
        """The exchange of one rank."""

        def exchange(rows: Tensor, send: list[int], receive: list[int]) -> Tensor:
            assert len(rows) == sum(send)
            self.sent[rank] = list(rows.split(send))
            self.barrier.wait()
            received = [parts[rank] for parts in self.sent]
            self.barrier.wait()
            assert [len(part) for part in received] == receive
            return torch.cat(received)

        return exchange


@pytest.mark.parametrize("moe", [(4, 1), (2, 2), (2, 1), (1, 2)])
def test_each_rank_routes_its_own_rows(model: Reference, moe: tuple[int, int]) -> None:
    """All-to-all completes each rank's rows, uneven ones and none too."""
    rows = (3, 0, 5, 1)
    exchange = Threads(len(rows))
    outputs: dict[int, Tensor] = {}

    def run(rank: int) -> None:
        own = experts(model, place(rank=rank, tp=4, moe=moe, all_to_all=True), exchange)
        outputs[rank] = own(hidden(rows[rank]))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(rows))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for rank, count in enumerate(rows):
        close(outputs[rank], experts(model, place())(hidden(count)))


def test_what_cannot_be_cut_evenly_is_refused() -> None:
    """By name and number."""
    config = Config(1, heads=8, kv_heads=3, head_dim=16, eps=1e-6, rope_theta=1e4)

    with pytest.raises(ValueError, match="6 experts cannot be cut into 4 equal parts"):
        Part(0, 4).cut(6, "experts")
    with pytest.raises(ValueError, match="3 KV heads cannot be shared evenly by 4 ranks"):
        Attention(0, config, place(tp=4, attn_tp=4), Weights({}))
