"""SGLang's groups, forward batches and skip flags, as boundaryc takes them.

Written against SGLang 0.5.23, whose objects are used by these names only:
`tests/engines/sglang_facts.json` has the signatures, and a test compares them with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from boundaryc.runtime.collectives import Collective, SingleCollective, Sizes
from boundaryc.runtime.distributed import (
    collective_of,
    equal_sizes,
    gather_counts,
    scatter_counts,
)
from boundaryc.runtime.stream_launching import raw

if TYPE_CHECKING:
    from boundaryc.runtime.exits import Exit
    from boundaryc.runtime.mesh import Axes, Mesh

GROUPS = (
    *("tp_group", "attn_tp_group", "attn_cp_group"),
    *("moe_ep_group", "moe_tp_group", "moe_dp_group"),
)
"""The coordinators of one pipeline stage that SGLang's parallel context has."""

Create = Callable[[list[list[int]], Any, str], Any]
"""``(ranks of every group of the world, the stage's coordinator, label) -> coordinator``."""


class SglangCollective:
    """A `GroupCoordinator`: whatever SGLang has for a sum or a move of equal rows is used.

    Unequal rows go through its PyNccl communicator, and where it has none, as SGLang's attention TP
    and MoE groups, through its process group. So do reduce-scatters on the CPU, where SGLang's are
    operators of accelerators. ``coordinator`` is SGLang's object.
    """

    __slots__ = ("_scatters", "_uneven", "coordinator", "plain", "rank", "size")

    def __init__(self, coordinator: Any) -> None:
        self.coordinator = coordinator
        self.rank: int = coordinator.rank_in_group
        self.size: int = coordinator.world_size
        self.plain = collective_of(coordinator.device_group)
        self._scatters = coordinator.device.type != "cpu"
        # A group without NCCL has a communicator all the same, which is not available.
        pynccl = coordinator.pynccl_comm
        self._uneven = pynccl is not None and bool(pynccl.available)

    @property
    def process_group(self) -> Any:
        """What torch calls the group."""
        return self.coordinator.device_group

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of ``x``, by the algorithm that SGLang chooses for its size; maybe in place."""
        x = x.contiguous()
        if x.numel() == 0:
            return x
        total: Tensor = self.coordinator.all_reduce(x)
        return total

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """The rows of all members in group order."""
        sizes = gather_counts(x, sizes, self.rank, self.size)
        if sum(sizes) == 0 or x.shape[1:].numel() == 0:
            return x.new_empty((sum(sizes), *x.shape[1:]))
        if not (equal_sizes(sizes) or self._uneven):
            return self.plain.all_gather(x, sizes)
        # PyNccl and the operators of the CPU know no 8-bit floats; bytes they all move.
        moved = raw(x).contiguous()
        gathered: Tensor
        if equal_sizes(sizes):
            gathered = self.coordinator.all_gather(moved, dim=0)
        else:
            (gathered,) = self.coordinator.all_gatherv(moved, sizes=list(sizes))
        return gathered.view(x.dtype)

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """This rank's rows of the sum of ``x``."""
        sizes = scatter_counts(x, sizes, self.size)
        equal = equal_sizes(sizes)
        if not self._scatters or not (equal or self._uneven):
            return self.plain.reduce_scatter(x, sizes)
        if not equal:
            scattered: Tensor = self.coordinator.reduce_scatterv(x.contiguous(), sizes=list(sizes))
            return scattered
        own = x.new_empty((sizes[self.rank], *x.shape[1:]))
        if x.numel() == 0:
            return own
        self.coordinator.reduce_scatter_tensor(own, x.contiguous())
        return own


class SglangGroups:
    """A `GroupProvider` of SGLang's own coordinators, found by the ranks that are in them.

    ``parallel`` is SGLang's parallel context, by default that of this process, once its groups are
    made. SGLang and boundaryc number the ranks of a pipeline stage alike, ``attn_tp`` innermost. A
    group that SGLang lacks, such as ``attn_dp`` beside attention TP, is made by ``create``, by
    default with SGLang's `init_model_parallel_group`: every rank of the world loads its stack, in
    the same order. ValueError for a stage whose ranks are not consecutive.
    """

    def __init__(self, parallel: Any = None, *, create: Create | None = None) -> None:
        if parallel is None:
            from sglang.srt.runtime_context import get_parallel

            parallel = get_parallel()
        stage = parallel.tp_group
        first = stage.ranks[0]
        if list(stage.ranks) != list(range(first, first + stage.world_size)) or (
            first % stage.world_size
        ):
            raise ValueError(f"a pipeline stage has consecutive ranks, not {stage.ranks}")
        self.rank: int = stage.rank_in_group
        self.size: int = stage.world_size
        self.device = stage.device.type
        self._stage = stage
        self._known = [group for group in map(_reader(parallel), GROUPS) if group is not None]
        self._create = create or create_group
        self._wrapped: dict[tuple[int, ...], Collective] = {}

    def collective(self, mesh: Mesh, axes: Axes) -> Collective:
        """The group over ``axes``; ValueError where the mesh is not of this stage's size."""
        if mesh.size != self.size:
            raise ValueError(f"the mesh has {mesh.size} ranks; SGLang's stage has {self.size}")
        members = mesh.members(self.rank, axes)
        if len(members) == 1:
            return SingleCollective()
        known = self._wrapped.get(members)
        if known is None:
            known = self._wrapped[members] = SglangCollective(self._coordinator(mesh, axes))
        return known

    def _coordinator(self, mesh: Mesh, axes: Axes) -> Any:
        """SGLang's, where it has one of these ranks, else a new one."""
        wanted = self._ranks(mesh.members(self.rank, axes), self._stage.ranks[0])
        for group in self._known:
            if list(group.ranks) == wanted:
                return group
        # Groups of the same kind are the same on all ranks, so all of them come here.
        cut = dict.fromkeys(mesh.members(rank, axes) for rank in range(mesh.size))
        starts = range(0, torch.distributed.get_world_size(), self.size)
        every = [self._ranks(members, start) for start in starts for members in cut]
        made = self._create(every, self._stage, mesh.label(axes))
        self._known.append(made)
        return made

    @staticmethod
    def _ranks(members: Sequence[int], first: int) -> list[int]:
        return [first + member for member in members]


