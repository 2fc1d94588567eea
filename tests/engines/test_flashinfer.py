"""The provider of FlashInfer's fused sums, with SGLang's wrapper as its signature says it is.

The kernel needs a GPU: in its place is torch, by the kernel's own order of roundings.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.engines import sglang
from boundaryc.engines.flashinfer import FlashInferSums
from boundaryc.engines.sglang import SglangCollective
from boundaryc.verify.world import SimulatedGroups
from tests.engines.ranks import Parallel, bound, on_ranks, plain
from tests.engines.tiny import EPS, Tiny
from tests.verify.subjects import compiled, import_package

STACK = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6, accumulate: rounded}
stages: {attention: {kind: attention}, mlp: {kind: ffn}}
layers: {count: 2, default: [attention, mlp]}
topologies: {tp2: {tp: 2}, tp4_dp2: {tp: 4, attn_dp: 2, dense_tp: attn_tp}}
fusion: {providers: [flashinfer]}
"""
FUSED = ["attention", "experts", "attention"]
"""Whose sum each fused boundary of two layers ends; that of the last FFN is compute's."""


@pytest.fixture(autouse=True)
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang, "collective_of", plain)


@pytest.fixture(scope="module")
def package() -> Any:
    return import_package(compiled(STACK)[1], "sample")


class Kernel:
    """SGLang's wrapper on one rank: the sum in float32, rounded at every step as FlashInfer's is.

    ``declines`` returns (None, None), as the wrapper does without a workspace.
    """

    def __init__(self, parallel: Parallel, *, declines: bool = False) -> None:
        self.group = SglangCollective(parallel.attn_tp_group)
        self.declines, self.calls = declines, []

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor | None, Tensor | None]:
        """As `flashinfer_allreduce_residual_rmsnorm`."""
        given = bound("flashinfer_allreduce_residual_rmsnorm", *args, **kwargs)
        x, residual, weight = (given[name] for name in ("input_tensor", "residual", "weight"))
        assert x.shape[0] <= given["max_token_num"]
        assert all(one.is_contiguous() for one in (x, residual, weight))
        self.calls.append("attention" if given["use_attn_tp_group"] else "experts")
        if self.declines:
            return None, None
        total = self.group.all_reduce(x.float()).to(x.dtype)
        updated = (total.float() + residual.float()).to(x.dtype)
        wide = updated.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + given["eps"])
        return (wide * scale * weight.float()).to(x.dtype), updated


def _forward(
    package: Any,
    rows: list[int],
    *,
    dtype: torch.dtype = torch.bfloat16,
    attached: bool = True,
    declines: bool = False,
    device: str = "cpu",
    max_rows: int = 2048,
    elsewhere: bool = False,
) -> tuple[list[Tensor], list[list[str]], Tiny]:
    """Outputs of all ranks, two for each DP group, and what the kernel was called for."""
    tiny, ranks = Tiny(dtype), 2 * len(rows)

    def program(groups: SimulatedGroups) -> tuple[Tensor, list[str]]:
        parallel = Parallel(groups, ranks, 2)
        stack = package.load("tp2" if ranks == 2 else "tp4_dp2", parallel.provider())
        kernel = Kernel(parallel, declines=declines)
        other = Parallel(groups, ranks, 2).attn_tp_group
        own = other if elsewhere else parallel.attn_tp_group
        if attached:
            sums = FlashInferSums(own, own, kernel=kernel, device=device, max_rows=max_rows)
            stack.attach("flashinfer", sums)
        batch = stack.batch(rows_per_dp=rows, padding="unpadded", mode="prefill")
        group, part = groups.rank // 2, (groups.rank % 2, 2)
        tokens = tiny.tokens(rows[group], group)
        return tiny.run(stack, batch, tokens, part, part), kernel.calls

    done, _ = on_ranks(ranks, program)
    return [output for output, _ in done], [calls for _, calls in done], tiny


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fused_sums_are_the_unfused_ones(package: Any, dtype: torch.dtype) -> None:
    """Bit for bit: the boundary rounds where the kernel does."""
    fused, calls, tiny = _forward(package, [5], dtype=dtype)
    assert calls == [FUSED] * 2
    without, none, _ = _forward(package, [5], dtype=dtype, attached=False)
    assert none == [[], []]
    for one, other in zip(fused, without, strict=True):
        assert torch.equal(one, other)
        expected = tiny.expected(tiny.tokens(5, 0))
        torch.testing.assert_close(one.double(), expected, rtol=0, atol=0.1)


@pytest.mark.parametrize(
    ("rows", "about", "called"),
    [
        ([5], {"declines": True}, FUSED),  # the wrapper has no workspace: asked, and passed over
        ([5], {"dtype": torch.float32}, []),
        ([5], {"device": "cuda"}, []),  # tensors are on the CPU
        ([5], {"max_rows": 4}, []),
        ([5], {"elsewhere": True}, []),  # the workspace is of another group
        ([0], {}, []),
        ([3, 2], {}, []),  # attention DP
    ],
)
def test_what_is_declined_is_done_without(
    package: Any, rows: list[int], about: dict[str, Any], called: list[str]
) -> None:
    outputs, calls, _ = _forward(package, rows, **about)
    assert calls == [called] * 2 * len(rows)
    dtype = about.get("dtype", torch.bfloat16)
    without, _, _ = _forward(package, rows, dtype=dtype, attached=False)
    assert all(torch.equal(one, other) for one, other in zip(outputs, without, strict=True))


@pytest.mark.parametrize(
    "norm",
    [
        "{kind: rms, eps: 1.0e-6}",  # the sum goes into the norm unrounded
        "{kind: rms, eps: 1.0e-6, accumulate: rounded, weight_offset: 1}",
    ],
)
def test_other_norms_are_not_its_own(norm: str) -> None:
    text = STACK.replace("{kind: rms, eps: 1.0e-6, accumulate: rounded}", norm)
    package = import_package(compiled(text)[1], "sample")
    _, calls, _ = _forward(package, [5])
    assert calls == [[], []]


def test_what_exits_may_leave(package: Any) -> None:
    """A sum that the kernel takes; never a finalize, which in SGLang has the sum in it."""

    def program(groups: SimulatedGroups) -> None:
        parallel = Parallel(groups, 2, 2)
        stack = package.load("tp2", parallel.provider())
        group = parallel.tp_group
        sums = FlashInferSums(group, group, kernel=Kernel(parallel), max_rows=4)
        plan = stack.fused[0].plan
        assert plan.eps == EPS
        small, large, none = (
            stack.batch(rows_per_dp=[rows], padding="unpadded", mode="decode") for rows in (4, 5, 0)
        )
        answers = [sums.can_defer_all_reduce(plan, batch) for batch in (small, large, none)]
        assert answers == [True, False, False]
        assert not sums.can_defer_finalize(plan, small)

    on_ranks(2, program)
