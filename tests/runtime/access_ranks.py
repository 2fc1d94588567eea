"""Forwards of the sample on real ranks in which the model uses outputs between stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from boundaryc.runtime import (
    AuxHiddenStateList,
    BoundaryError,
    Mesh,
    quantized_all_reduce,
)
from boundaryc.runtime.quantize import Format
from tests.runtime import sample
from tests.runtime.model import WIDTH, Norm
from tests.runtime.ranks import Model, RecordingGroups, groups

Result = tuple[Tensor, list[Tensor], list[str]]
"""Real rows of the final norm, what was shown of each stream in order, and the collectives."""

EXTRA = 0.25
"""What the modes that add something add to every number."""


class Accessing:
    """The sample's forward with one accessor used at every boundary where it may be."""

    def __init__(self, rank: int, policy: str, mode: str) -> None:
        self.provider = RecordingGroups()
        self.stack = sample.load("tp4_dp2", self.provider, policy=policy)
        self.model = Model(self.stack, rank)
        self.mode = mode
        self.shown = AuxHiddenStateList()

    def forward(self, tokens: Sequence[int], padding: Any) -> Result:
        """Runs it once."""
        stack, model = self.stack, self.model
        batch: Any = stack.batch(rows_per_dp=tokens, padding=padding, mode="prefill")
        stack.start(batch)
        dp, tp = divmod(model.rank, 2)
        real = model.weights.embed(dp, batch.real_rows)
        padded = real.new_zeros((batch.local_rows - batch.real_rows, WIDTH))
        hidden: Any = torch.cat([real, padded])
        extra = torch.full_like(hidden, EXTRA)
        for index, (attention, ffn) in enumerate(model.layers):
            hidden = self.attention_input(attention, hidden, batch, extra, first=index == 0)
            hidden = attention.finish(hidden @ model.weights.attention[index, tp], batch)
            hidden = self.between(hidden, batch, extra)
            hidden = ffn.prepare(hidden, batch)
            with ffn.exit(batch) as out:
                hidden = out.reduce_output(hidden @ model.weights.ffn[index, model.rank])
            hidden = self.between(out.finish(hidden), batch, extra)
        final = Norm(model.weights.final)
        shows = self.mode in ("capture", "capture with addition")
        capture = self.shown.capture if shows else None
        output = stack.norm(hidden, batch, final, capture_output=capture)
        shown = [state[: batch.real_rows] for state in self.shown]
        return output[: batch.real_rows], shown, self.provider.log

    def attention_input(
        self, boundary: Any, hidden: Any, batch: Any, extra: Tensor, first: bool
    ) -> Tensor:
        """Prepare, as the mode does it."""
        options: dict[str, Any] = {}
        if self.mode.startswith("capture"):
            options["capture_output"] = self.shown.capture
        if self.mode == "last layer outputs":
            options["captured_last_layer_outputs"] = self.shown
        if self.mode.endswith("addition") and not first:
            options["post_residual_addition"] = extra
        return boundary.prepare(hidden, batch, **options)  # type: ignore[no-any-return]

    def between(self, hidden: Any, batch: Any, extra: Tensor) -> Any:
        """What the mode does to an output after a stage."""
        stack = self.stack
        if self.mode in ("complete", "complete and fold"):
            hidden = stack.complete_output(hidden, batch)
        if self.mode in ("fold", "complete and fold"):
            hidden = stack.fold(hidden, batch)
        if self.mode in ("snapshot", "written"):
            self.shown.append(stack.snapshot(hidden, batch))
        if self.mode == "written":
            hidden = stack.written(self.shown[-1].clone(), batch)
        if self.mode == "add":
            hidden = stack.add_to_output(hidden, batch, extra)
        return hidden


def accessed(
    rank: int, policy: str, tokens: Sequence[int], padding: str, modes: Sequence[str]
) -> list[Result]:
    """One forward per mode."""
    return [Accessing(rank, policy, mode).forward(tokens, padding) for mode in modes]


def wide_sums(rank: int) -> tuple[list[float], list[float]]:
    """RD-5: 65536 on one rank, a small number on the others; all results of both sums.

    Row r has the large number on rank r modulo 4 and there are many rows, so that no order of
    additions that a backend may choose is kind to all of them.
    """
    mesh = Mesh((("attn_tp", 4, "attn_tp"),))
    group = groups(None).collective(mesh, ("attn_tp",))
    partial = torch.tensor([[200.0, 100.0]] * 4, dtype=torch.bfloat16)
    partial[rank] = 65536.0
    partial = partial.repeat(4096, 1)
    sums = group.all_reduce(partial.clone()), group.reduce_scatter(partial)
    return sums[0].float().unique().tolist(), sums[1].float().unique().tolist()


