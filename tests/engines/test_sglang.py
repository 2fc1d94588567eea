"""SGLang's coordinators, batches and flags as boundaryc's, by the signatures of SGLang 0.5.23."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.engines import sglang
from boundaryc.engines.sglang import SglangCollective, batch_facts, partial, published
from boundaryc.runtime import Mesh
from boundaryc.verify.world import SimulatedGroups
from tests.engines.moved import SIZES, moved
from tests.engines.ranks import (
    FACTS,
    Coordinator,
    Flags,
    Parallel,
    RowParallel,
    on_ranks,
    plain,
)
from tests.engines.tiny import SAMPLE, Tiny
from tests.verify.subjects import compiled, import_package

PAIR = Mesh((("tp", 2, "attn_tp"),))
CUDA = {"device": "cuda", "pynccl": True}
BARE = {"device": "cuda", "pynccl": None}  # most of SGLang's groups have no PyNccl
CPU = {"device": "cpu", "pynccl": False}


@pytest.fixture(autouse=True)
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang, "collective_of", plain)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)


@pytest.fixture(scope="module")
def package() -> Any:
    return import_package(compiled(SAMPLE)[1], "sample")


@pytest.mark.parametrize("about", [CPU, BARE, CUDA], ids=["cpu", "no pynccl", "pynccl"])
@pytest.mark.parametrize("sizes", [*SIZES, None])
def test_moves(about: dict[str, Any], sizes: tuple[int, int] | None) -> None:
    """Rows and sums are those of the group, by methods that it has."""
    rows = sizes or (2, 2)

    def program(groups: SimulatedGroups) -> tuple[list[str], set[str]]:
        group = groups.collective(PAIR, PAIR.names)
        coordinator = Coordinator(group, [0, 1], **about)
        wrong = moved(SglangCollective(coordinator), groups.rank, rows, sizes, torch.float64)
        return wrong, set(coordinator.calls)

    for found in on_ranks(2, program)[0]:
        assert found == ([], _expected_calls(rows, about))


def _expected_calls(rows: tuple[int, int], about: dict[str, Any]) -> set[str]:
    if not sum(rows):
        return set()  # nothing to move, on any rank
    expected = {"all_reduce"}
    if rows[0] == rows[1]:
        expected |= {"all_gather"} | ({"reduce_scatter_tensor"} if about != CPU else set())
    elif about["pynccl"]:
        expected |= {"all_gatherv", "reduce_scatterv"}
    return expected


def test_wrong_sizes_are_refused() -> None:
    def program(groups: SimulatedGroups) -> None:
        ours = SglangCollective(Coordinator(groups.collective(PAIR, PAIR.names), [0, 1], **CUDA))
        with pytest.raises(ValueError, match="do not fit sizes"):
            ours.all_gather(torch.ones(2, 4), (1, 1))
        with pytest.raises(ValueError, match="do not divide evenly"):
            ours.reduce_scatter(torch.ones(3, 4))

    on_ranks(2, program)


@pytest.mark.parametrize(
    ("topology", "rows"),
    [
        ("tp2", [5]),
        ("tp2_dp2", [3, 1]),
        ("tp2_dp2", [4, 0]),
        ("tp4_dp2", [5, 2]),
        ("tp4_dp2", [0, 3]),
        ("tp4_dp2", [4, 4]),
    ],
)
@pytest.mark.parametrize("about", [CPU, BARE, CUDA], ids=["cpu", "no pynccl", "pynccl"])
def test_a_whole_stack(package: Any, topology: str, rows: list[int], about: dict[str, Any]) -> None:
    """Every rank's rows are those of the one-rank float64 model, empty ranks included."""
    ranks, attn_tp = int(topology[2]), int(topology[2]) // len(rows)
    tiny = Tiny()

    def program(groups: SimulatedGroups) -> Tensor:
        parallel = Parallel(groups, ranks, attn_tp, **about)
        stack = package.load(topology, parallel.provider())
        group = groups.rank // attn_tp
        batch = stack.batch(**batch_facts(_forward_batch(rows, group), attn_dp=len(rows)))
        tokens = tiny.tokens(rows[group], group)
        return tiny.run(
            stack, batch, tokens, (groups.rank, ranks), (groups.rank % attn_tp, attn_tp)
        )

    for rank, output in enumerate(on_ranks(ranks, program)[0]):
        group = rank // attn_tp
        expected = tiny.expected(tiny.tokens(rows[group], group))
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


