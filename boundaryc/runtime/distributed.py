"""Collectives over ``torch.distributed``: groups are slices of one DeviceMesh."""

from __future__ import annotations

from math import prod

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from boundaryc.runtime.collectives import Collective, SingleCollective, Sizes, wide
from boundaryc.runtime.mesh import Axes, Mesh

# The names of torch 2.13 and the ones they replace.
if hasattr(dist, "all_gather_single"):
    _all_gather = dist.all_gather_single
    _reduce_scatter = dist.reduce_scatter_single
else:
    _all_gather = dist.all_gather_into_tensor
    _reduce_scatter = dist.reduce_scatter_tensor


class TorchGroups:
    """Groups of the default process group's ranks.

    Consecutive runs of ``stage_size`` ranks are the pipeline stages, one by default; each holds the
    whole mesh of ``size`` ranks. ``device`` is the type of device that tensors are on: "cuda" under
    NCCL, else "cpu".
    Making a group is collective: every rank of the world asks in the same order.
    """

    def __init__(self, *, stage_size: int | None = None, device: str | None = None) -> None:
        world = dist.get_world_size()
        size = world if stage_size is None else stage_size
        if size < 1 or world % size:
            raise ValueError(f"{world} ranks are not whole stages of {size}")
        self.rank = dist.get_rank() % size
        self.size = size
        self._stages = world // size
        self.device = device or ("cuda" if "nccl" in dist.get_backend() else "cpu")
        self._meshes: dict[Mesh, DeviceMesh] = {}
        self._collectives: dict[tuple[Mesh, str], Collective] = {}

    def collective(self, mesh: Mesh, axes: Axes) -> Collective:
        """The group over ``axes``; ValueError where the mesh is not of this stage's size."""
        if mesh.size != self.size:
            raise ValueError(f"the mesh has {mesh.size} ranks; a stage has {self.size}")
        label = mesh.label(axes)
        known = self._collectives.get((mesh, label))
        if known is None:
            known = self._collectives[mesh, label] = self._make(mesh, axes)
        return known

    def _make(self, mesh: Mesh, axes: Axes) -> Collective:
        names = tuple(mesh.names[index] for index in mesh.positions(axes))
        if not names:
            return SingleCollective()
        device_mesh = self._device_mesh(mesh)[names]
        if len(names) > 1:
            # One dimension of all the atoms, outermost first, whether or not they are neighbours.
            device_mesh = device_mesh._flatten("group_" + "_".join(names))
        group = device_mesh.get_group()
        return collective_of(group) if self.device == "cuda" else GlooCollective(group)

    def _device_mesh(self, mesh: Mesh) -> DeviceMesh:
        known = self._meshes.get(mesh)
        if known is None:
            known = self._meshes[mesh] = init_device_mesh(
                self.device,
                (self._stages, *mesh.shape),
                mesh_dim_names=("pipeline_stage", *mesh.names),
            )
        return known


class NcclCollective:
    """NCCL's own collectives, the uneven ones through its list forms.

    NCCL may round a sum of 16-bit numbers at every hop; `WideCollective` makes it round once.
    """

    __slots__ = ("_group", "rank", "size")

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    @property
    def process_group(self) -> dist.ProcessGroup:
        """What torch calls the group."""
        return self._group

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of ``x``, in place where ``x`` is contiguous."""
        x = x.contiguous()
        if x.numel():
            dist.all_reduce(x, group=self._group)
        return x

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """The rows of all members in group order."""
        sizes = gather_counts(x, sizes, self.rank, self.size)
        gathered = x.new_empty((sum(sizes), *x.shape[1:]))
        if gathered.numel() == 0:
            return gathered
        source, target = _wire(x.contiguous()), _wire(gathered)
        if equal_sizes(sizes):
            _all_gather(target, source, group=self._group)
        else:
            dist.all_gather(list(torch.split(target, list(sizes))), source, group=self._group)
        return gathered

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """This rank's rows of the sum of ``x``."""
        sizes = scatter_counts(x, sizes, self.size)
        own = x.new_empty((sizes[self.rank], *x.shape[1:]))
        if x.numel() == 0:
            return own
        if equal_sizes(sizes):
            _reduce_scatter(own, x.contiguous(), group=self._group)
        else:
            dist.reduce_scatter(
                own, list(torch.split(x.contiguous(), list(sizes))), group=self._group
            )
        return own


