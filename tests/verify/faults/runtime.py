"""Faults in what generated code runs on: batches, rows, streams, exits and collectives."""

from __future__ import annotations

from tests.verify.faults.fault import Fault

MEMBERS = "boundaryc/runtime/members.py"
BATCH = "boundaryc/runtime/builder.py"
STREAM = "boundaryc/runtime/stream.py"
EXITS = "boundaryc/runtime/exits.py"
ROWWISE = "boundaryc/runtime/rowwise.py"
GLOO = "boundaryc/runtime/distributed.py"


def _fault(
    name: str, does: str, path: str, old: str, new: str, *seen_by: str, area: str = "runtime"
) -> Fault:
    return Fault(name, area, does, path, old, new, seen_by)


FAULTS = (
    _fault(
        "take-from-the-start",
        "A slice takes the group's first rows on every rank.",
        MEMBERS,
        "        return rows[self.start : self.stop]",
        "        return rows[: self.stop - self.start]",
        "values",
        "units",
    ),
    _fault(
        "place-in-garbage",
        "Placed rows lie in storage that was never cleared.",
        MEMBERS,
        "        placed = rows.new_zeros((self.total, *rows.shape[1:]))",
        "        placed = rows.new_empty((self.total, *rows.shape[1:]))",
        "values",
    ),
    _fault(
        "place-one-off",
        "Rows are placed as if this rank's came last.",
        MEMBERS,
        "        placed[self.start : self.stop] = rows",
        "        placed[self.total - len(rows) :] = rows",
        "values",
        "units",
    ),
    _fault(
        "longer-parts-last",
        "Uneven parts are longer at the end instead of at the beginning.",
        MEMBERS,
        "    return tuple(each + (index < longer) for index in range(parts))",
        "    return tuple(each + (index >= parts - longer) for index in range(parts))",
        "values",
        "units",
    ),
    _fault(
        "leaves-of-another-axis",
        "The leaves of a member are those of the moved atoms instead of the whole ones.",
        MEMBERS,
        "whole = tuple(name for name in self.mesh.names if name not in finer)",
        "whole = tuple(name for name in self.mesh.names if name not in moved)",
        "values",
        "refusals",
        "units",
    ),
    _fault(
        "even-by-one-group",
        "Whether a cut is even is judged from this batch's first rank only.",
        MEMBERS,
        "if all(leaves[other] == own for other, own in zip(first, leaves, strict=True)):",
        "if leaves[next(first)] == leaves[0]:",
        "census",
        "refusals",
        "units",
    ),
    _fault(
        "max-len-is-sum-len",
        "`max_len` does not pad groups to the largest.",
        BATCH,
        '    return (max(rounded),) * len(real) if padding == "max_len" else rounded',
        "    return rounded",
        "refusals",
        "units",
    ),
    _fault(
        "padding-rounds-down",
        "Padding drops rows instead of adding some.",
        BATCH,
        "    rounded = tuple(-(-rows // multiple) * multiple for rows in real)",
        "    rounded = tuple(rows // multiple * multiple for rows in real)",
        "refusals",
        "units",
    ),
    _fault(
        "last-column",
        "The widest column is taken instead of the first that fits.",
        BATCH,
        "        for index, column in enumerate(self._columns):\n            if column.fits",
        "        for index, column in reversed(list(enumerate(self._columns))):\n"
        "            if column.fits",
        "units",
    ),
    _fault(
        "column-of-own-rows",
        "The column is chosen by this rank's rows: ranks may choose different ones.",
        BATCH,
        "            plan=self._select(variant, facts, leaves, sum(padded)),",
        "            plan=self._select(variant, facts, leaves[self._cutter.rank:][:1] * "
        "len(leaves), sum(padded)),",
        "census",
    ),
    _fault(
        "few-is-many",
        "A bound on rows is read as its opposite.",
        "boundaryc/runtime/columns.py",
        "rows <= self.max_rows)",
        "rows > self.max_rows)",
        "units",
    ),
    _fault(
        "stream-enters-twice",
        "A stream may be entered again in the middle of a stack.",
        STREAM,
        "        if self.state is not StreamState.INITIAL:",
        "        if self.state is StreamState.UNSTARTED:",
        "units",
    ),
    _fault(
        "foreign-output-accepted",
        "A stream takes any object for what it handed out.",
        STREAM,
        "        if value is None or hidden is not self.handle:",
        "        if value is None:",
        "units",
    ),
    _fault(
        "stale-contribution",
        "What was taken stays behind: the same contribution can be taken twice.",
        STREAM,
        "        self.handle = None\n        self.value = None\n        self.phase, self.due = "
        "StreamState.WRITTEN, None\n        return value",
        "        self.phase, self.due = StreamState.WRITTEN, None\n        return value",
        "units",
        "refusals",
    ),
    _fault(
        "owed-output-is-the-tensor",
        "An output that owes a sum is handed out as a tensor.",
        STREAM,
        "self._leave(value, handle, params, access)\n        return handle",
        "self._leave(value, value, params, access)\n        return value",
        "units",
    ),
    _fault(
        "stream-copies-its-handle",
        "A complete contribution is copied: the model's own object is refused.",
        STREAM,
        "self._leave(value, value, params, access)\n        return value",
        "self._leave(value, value, params, access)\n        return value.clone()",
        "refusals",
        "units",
    ),
    _fault(
        "stream-forgets-params",
        "The parameters of an update are dropped.",
        STREAM,
        "        self.value = value\n        self.params = params",
        "        self.value = value\n        self.params = ()",
        "refusals",
    ),
    _fault(
        "exit-never-reduces",
        "`reduce_output` returns what it is given.",
        EXITS,
        "        hidden = self._sum(hidden)",
        "        pass",
        "values",
        "demo",
    ),
    _fault(
        "exit-left-open",
        "A failed computation leaves its exit behind as the batch's.",
        EXITS,
        "        self._batch.exit = self._outer\n        self._outer = None",
        "        self._batch.exit = self._outer if kind is None else self",
        "units",
    ),
    _fault(
        "exit-finishes-a-failure",
        "The output of a failed computation can be finished.",
        EXITS,
        "        self._phase = _CLOSED if kind is None else _Phase.FAILED",
        "        self._phase = _CLOSED",
        "units",
    ),
    _fault(
        "wrong-policy-flag",
        "A fused sum is announced as a scatter.",
        EXITS,
        "    found.fuse_mlp_allreduce = decision.fuse_mlp_allreduce",
        "    found.fuse_mlp_allreduce = decision.mlp_reduce_scatter",
        "units",
    ),
    _fault(
        "flags-never-skip",
        "Compute is told to reduce where the boundary does.",
        EXITS,
        "decision.fuse_mlp_allreduce or decision.mlp_reduce_scatter",
        "decision.fuse_mlp_allreduce and decision.mlp_reduce_scatter",
        "units",
    ),
    _fault(
        "layers-count-from-the-end",
        "A negative layer is taken for one of the stack's.",
        "boundaryc/runtime/stack.py",
        "if index not in self.layers:",
        "if index >= self.layers.stop:",
        "units",
    ),
    _fault(
        "add-in-place",
        "The add writes into the residual's storage, which others may look at.",
        ROWWISE,
        "return _total(x, residual, scale).to(residual.dtype)",
        "return residual.copy_(_total(x, residual, scale).to(residual.dtype))",
        "values",
        "units",
    ),
    _fault(
        "norm-of-the-old-residual",
        "The fused norm reads the residual without the contribution.",
        "boundaryc/emit/norms.py",
        "                *self._root_mean_square(),\n"
        '                "return normed.to(kind), wide.to(residual.dtype)",',
        '                "total, wide = wide, residual.to(wide.dtype)",\n'
        "                *self._root_mean_square(),\n"
        '                "return normed.to(kind), total.to(residual.dtype)",',
        "values",
        area="emitter",
    ),
    _fault(
        "norm-in-half",
        "The norm accumulates in the dtype of its input.",
        ROWWISE,
        "    accumulate = torch.promote_types(x.dtype, torch.float32)\n"
        "    return _normalize(x.to(accumulate), weight, eps, offset).to(x.dtype)",
        "    return _normalize(x, weight, eps, offset).to(x.dtype)",
        "units",
    ),
    _fault(
        "mesh-innermost-first",
        "Ranks number their coordinates innermost first.",
        "boundaryc/runtime/mesh.py",
        "        for position, size in zip(coordinate, self.shape, strict=True):\n"
        "            rank = rank * size + position",
        "        for position, size in reversed(list(zip(coordinate, self.shape, strict=True))):\n"
        "            rank = rank * size + position",
        "refusals",
    ),
    _fault(
        "prefix-layers",
        "The first layer of a run serves all layers after it.",
        "boundaryc/runtime/table.py",
        "            if index < count:\n                return layer\n            index -= count",
        "            if index < count:\n                return layer\n            index -= 0",
        "refusals",
        "values",
    ),
    _fault(
        "gather-in-rank-order-backwards",
        "An uneven gather over gloo sends as many rows as the receiver has.",
        GLOO,
        "            sent = [source.shape[0]] * self.size",
        "            sent = list(sizes)",
        "gloo",
    ),
    _fault(
        "scatter-forgets-itself",
        "A reduce-scatter over gloo leaves one member's part out.",
        GLOO,
        "        return parts.sum(dim=0, dtype=x.dtype)",
        "        return parts[1:].sum(dim=0, dtype=x.dtype)",
        "gloo",
    ),
    _fault(
        "gather-of-a-view",
        "What is not contiguous is sent as its storage lies.",
        GLOO,
        "    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:\n"
        '        """The rows of all members in group order."""\n'
        "        sizes = gather_counts(x, sizes, self.rank, self.size)\n"
        "        gathered = x.new_empty((sum(sizes), *x.shape[1:]))\n"
        "        if gathered.numel() == 0:\n"
        "            return gathered\n"
        "        source, target = _wire(x.contiguous()), _wire(gathered)\n"
        "        if equal_sizes(sizes):\n"
        "            _all_gather(target, source, group=self._group)\n"
        "        else:\n"
        "            sent",
        "    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:\n"
        '        """The rows of all members in group order."""\n'
        "        sizes = gather_counts(x, sizes, self.rank, self.size)\n"
        "        gathered = x.new_empty((sum(sizes), *x.shape[1:]))\n"
        "        if gathered.numel() == 0:\n"
        "            return gathered\n"
        "        source, target = _wire(x), _wire(gathered)\n"
        "        if equal_sizes(sizes):\n"
        "            _all_gather(target, source, group=self._group)\n"
        "        else:\n"
        "            sent",
        "gloo",
    ),
)