def test_groups_are_found_by_their_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two pipeline stages: its own groups, and one that SGLang has not."""
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 8)
    mesh = Mesh((("attn_dp", 2, "attn_dp"), ("attn_tp", 2, "attn_tp")))

    def program(groups: SimulatedGroups) -> None:
        parallel = Parallel(groups, 4, 2, first=4)
        provider = parallel.provider()
        assert (provider.rank, provider.size, provider.device) == (groups.rank, 4, "cpu")
        whole, heads = (provider.collective(mesh, axes) for axes in (mesh.names, ("attn_tp",)))
        assert whole.coordinator is parallel.tp_group  # type: ignore[attr-defined]
        assert heads.coordinator is parallel.attn_tp_group  # type: ignore[attr-defined]
        assert provider.collective(mesh, ()).size == 1
        assert parallel.created == []
        across = provider.collective(mesh, ("attn_dp",))
        assert (across.size, across.rank) == (2, groups.rank // 2)
        assert provider.collective(mesh, ("attn_dp",)) is across
        # Every rank of the world makes all groups of the kind, in one order.
        assert parallel.created == [[[0, 2], [1, 3], [4, 6], [5, 7]]]
        with pytest.raises(ValueError, match="the mesh has 2 ranks; SGLang's stage has 4"):
            provider.collective(PAIR, PAIR.names)

    on_ranks(4, program)


def test_a_stage_has_consecutive_ranks() -> None:
    def program(groups: SimulatedGroups) -> None:
        parallel = Parallel(groups, 2, 2, first=1)
        with pytest.raises(ValueError, match=r"consecutive ranks, not \[1, 2\]"):
            parallel.provider()

    on_ranks(2, program)


class Mode:
    """A `ForwardMode`."""

    def __init__(self, *, decode: bool = False, cp: bool = False) -> None:
        self._decode, self._cp = decode, cp

    def is_decode_or_idle(self) -> bool:
        """Whether it is one of these."""
        return self._decode

    def is_context_parallel_extend(self) -> bool:
        """Whether attention CP may cut it."""
        return self._cp


def _forward_batch(rows: list[int], group: int = 0, **other: Any) -> Any:
    """What a `ForwardBatch` says of such a step on a rank of a group."""
    fields = {
        "forward_mode": Mode(decode=not rows[group]),  # a rank without work is idle
        "input_ids": torch.zeros(rows[group]),
        "is_extend_in_batch": True,
        "global_num_tokens_cpu": rows if len(rows) > 1 else None,
        "attn_cp_metadata": None,
    } | other
    (known,) = (
        names for key, names in FACTS["attributes"].items() if key.endswith(":ForwardBatch")
    )
    assert set(fields) == set(known)
    return SimpleNamespace(**fields)


def test_facts_of_a_batch_are_those_of_all_ranks() -> None:
    """An idle rank states what the others do, not its own mode."""
    every = [batch_facts(_forward_batch([3, 0], group), attn_dp=2) for group in (0, 1)]
    assert every[0] == every[1]
    assert every[0]["rows_per_dp"] == [3, 0]
    assert every[0]["mode"] == "prefill"
    decoding = _forward_batch([3, 2], is_extend_in_batch=False)
    assert batch_facts(decoding, attn_dp=2)["mode"] == "decode"


def test_facts_of_a_batch_without_attention_dp() -> None:
    """Its rows are those of the input; whether SGLang gathers anything does not matter."""
    prefill = batch_facts(_forward_batch([5]), attn_dp=1, sequence_parallel=True)
    assert (prefill["rows_per_dp"], prefill["mode"]) == ([5], "prefill")
    assert prefill["sequence_parallel"]
    decode = _forward_batch([5], forward_mode=Mode(decode=True))
    assert batch_facts(decode, attn_dp=1)["mode"] == "decode"


def test_facts_that_are_missing_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tokens of 1 attention DP group\(s\) and the topology"):
        batch_facts(_forward_batch([3, 0], global_num_tokens_cpu=[3]), attn_dp=2)
    with pytest.raises(ValueError, match=r"tokens of 0 attention DP group\(s\)"):
        batch_facts(_forward_batch([3]), attn_dp=2)
    cut = _forward_batch([8], forward_mode=Mode(cp=True), attn_cp_metadata=object())
    with pytest.raises(ValueError, match="cut this batch over attention CP"):
        batch_facts(cut, attn_dp=1)


@pytest.mark.parametrize("rows", [[5], [3, 0], [2, 2]])
@pytest.mark.parametrize("policy", ["auto", "ar", "rs"])
def test_a_linear_that_sums_obeys_the_exit(package: Any, rows: list[int], policy: str) -> None:
    """`published` flags: the sum is done once, by compute or by the boundary."""
    topology, attn_tp = ("tp2_dp2", 1) if len(rows) > 1 else ("tp2", 2)
    tiny, sums = Tiny(), []

    def program(groups: SimulatedGroups) -> Tensor:
        parallel, flags = Parallel(groups, 2, attn_tp), Flags()
        stack = package.load(topology, parallel.provider(), policy=policy)

        def mlp(x: Tensor, weight: Tensor, out: Any) -> Tensor:
            linear = RowParallel(weight, parallel.tp_group, flags)
            sums.append(out.skips_reduction)
            with published(out, flags):
                return linear(x)[0]

        group = groups.rank // attn_tp
        batch = stack.batch(**batch_facts(_forward_batch(rows, group), attn_dp=len(rows)))
        tokens = tiny.tokens(rows[group], group)
        heads = (groups.rank % attn_tp, attn_tp)
        return tiny.run(stack, batch, tokens, (groups.rank, 2), heads, mlp)

    for rank, output in enumerate(on_ranks(2, program)[0]):
        group = rank // attn_tp
        expected = tiny.expected(tiny.tokens(rows[group], group))
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    if policy != "rs":  # what may be scattered depends on the rows there
        assert (policy == "auto") in sums


def test_a_partial_has_the_bias_once() -> None:
    """Whatever the linear was constructed with, its outputs add up to the product and the bias."""
    weight, bias = torch.ones(3, 4), torch.tensor([1.0, 2.0, 3.0])
    first, second = (
        RowParallel(weight, SimpleNamespace(rank_in_group=rank), Flags(), bias=bias)
        for rank in (0, 1)
    )
    x = torch.ones(2, 4)
    assert torch.equal(partial(first, x) + partial(second, x), torch.full((2, 3), 8.0) + bias)
    handed = RowParallel(weight, None, Flags(), bias=bias, skip_bias_add=True)
    with pytest.raises(ValueError, match="hands back its bias"):
        partial(handed, x)
