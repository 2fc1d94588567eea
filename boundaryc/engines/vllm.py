"""vLLM's group coordinators, forward context and skip flags, as boundaryc takes them.

Written against vLLM 0.33.0, whose objects are used by these names only:
`tests/engines/vllm_facts.json` has the signatures, and a test compares them with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

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
    from boundaryc.runtime.facts import Mode
    from boundaryc.runtime.mesh import Axes, Mesh

GROUPS = ("tp", "pcp", "dp", "ep", "pp")
"""The coordinators of vLLM that a provider looks at; the first that has the ranks is taken.

That is ``tp`` before ``ep``, as it alone has vLLM's custom all-reduces and is captured with them.
"""

Create = Callable[[list[list[int]], Any], Any]
"""``(ranks of every group of the world, the TP coordinator) -> coordinator``."""

Module = TypeVar("Module")


class VllmCollective:
    """A `GroupCoordinator`: sums and moves are vLLM's, by whatever it picks for their size.

    Unequal rows are its `all_gatherv` and `reduce_scatterv`; where its communicator has none, as on
    the CPU, or its PyNccl is disabled, they go through the process group. ``coordinator`` is
    vLLM's object; what it returns is storage of its own.
    """

    __slots__ = ("_uneven", "coordinator", "rank", "size")

    def __init__(self, coordinator: Any) -> None:
        self.coordinator = coordinator
        self.rank: int = coordinator.rank_in_group
        self.size: int = coordinator.world_size
        self._uneven = _moves_unequal_rows(coordinator.device_communicator)

    @property
    def process_group(self) -> Any:
        """What torch calls the group."""
        return self.coordinator.device_group

    @property
    def plain(self) -> Collective:
        """Torch's own collectives of the same ranks."""
        return collective_of(self.coordinator.device_group)

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of ``x``; in place on the CPU, where ``x`` is contiguous."""
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
        equal = equal_sizes(sizes)
        if not equal and not self._uneven:
            return self.plain.all_gather(x, sizes)
        # PyNccl knows one 8-bit float and gloo none; bytes they all move.
        moved = raw(x).contiguous()
        gathered: Tensor
        if equal:
            gathered = self.coordinator.all_gather(moved, dim=0)
        else:
            gathered = self.coordinator.all_gatherv(moved, dim=0, sizes=list(sizes))
        return gathered.view(x.dtype)

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """This rank's rows of the sum of ``x``."""
        sizes = scatter_counts(x, sizes, self.size)
        if x.numel() == 0:
            return x.new_empty((sizes[self.rank], *x.shape[1:]))
        scattered: Tensor
        if equal_sizes(sizes):
            scattered = self.coordinator.reduce_scatter(x.contiguous(), dim=0)
        elif self._uneven:
            scattered = self.coordinator.reduce_scatterv(x.contiguous(), dim=0, sizes=list(sizes))
        else:
            return self.plain.reduce_scatter(x, sizes)
        return scattered


def _moves_unequal_rows(communicator: Any) -> bool:
    """Whether a device communicator of vLLM has `all_gatherv` and `reduce_scatterv` that run."""
    if communicator is None:
        return False
    owner = next((one for one in type(communicator).__mro__ if "all_gatherv" in vars(one)), None)
    # The base class raises NotImplementedError, and is all that the CPU has.
    if owner is None or owner.__name__ == "DeviceCommunicatorBase":
        return False
    pynccl = getattr(communicator, "pynccl_comm", None)
    return pynccl is None or not pynccl.disabled


class VllmGroups:
    """A `GroupProvider` of vLLM's own coordinators, found by the ranks that are in them.

    ``coordinators`` are vLLM's by the names of `GROUPS`, by default those of this process, once
    `initialize_model_parallel` has made them; "tp" is needed, and an absent one is of one rank.
    Both number the ranks of a pipeline stage alike: DP x PCP x TP is attn_dp x attn_cp x attn_tp.
    A group that vLLM lacks, such as PCP and TP together, is made by ``create``, by default with
    vLLM's `init_model_parallel_group`: every rank of the world loads its stack, in the same order.
    """

    def __init__(
        self, coordinators: Mapping[str, Any] | None = None, *, create: Create | None = None
    ) -> None:
        known = dict(coordinators_of_process() if coordinators is None else coordinators)
        self._stage, self._pp = known["tp"], known.get("pp")
        axes = [known.get(name) for name in ("dp", "pcp", "tp")]
        self._axes = [([self._stage.rank], 0) if one is None else _place(one) for one in axes]
        self.rank, self.size = 0, 1
        for ranks, at in self._axes:
            self.rank, self.size = self.rank * len(ranks) + at, self.size * len(ranks)
        self.device: str = self._stage.device.type
        # Those between pipeline stages are none of a stage's.
        self._known = [known[name] for name in GROUPS[:-1] if known.get(name) is not None]
        self._create = create or create_group
        self._wrapped: dict[tuple[int, ...], Collective] = {}

    def collective(self, mesh: Mesh, axes: Axes) -> Collective:
        """The group over ``axes``; ValueError where the mesh is not of this stage's size."""
        if mesh.size != self.size:
            raise ValueError(f"the mesh has {mesh.size} ranks; vLLM's DP x PCP x TP is {self.size}")
        members = mesh.members(self.rank, axes)
        if len(members) == 1:
            return SingleCollective()
        known = self._wrapped.get(members)
        if known is None:
            known = self._wrapped[members] = VllmCollective(self._coordinator(mesh, axes))
        return known

    def _coordinator(self, mesh: Mesh, axes: Axes) -> Any:
        """VLLM's, where it has one of these ranks in this order, else a new one."""
        wanted = [self._world(member) for member in mesh.members(self.rank, axes)]
        for group in self._known:
            if list(group.ranks) == wanted:
                return group
        # Groups of the same kind are the same on all ranks, so all of them come here.
        cut = dict.fromkeys(mesh.members(rank, axes) for rank in range(mesh.size))
        every = [
            [shift + self._world(member) for member in members]
            for shift in self._shifts()
            for members in cut
        ]
        made = self._create(every, self._stage)
        self._known.append(made)
        return made

    def _world(self, member: int) -> int:
        """The rank in the world of a rank of this pipeline stage."""
        own: int = self._stage.rank
        world = own
        for ranks, _ in reversed(self._axes):
            member, at = divmod(member, len(ranks))
            world += ranks[at] - own
        return world

    def _shifts(self) -> list[int]:
        """How far the ranks of every pipeline stage of the world are from this one's."""
        own: int = self._stage.rank
        stages = [own] if self._pp is None else self._pp.ranks
        replica = self.size * len(stages)
        first = own // replica * replica
        starts = range(0, torch.distributed.get_world_size(), replica)
        return [start - first + stage - own for start in starts for stage in stages]