class GlooCollective:
    """Gloo's collectives, with what gloo lacks made of ``all_to_all_single``.

    An uneven gather sends this rank's rows to every member; a reduce-scatter sends each member its
    own rows and adds what arrives, in member order, so that it is reproducible bit for bit.
    """

    __slots__ = ("_group", "rank", "size")

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    @property
    def process_group(self) -> dist.ProcessGroup:
        """What torch calls the group."""
        return self._group

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of ``x``, accumulated in float32 or wider and rounded once."""
        total = wide(x).contiguous()
        if total.numel():
            dist.all_reduce(total, group=self._group)
        return total.to(x.dtype)

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """The rows of all members in group order."""
        sizes = gather_counts(x, sizes, self.rank, self.size)
        gathered = x.new_empty((sum(sizes), *x.shape[1:]))
        if gathered.numel() == 0:
            return gathered
        source, target = _wire(x.contiguous()), _wire(gathered)
        if equal_sizes(sizes):
            _all_gather(target, source, group=self._group)
        else:
            sent = [source.shape[0]] * self.size
            dist.all_to_all_single(
                target, source.repeat(self.size, 1), list(sizes), sent, group=self._group
            )
        return gathered

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """This rank's rows of the sum of ``x``."""
        sizes = scatter_counts(x, sizes, self.size)
        own = sizes[self.rank]
        parts = x.new_empty((self.size, own, *x.shape[1:]))
        if x.numel() == 0:
            return parts.sum(dim=0)
        dist.all_to_all_single(
            _wire(parts.view(self.size * own, *x.shape[1:])),
            _wire(x.contiguous()),
            [own] * self.size,
            list(sizes),
            group=self._group,
        )
        return parts.sum(dim=0, dtype=x.dtype)


def collective_of(group: dist.ProcessGroup) -> Collective:
    """Torch's own collectives of a process group: NCCL's where that is its backend, else gloo's."""
    nccl = "nccl" in dist.get_backend(group)
    return NcclCollective(group) if nccl else GlooCollective(group)


def gather_counts(x: Tensor, sizes: Sizes | None, rank: int, size: int) -> Sizes:
    """Rows of each member; ValueError where they do not describe ``x``."""
    if sizes is None:
        return (x.shape[0],) * size
    if len(sizes) != size or sizes[rank] != x.shape[0]:
        raise ValueError(f"{x.shape[0]} rows as member {rank} of {size} do not fit sizes {sizes}")
    return sizes


def scatter_counts(x: Tensor, sizes: Sizes | None, size: int) -> Sizes:
    """Rows of each member; ValueError where they do not add up to ``x``."""
    if sizes is None:
        each, rest = divmod(x.shape[0], size)
        if rest:
            raise ValueError(f"{x.shape[0]} rows do not divide evenly over {size} members")
        return (each,) * size
    if len(sizes) != size or sum(sizes) != x.shape[0]:
        raise ValueError(f"{x.shape[0]} rows over {size} members do not fit sizes {sizes}")
    return sizes


def equal_sizes(sizes: Sizes) -> bool:
    """Whether all members have as many rows."""
    return all(size == sizes[0] for size in sizes)


def _wire(x: Tensor) -> Tensor:
    """Contiguous ``x`` as bytes [rows, bytes per row]: what moves without arithmetic needs no type.

    Backends do not know every dtype (fp8 among them); bytes they all move.
    """
    width = prod(x.shape[1:])
    # A dimension of size 1 or 0 may have any stride in contiguous storage: state them.
    return x.as_strided((x.shape[0], width), (width, 1)).view(torch.uint8)
