"""A mixture of experts on one rank: routing, its own experts, and their all-to-all."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from boundaryc.runtime import FfnExit
from examples.common.config import Config
from examples.common.parallel import Parallel, Weights

Exchange = Callable[[Tensor, list[int], list[int]], Tensor]
"""Moves rows between all ranks of a pipeline stage, each of which takes part in every call.

`exchange(rows, send, receive)` sends the next `send[r]` rows to each rank r, in rank order, and
returns the `receive[r]` rows that come from each.
"""


def exchange_rows(rows: Tensor, send: list[int], receive: list[int]) -> Tensor:
    """The `Exchange` over the default group of `torch.distributed`."""
    received = rows.new_empty(sum(receive), *rows.shape[1:])
    dist.all_to_all_single(received, rows.contiguous(), receive, send)
    return received


class Experts(nn.Module):
    """Routes rows to the top experts and adds what those return.

    Without all-to-all this rank runs its own experts on all the rows it is given and returns a
    partial sum. With it each rank routes its own rows only, and the result is complete.
    """

    def __init__(
        self, config: Config, parallel: Parallel, weights: Weights, exchange: Exchange | None
    ) -> None:
        super().__init__()
        self.per_token, self.normalise = config.experts_per_token, config.norm_topk_prob
        self.parallel, self.exchange = parallel, exchange
        self.router = nn.Parameter(weights["gate.weight"])
        gate_up, down = weights["experts.gate_up_proj"], weights["experts.down_proj"]
        self.own = parallel.experts.cut(gate_up.shape[0], "experts")
        columns = parallel.expert_columns.cut(down.shape[2], "expert columns")
        both = gate_up[self.own].unflatten(1, (2, -1))[:, :, columns]
        self.gate_up = nn.Parameter(both.flatten(1, 2))
        self.down = nn.Parameter(down[self.own][:, :, columns].clone())

    def forward(self, hidden: Tensor, out: FfnExit | None = None) -> Tensor:
        """The output for `hidden` [rows, width], summed where `out` asks for it; rows may be 0."""
        shares, chosen = F.linear(hidden, self.router).float().softmax(-1).topk(self.per_token)
        if self.normalise:
            shares = shares / shares.sum(-1, keepdim=True)
        row, shares, chosen = _pairs(shares.to(hidden.dtype), chosen)
        if self.exchange is None:
            mine = (chosen >= self.own.start) & (chosen < self.own.stop)
            row, shares, chosen = row[mine], shares[mine], chosen[mine]
            result = self._run(hidden[row], chosen)
        else:
            row, shares, result = self._dispatch(self.exchange, hidden, row, shares, chosen)
        partial = torch.zeros_like(hidden).index_add_(0, row, result * shares[:, None])
        return partial if out is None else out.reduce_output(partial)

    def _dispatch(
        self, exchange: Exchange, hidden: Tensor, row: Tensor, shares: Tensor, chosen: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Runs each (row, expert) pair on the ranks that hold the expert.

        Returns the pairs' rows, shares and results, once for every rank that computed a part.
        """
        part = chosen // (self.own.stop - self.own.start)
        picks = {
            rank: (part == index).nonzero().flatten()
            for index in range(self.parallel.moe_ep)
            for rank in self.parallel.expert_ranks(index)
        }
        send = [len(picks.get(rank, ())) for rank in range(self.parallel.tp)]
        order = torch.cat([picks[rank] for rank in sorted(picks)])
        row, shares, chosen = row[order], shares[order], chosen[order]

        one_each = [1] * self.parallel.tp
        receive = exchange(torch.tensor(send), one_each, one_each).tolist()
        there = self._run(exchange(hidden[row], send, receive), exchange(chosen, send, receive))
        return row, shares, exchange(there, receive, send)

    def _run(self, rows: Tensor, chosen: Tensor) -> Tensor:
        """This rank's part of each row's expert; `chosen` [rows] are experts that it holds."""
        result = torch.empty_like(rows)
        for expert in chosen.unique().tolist():
            picked = chosen == expert
            index = expert - self.own.start
            gate, up = F.linear(rows[picked], self.gate_up[index]).chunk(2, dim=-1)
            result[picked] = F.linear(F.silu(gate) * up, self.down[index])
        return result


def _pairs(shares: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One entry for each (row, expert) pair: the row, its share and the expert."""
    rows, per_token = chosen.shape
    row = torch.arange(rows, device=chosen.device).repeat_interleave(per_token)
    return row, shares.flatten(), chosen.flatten()