def _place(coordinator: Any) -> tuple[list[int], int]:
    """The ranks of a coordinator in the world, and which of them this one is."""
    return list(coordinator.ranks), coordinator.rank_in_group


def coordinators_of_process() -> dict[str, Any]:
    """VLLM's coordinators of this process by the names of `GROUPS`; those it has not are left out.

    A dense model has no "ep". AssertionError of vLLM's where even "tp" is not made yet.
    """
    from vllm.distributed import parallel_state

    parallel_state.get_tp_group()
    found = {}
    for name in GROUPS:
        try:
            found[name] = getattr(parallel_state, f"get_{name}_group")()
        except AssertionError:
            continue
    return found


def create_group(ranks: list[list[int]], stage: Any) -> Any:
    """A coordinator like that of TP, of this rank's list of ``ranks``. Collective.

    Its name has no "tp" in it: by that vLLM would give it custom all-reduces, which its
    `graph_capture` registers for its own groups only.
    """
    from vllm.distributed.parallel_state import init_model_parallel_group

    backend = torch.distributed.get_backend(stage.device_group)
    return init_model_parallel_group(ranks, stage.local_rank, backend, group_name="boundaryc")


def batch_facts(
    context: Any, *, attn_dp: int, mode: Mode = "prefill", sequence_parallel: bool = False
) -> dict[str, Any]:
    """What `Stack.batch` takes of a `ForwardContext`, by keyword; the same on all ranks.

    vLLM has padded the rows before a model runs, to what its graphs are captured for and, where
    they run or the batch is in microbatches, to the largest DP rank: all of them count as tokens
    here, and nothing is padded again. ``mode`` is "decode" where the engine knows it of all ranks;
    the context does not say it. ValueError for a context of several microbatches, each of which
    has its own, and for one that does not say the rows of all ``attn_dp`` groups.
    """
    if context.ubatch_slices is not None:
        raise ValueError(
            "this ForwardContext is that of a batch in microbatches; take the facts inside each of "
            "them, where vLLM sets a context of its own"
        )
    if context.dp_metadata is not None:
        rows = [int(count) for count in context.dp_metadata.num_tokens_across_dp_cpu.tolist()]
    elif context.batch_descriptor is not None:
        rows = [int(context.batch_descriptor.num_tokens)]
    else:
        rows = []
    if len(rows) != attn_dp:
        raise ValueError(
            f"this ForwardContext has the tokens of {len(rows)} DP rank(s) and the topology has "
            f"{attn_dp} attention DP group(s): every rank must know them all "
            "(set_forward_context(num_tokens=..., num_tokens_across_dp=...))"
        )
    return {
        "rows_per_dp": rows,
        "padding": "unpadded",
        "mode": mode,
        "sequence_parallel": sequence_parallel,
    }


def keep_partial(module: Module) -> Module:
    """Makes a module of vLLM leave its sum over TP, and returns it.

    `RowParallelLinear` and `VocabParallelEmbedding` are told so, whatever they were constructed
    with; they ask at every call, and a bias is added by the first rank only. A MoE runner has
    settled it when it was made, and is checked. ValueError for a linear that hands its bias back,
    and for a runner that sums, with the remedy. TypeError for any other module.
    """
    found: Any = module
    if hasattr(found, "reduce_results"):
        if getattr(found, "skip_bias_add", False) and found.bias is not None:
            raise ValueError("this linear hands back its bias: declare it `additive`, add it there")
        found.reduce_results = False
    elif hasattr(found, "moe_config"):
        _check_runner(found.moe_config)
    else:
        raise TypeError(f"{type(module).__name__} is no module of vLLM's that sums over TP")
    return module


def _check_runner(config: Any) -> None:
    """ValueError where a MoE runner of this `FusedMoEConfig` sums, or has nothing to leave."""
    if config.skip_final_all_reduce:
        return
    parallel = config.moe_parallel_config
    if parallel.use_all2all_kernels or parallel.is_sequence_parallel:
        raise ValueError(
            "this MoE dispatches and combines inside, so that its output is complete on each "
            "rank's own rows: leave it as it is and declare `moe: {all_to_all: true}`"
        )
    raise ValueError("this MoE sums over TP: make it with FusedMoEFactory(reduce_results=False)")