def create_group(ranks: list[list[int]], stage: Any, label: str) -> Any:
    """A coordinator like that of the ``stage``, of this rank's list of ``ranks``. Collective."""
    from sglang.srt.distributed.parallel_state import init_model_parallel_group

    backend = torch.distributed.get_backend(stage.device_group)
    return init_model_parallel_group(
        ranks, stage.local_rank, backend, group_name=f"boundaryc_{label}"
    )


def _reader(parallel: Any) -> Callable[[str], Any]:
    def read(name: str) -> Any:
        """A coordinator; None where SGLang made none, which it says by raising."""
        try:
            return getattr(parallel, name)
        except (AttributeError, RuntimeError):
            return None

    return read


def batch_facts(
    forward_batch: Any,
    *,
    attn_dp: int,
    sequence_parallel: bool = False,
    input_scattered: bool = False,
) -> dict[str, Any]:
    """What `Stack.batch` takes of a `ForwardBatch`, by keyword; the same on all ranks.

    SGLang has padded the rows before a model runs, to what its padding mode says and to attention
    TP: all of them count as tokens here, and nothing is padded again. ``sequence_parallel`` and
    ``input_scattered`` are the caller's choice, alike on all ranks, in the place of SGLang's modes
    of these names, in which its linears gather and scatter by themselves. ValueError for a batch
    whose tokens SGLang has cut over attention CP, and for one that does not say what all
    ``attn_dp`` groups have.
    """
    mode = forward_batch.forward_mode
    if mode.is_context_parallel_extend() and forward_batch.attn_cp_metadata is not None:
        raise ValueError(
            "SGLang has cut this batch over attention CP in a way of its own; build it with "
            "Stack.batch(cp=ContextParallel(...)) and give each rank the tokens that it names"
        )
    counts = forward_batch.global_num_tokens_cpu
    if counts is None and attn_dp == 1:
        rows, prefill = [int(forward_batch.input_ids.shape[0])], not mode.is_decode_or_idle()
    else:
        # A rank's own mode differs from the others'; whether any rank prefills is gathered.
        rows, prefill = [int(count) for count in counts or ()], forward_batch.is_extend_in_batch
    if len(rows) != attn_dp:
        raise ValueError(
            f"this ForwardBatch has the tokens of {len(rows)} attention DP group(s) and the "
            f"topology has {attn_dp}: every rank must know them all (global_num_tokens_cpu)"
        )
    return {
        "rows_per_dp": rows,
        "padding": "unpadded",
        "mode": "prefill" if prefill else "decode",
        "sequence_parallel": sequence_parallel,
        "input_scattered": input_scattered,
    }


def partial(linear: Any, x: Tensor) -> Tensor:
    """What this rank adds to the sum of a `RowParallelLinear`, however that was constructed.

    ``linear`` does no sum, and adds its bias on the first rank of its group only, so that it
    enters once. ValueError where it hands its bias back (``skip_bias_add``).
    """
    output: Tensor
    output, bias = linear(x, skip_all_reduce=True)
    if bias is not None:
        raise ValueError("this linear hands back its bias: declare it `additive` and add it there")
    return output


@contextmanager
def published(out: Exit, forward: Any = None) -> Iterator[None]:
    """Tells SGLang's compute what an open exit decides, for modules that take no flag.

    Inside it `RowParallelLinear` and MoE blocks sum where ``out.skips_reduction`` is False, and
    not at all where it is True; compute does not call `Exit.reduce_output` then. They must be
    constructed to sum (``reduce_results=True``), over the ranks over which the stage owes its sum.
    ``forward`` are SGLang's forward flags, by default those of this process.
    """
    if forward is None:
        from sglang.srt.runtime_context import get_forward

        forward = get_forward()
    with forward.scoped(mlp_reduce_scatter=out.skips_reduction):
        yield