def quantized(
    rank: int, dtype: torch.dtype, rows: int, peaks: Sequence[float], form: Format, members: int
) -> Any:
    """This rank's partial of blocks with such maxima, and its quantised and plain sums.

    The last block has 96 columns. Groups are of ``members`` of the four ranks.
    """
    mesh = Mesh((("attn_dp", 4 // members, "attn_dp"), ("attn_tp", members, "attn_tp")))
    group = groups(None).collective(mesh, ("attn_tp",))
    generator = torch.Generator().manual_seed(rank)
    blocks = torch.rand((rows, len(peaks), 128), generator=generator, dtype=torch.float64)
    blocks[..., 0] = 1.0
    partial = (blocks * torch.tensor(peaks, dtype=torch.float64)[:, None]).flatten(1).to(dtype)
    partial = partial[:, :-32]
    before = partial.clone()
    result = quantized_all_reduce(partial, group, form)
    assert partial.equal(before)
    return result, group.all_reduce(partial.double()), group.all_gather(result.contiguous())


def two_sums(rank: int) -> tuple[Tensor, Tensor, bool]:
    """AL-2: two outputs that owe the same group, both completed before either is used."""
    stack: Any = sample.load("tp4_dp2", RecordingGroups(), policy="ar")
    completed = []
    for value in (1.0, 10.0):
        batch: Any = stack.batch(rows_per_dp=[2, 1], padding="sum_len", mode="prefill")
        stack.start(batch)
        batch.stream.residual = batch.stream.enter(torch.zeros(batch.local_rows, WIDTH))
        attention = stack.layer(0).attention
        owed = attention.finish(torch.full((batch.local_rows, WIDTH), value), batch)
        completed.append(stack.complete_output(owed, batch))
    first, second = completed
    return first, second, first.data_ptr() == second.data_ptr()


def recovered(rank: int, tokens: Sequence[int]) -> list[tuple[str, Tensor, list[str]]]:
    """Each misuse on the same stack and batches: its error, then a right forward of one of them."""
    provider = RecordingGroups()
    stack = sample.load("tp4_dp2", provider, policy="rsv")
    model = Model(stack, rank)
    batches: Any = [
        stack.batch(rows_per_dp=tokens, padding="sum_len", mode="prefill") for _ in range(2)
    ]
    found = []
    for misuse in (_fails_inside, _finishes_twice, _prepares_twice, _rebinds, _swaps):
        for batch in batches:
            stack.start(batch)
        try:
            misuse(model, *batches)
        except (BoundaryError, ZeroDivisionError) as error:
            provider.log.clear()
            output, _ = model.forward(batches[0])
            found.append((str(error), output[: batches[0].real_rows], list(provider.log)))
    return found


def _first(model: Model, batch: Any) -> Any:
    """What the first attention stage of a forward hands out."""
    attention = model.layers[0][0]
    hidden = attention.prepare(torch.zeros((batch.local_rows, WIDTH)).double(), batch)
    return attention.finish(hidden, batch)


def _fails_inside(model: Model, batch: Any, other: Any) -> None:
    ffn = model.layers[0][1]
    ffn.prepare(_first(model, batch), batch)
    with ffn.exit(batch):
        raise ZeroDivisionError("computing")


def _finishes_twice(model: Model, batch: Any, other: Any) -> None:
    ffn = model.layers[0][1]
    hidden = ffn.prepare(_first(model, batch), batch)
    with ffn.exit(batch) as out:
        pass
    out.finish(hidden)
    out.finish(hidden)


def _prepares_twice(model: Model, batch: Any, other: Any) -> None:
    hidden = _first(model, batch)
    for _ in range(2):
        model.layers[0][1].prepare(hidden, batch)


def _rebinds(model: Model, batch: Any, other: Any) -> None:
    _first(model, batch)
    model.layers[0][1].prepare(torch.zeros((batch.local_rows, WIDTH)).double(), batch)


def _swaps(model: Model, batch: Any, other: Any) -> None:
    _first(model, batch)
    model.layers[0][1].prepare(_first(model, other), batch)
