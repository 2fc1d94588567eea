"""vLLM's coordinators, contexts and flags as boundaryc's, by the signatures of vLLM 0.33.0."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.engines import vllm
from boundaryc.engines.vllm import VllmCollective, batch_facts, keep_partial
from boundaryc.runtime import Mesh, SingleCollective
from boundaryc.verify.world import SimulatedGroups
from tests.engines.moved import SIZES, moved
from tests.engines.ranks import on_ranks, plain
from tests.engines.tiny import SAMPLE, Tiny
from tests.engines.vllm_ranks import (
    FACTS,
    Coordinator,
    CpuCommunicator,
    CudaCommunicator,
    Process,
    XpuCommunicator,
)
from tests.verify.subjects import compiled, import_package

PAIR = Mesh((("tp", 2, "attn_tp"),))
COMMUNICATORS = {
    "cuda": CudaCommunicator(),
    "no pynccl": CudaCommunicator(disabled=True),
    "xpu": XpuCommunicator(),
    "cpu": CpuCommunicator(),
}
RUNS = {"cuda", "xpu"}
"""Those whose methods for unequal rows run."""


@pytest.fixture(autouse=True)
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "collective_of", plain)


@pytest.fixture(scope="module")
def package() -> Any:
    return import_package(compiled(SAMPLE)[1], "sample")


@pytest.mark.parametrize("name", COMMUNICATORS)
@pytest.mark.parametrize("sizes", [*SIZES, None])
def test_moves(name: str, sizes: tuple[int, int] | None) -> None:
    """Rows and sums are those of the group, by methods that it has."""
    rows = sizes or (2, 2)

    def program(groups: SimulatedGroups) -> tuple[list[str], set[str]]:
        group = groups.collective(PAIR, PAIR.names)
        coordinator = Coordinator(group, [0, 1], COMMUNICATORS[name])
        wrong = moved(VllmCollective(coordinator), groups.rank, rows, sizes, torch.float64)
        return wrong, set(coordinator.calls)

    for found in on_ranks(2, program)[0]:
        assert found == ([], _expected_calls(rows, name))


def _expected_calls(rows: tuple[int, int], name: str) -> set[str]:
    if not sum(rows):
        return set()  # nothing to move, on any rank
    if rows[0] == rows[1]:
        return {"all_reduce", "all_gather", "reduce_scatter"}
    return {"all_reduce"} | ({"all_gatherv", "reduce_scatterv"} if name in RUNS else set())


def test_which_communicators_move_unequal_rows() -> None:
    """The simulated ones are like vLLM's: the base's methods raise, the CPU has none of its own."""
    uneven = FACTS["uneven"]
    both = ["all_gatherv", "reduce_scatterv"]
    assert uneven["base_device_communicator"]["DeviceCommunicatorBase"] == [
        f"{name}: raises" for name in both
    ]
    assert uneven["cpu_communicator"] == {"CpuCommunicator": []}
    for module, name in (("cuda", "CudaCommunicator"), ("xpu", "XpuCommunicator")):
        found = uneven[f"{module}_communicator"][name]
        assert sorted(found) == [f"{method}: runs" for method in both]


def test_wrong_sizes_are_refused() -> None:
    def program(groups: SimulatedGroups) -> None:
        group = groups.collective(PAIR, PAIR.names)
        ours = VllmCollective(Coordinator(group, [0, 1], CudaCommunicator()))
        with pytest.raises(ValueError, match="do not fit sizes"):
            ours.all_gather(torch.ones(2, 4), (1, 1))
        with pytest.raises(ValueError, match="do not divide evenly"):
            ours.reduce_scatter(torch.ones(3, 4))

    on_ranks(2, program)


@pytest.mark.parametrize(
    ("topology", "rows"),
    [("tp2", [5]), ("tp2_dp2", [4, 0]), ("tp4_dp2", [5, 2]), ("tp4_dp2", [0, 3])],
)
@pytest.mark.parametrize("name", ["cuda", "cpu"])
def test_a_whole_stack(package: Any, topology: str, rows: list[int], name: str) -> None:
    """Every rank's rows are those of the one-rank float64 model, empty ranks included."""
    ranks, dp = int(topology[2]), len(rows)
    tiny, tp = Tiny(), ranks // dp

    def program(groups: SimulatedGroups) -> Tensor:
        sizes = {"dp": dp, "pcp": 1, "tp": tp}
        process = Process(groups, sizes, COMMUNICATORS[name])
        stack = package.load(topology, process.provider())
        group = groups.rank // tp
        batch = stack.batch(**batch_facts(context(rows), attn_dp=dp))
        tokens = tiny.tokens(rows[group], group)
        output = tiny.run(stack, batch, tokens, (groups.rank, ranks), (groups.rank % tp, tp))
        assert process.created == []
        return output

    for rank, output in enumerate(on_ranks(ranks, program)[0]):
        expected = tiny.expected(tiny.tokens(rows[rank // tp], rank // tp))
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


def test_groups_are_found_by_their_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two pipeline stages of the second replica: DP 2 x PCP 2 x TP 2 each."""
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 32)
    sizes = {"dp": 2, "pcp": 2, "tp": 2}
    atoms = (("dp", 2, "attn_dp"), ("pcp", 2, "attn_cp"), ("tp", 2, "attn_tp"))

    def program(groups: SimulatedGroups) -> list[list[int]]:
        process = Process(groups, sizes, CudaCommunicator(), pp=2, stage=1, first=16)
        provider = process.provider()
        assert (provider.rank, provider.size, provider.device) == (groups.rank, 8, "cuda")
        mesh = Mesh(atoms)
        for axes, known in ((("dp",), "dp"), (("pcp",), "pcp"), (("tp",), "tp")):
            found: Any = provider.collective(mesh, axes)
            assert found.coordinator is process.coordinators[known]
        whole: Any = provider.collective(mesh, mesh.names)
        assert whole.coordinator is process.coordinators["ep"]
        assert isinstance(provider.collective(mesh, ()), SingleCollective)
        assert process.created == []
        made: Any = provider.collective(mesh, ("pcp", "tp"))
        assert provider.collective(mesh, ("pcp", "tp")) is made
        (created,) = process.created
        assert len(created) == 8
        assert sorted(rank for group in created for rank in group) == list(range(32))
        assert made.coordinator.ranks in created
        total = made.all_reduce(torch.tensor([float(made.coordinator.rank)]))
        assert float(total) == sum(made.coordinator.ranks)
        return list(made.coordinator.ranks)

    results = on_ranks(8, program)[0]
    assert results == [[20, 21, 22, 23]] * 4 + [[28, 29, 30, 31]] * 4


def test_the_first_coordinator_with_the_ranks_is_taken() -> None:
    """TP, which has custom all-reduces, and not EP, which has the same ranks without DP."""

    def program(groups: SimulatedGroups) -> None:
        process = Process(groups, {"dp": 1, "pcp": 1, "tp": 2}, CudaCommunicator())
        ours: Any = process.provider().collective(PAIR, PAIR.names)
        assert ours.coordinator is process.coordinators["tp"]
        dense = vllm.VllmGroups({"tp": process.coordinators["tp"]})
        assert (dense.rank, dense.size) == (groups.rank, 2)
        with pytest.raises(ValueError, match="the mesh has 4 ranks; vLLM's DP x PCP x TP is 2"):
            dense.collective(Mesh((("tp", 4, "attn_tp"),)), ("tp",))

    on_ranks(2, program)


def context(
    rows: list[int] | None, *, described: int | None = None, ubatches: list[Any] | None = None
) -> Any:
    """A `ForwardContext`: the rows of all DP ranks, or of the only one."""
    metadata = None
    if rows is not None:
        counts = torch.tensor(rows, dtype=torch.int32)
        metadata = SimpleNamespace(num_tokens_across_dp_cpu=counts)
    descriptor = None if described is None else SimpleNamespace(num_tokens=described)
    return SimpleNamespace(
        dp_metadata=metadata, batch_descriptor=descriptor, ubatch_slices=ubatches
    )


def test_facts_of_a_context() -> None:
    stated = {"padding": "unpadded", "mode": "prefill", "sequence_parallel": False}
    assert batch_facts(context([3, 0, 5]), attn_dp=3) == {"rows_per_dp": [3, 0, 5], **stated}
    alone = batch_facts(
        context(None, described=16), attn_dp=1, mode="decode", sequence_parallel=True
    )
    assert alone == {
        "rows_per_dp": [16],
        "padding": "unpadded",
        "mode": "decode",
        "sequence_parallel": True,
    }
    assert all(type(count) is int for count in batch_facts(context([4]), attn_dp=1)["rows_per_dp"])


@pytest.mark.parametrize(
    ("given", "attn_dp", "message"),
    [
        (context(None, described=16), 2, r"tokens of 1 DP rank\(s\) and the topology has 2"),
        (context([3, 4]), 1, r"tokens of 2 DP rank\(s\) and the topology has 1"),
        (context(None), 1, r"tokens of 0 DP rank\(s\)"),
        (context([3, 4], ubatches=[slice(0, 2)]), 2, "in microbatches"),
    ],
)
def test_contexts_that_do_not_say_enough(given: Any, attn_dp: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batch_facts(given, attn_dp=attn_dp)


def test_attributes_of_a_context_are_vllms() -> None:
    """The simulated contexts have no attribute that vLLM's have not."""
    known = {name for found in FACTS["attributes"].values() for name in found}
    made = context([1], described=1)
    assert set(vars(made)) <= known
    assert set(vars(made.dp_metadata)) | set(vars(made.batch_descriptor)) <= known


def test_linears_leave_their_sum() -> None:
    """Whatever they were constructed with; a bias that is handed back is refused."""
    linear = SimpleNamespace(reduce_results=True, skip_bias_add=False, bias=object())
    assert keep_partial(linear) is linear
    assert linear.reduce_results is False
    embedding = SimpleNamespace(reduce_results=True)
    assert keep_partial(embedding).reduce_results is False
    handed = SimpleNamespace(reduce_results=True, skip_bias_add=True, bias=object())
    with pytest.raises(ValueError, match="declare it `additive`"):
        keep_partial(handed)
    assert handed.reduce_results is True
    with pytest.raises(TypeError, match="SimpleNamespace is no module of vLLM's that sums"):
        keep_partial(SimpleNamespace())


@pytest.mark.parametrize(
    ("skips", "dispatches", "sequence_parallel", "message"),
    [
        (True, False, False, None),
        (False, False, False, "reduce_results=False"),
        (False, True, False, "all_to_all: true"),
        (False, False, True, "all_to_all: true"),
    ],
)
def test_moe_runners(
    skips: bool, dispatches: bool, sequence_parallel: bool, message: str | None
) -> None:
    """What `FusedMoEFactory` has settled: the sum left, done, or done inside the dispatch."""
    parallel = SimpleNamespace(
        use_all2all_kernels=dispatches, is_sequence_parallel=sequence_parallel
    )
    config = SimpleNamespace(skip_final_all_reduce=skips, moe_parallel_config=parallel)
    runner = SimpleNamespace(moe_config=config)
    if message is None:
        assert keep_partial(runner) is runner
        return
    with pytest.raises(ValueError, match=message):
        keep_partial(runner)


def test_vllm_has_no_sequence_parallel_pass() -> None:
    """An option of that kind would scatter what a boundary sums; none of 0.33.0 does."""
    options = FACTS["attributes"]["config/compilation.py:PassConfig"]
    assert "fuse_allreduce_rms" in options
    assert not [one for one in options if "sp" in one.split("_") or "sequence" in one]
