"""The base class of a generated stack, and the shape of a generated topology package.

A generated stack package has, next to its topologies, ``rowwise.py`` (the row-wise operations of
the stack), ``layers.py`` (one class per kind of layer, which the model binds) and, where rows are
placed or permuted on a rank, ``moves.py``. A topology package has ``layout.py`` (mesh, groups,
rows), one module of functions per batch variant, and ``__init__.py``, which is tables only. In
short, for a stack of attention + mlp layers on two ranks that cut attention by heads:

    # layers.py
    @dataclass(frozen=True, slots=True)
    class AttentionMlp:
        attention: AttentionBoundary
        mlp: FfnBoundary

        def bind(self, *, attention: Norm, mlp: Norm) -> AttentionMlp: ...

    Layer = AttentionMlp

    # tp2/layout.py
    MESH = Mesh((("attn_tp", 2, "attn_tp"),))

    class Groups:
        def __init__(self, provider: GroupProvider) -> None:
            self.tp = provider.collective(MESH, ("attn_tp",))

    class Rows: ...

    Batch = runtime.Batch[Groups, Rows]

    # tp2/ordinary.py
    def start_to_attention(at: At[Tensor], hidden: Tensor, batch: Batch, **shows: Any) -> Tensor:
        ...

    attention_leave = Left(owes=True)

    def attention_to_mlp(at: At[Tensor], hidden: Tensor, batch: Batch) -> Tensor:
        groups, stream = batch.groups, batch.stream
        if stream.due is not at.here or hidden is not stream.handle:
            return at.detour(hidden, batch)
        hidden, stream.value, stream.handle, stream.due = stream.value, None, None, at
        (norm,) = at.read
        hidden = groups.tp.all_reduce(hidden)
        hidden, stream.residual = add_rms_norm(hidden, stream.residual, norm.weight)
        return hidden

    def mlp_reduce(hidden: Tensor, batch: Batch) -> Tensor: ...
    mlp_leave = Left(owes=False)
    def mlp_to_norm(hidden: Tensor | OwedOutput, batch: Batch, norm: Norm) -> Tensor: ...

    # tp2/__init__.py
    COLUMNS = (Column("ordinary"),)

    START_TO_ATTENTION = (ordinary.start_to_attention,)
    ...
    MLP_EXIT = (
        ExitDecision(
            fuse_mlp_allreduce=False, mlp_reduce_scatter=False,
            reduce=ordinary.mlp_reduce, leave=ordinary.mlp_leave,
        ),
    )

    def _table() -> Table[Layer]:
        layer = AttentionMlp(
            attention=AttentionBoundary(START_TO_ATTENTION, ATTENTION_LEAVE),
            mlp=FfnBoundary(ATTENTION_TO_MLP, MLP_EXIT),
        )
        return Table(layers=((1, layer),), norm=MLP_TO_NORM)

    AR = _table()
    TABLES = {"auto": AR, "ar": AR, "rs": AR, "rsv": AR, "rs+rsv": AR}

    class Stack(runtime.Stack[Groups, Rows, Layer]):
        mesh, columns, tables = MESH, COLUMNS, TABLES
        groups_type, rows_type = Groups, Rows

What a model may do between two stages has functions of its own in ``tp2/ordinary_access.py``: an
`Access` that the exit leaves in the stream (``Left(owes=True, access=...)``), and for each
boundary a `Resume` per column (``AttentionBoundary(..., resume=...)``, ``Table(norm_resume=...)``)
that goes on from an output which was completed early or from a written residual. Without them a
plain forward runs, and using an output is refused.

Boundaries are tuples with one entry per column. Those that differ between policies are keyword
parameters of ``_table``; policies with equal plans share one. ``layers`` are runs, (count, unbound
layer): a stack of a thousand layers is no longer than one of four.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic

from torch import Tensor

from boundaryc.runtime import access, handshake, overlap, pipeline
from boundaryc.runtime.announce import announce
from boundaryc.runtime.batch import Batch, GroupsT, LeavingBatch, RowsT
from boundaryc.runtime.builder import BatchBuilder
from boundaryc.runtime.captures import Capture
from boundaryc.runtime.collectives import GroupProvider
from boundaryc.runtime.columns import Column
from boundaryc.runtime.completed import completed
from boundaryc.runtime.connect import connected, loaded
from boundaryc.runtime.crossing import crossing, transfer_of
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.extras import Extras, add_extras
from boundaryc.runtime.extras import after as extras_after
from boundaryc.runtime.facts import Embeddings, Mode, Padding
from boundaryc.runtime.members import Cut
from boundaryc.runtime.mesh import Mesh
from boundaryc.runtime.owed import OwedOutput
from boundaryc.runtime.pipeline import PayloadTensor, Transfer, Travelling
from boundaryc.runtime.shards import ContextParallel
from boundaryc.runtime.stream import Form, StreamState
from boundaryc.runtime.table import LayerT, Table

_OWN = "this rank's layers; run all of them"
WHOLE = "the stack; run all of its layers"
"""Whose last stage something follows, in messages."""


class Stack(Generic[GroupsT, RowsT, LayerT]):
    """The boundaries of one stack on one topology; generated subclasses supply the tables.

    ``groups`` provides this rank's collectives, ``policy`` names one of the stack's tables,
    ``layers`` is the consecutive range of layers that this rank runs, all of them by default.
    ``manifest_hash`` identifies the generated tree; ``stack_name`` and ``topology`` say what the
    class is of, which by default its module's name says. ``captures`` are the names of the stack
    file's captures, ``extras`` its extra contributions and the layers that they follow, ``entry``
    is what it says of the stack's input, ``segments`` whether a forward may stop between layers,
    ``overlaps`` whether batches may be split, ``travels`` which captures go on to later pipeline
    stages.

    ``BOUNDARYC_TRACE=DIR`` records every collective there, see `trace`. ``BOUNDARYC_CHECK=1``
    compares what the ranks loaded, and at every `start` what they run, see `handshake`, and refuses
    sums that nobody owes, see `replicas`, and outputs that nobody summed, see `completed`.
    """

    manifest_hash: str = ""
    captures: tuple[str, ...] = ()
    extras: Extras = ()
    entry: Embeddings = "complete"
    segments: bool = False
    overlaps: bool = False
    travels: tuple[Travelling, ...] = ()
    stack_name: str = ""
    topology: str = ""

    mesh: Mesh
    columns: tuple[Column, ...]
    groups_type: Callable[[GroupProvider], GroupsT]
    rows_type: Callable[[Cut], RowsT]
    tables: Mapping[str, Table[LayerT]]

    def __init__(
        self, groups: GroupProvider, *, policy: str = "auto", layers: range | None = None
    ) -> None:
        depth = next(iter(self.tables.values())).depth
        about = self._named() | loaded(policy, range(depth) if layers is None else layers)
        check = handshake.whole_stage(groups, self.mesh.size) if handshake.is_asked_for() else None
        if check is not None:
            # Before anything that can fail on one rank only, and before groups are made.
            check.compare("the first step", about)
        table = self.tables.get(policy)
        if table is None:
            raise ValueError(f"unknown policy {policy!r}; known: {', '.join(sorted(self.tables))}")
        every = range(table.depth)
        layers = every if layers is None else layers
        consecutive = isinstance(layers, range) and layers.step == 1 and bool(layers)
        if not consecutive or layers[0] not in every or layers[-1] not in every:
            raise ValueError(f"layers must be consecutive ones of {every} as a range, not {layers}")
        self.rank = groups.rank
        self.groups, self._check = connected(groups, type(self).groups_type, check, about)
        self.policy, self.layers, self._table = policy, layers, table
        self._first, self._end = table.stages_before(layers[0]), table.stages_before(table.depth)
        self._stop = table.stages_before(layers.stop)
        self._batches = BatchBuilder(
            *(self.mesh, self.rank, self.columns, self.groups, type(self).rows_type, self.entry),
            segments=self.segments,
            overlaps=self.overlaps,
            checks=self._check is not None,
        )
        announce(type(self), self.rank, about)

    def _named(self) -> dict[str, object]:
        """Whose boundaries these are, for traces and handshakes."""
        module = ("", *type(self).__module__.split("."))
        named = (self.stack_name or module[-2], self.topology or module[-1], self.manifest_hash)
        return dict(zip(("stack", "topology", "manifest"), named, strict=True))

    def batch(
        self,
        *,
        rows_per_dp: Sequence[int],
        padding: Padding,
        mode: Mode,
        sequence_parallel: bool = False,
        cp: ContextParallel | None = None,
        input_scattered: bool = False,
        embeddings: Embeddings | None = None,
    ) -> Batch[GroupsT, RowsT]:
        """The batch of one forward, from facts equal on all ranks.

        ``rows_per_dp`` are the token rows of each attention DP group. ``padding``: "sum_len" rounds
        each group up to the variant's row multiple, "max_len" pads all groups to the largest so
        rounded, "unpadded" keeps them. ``sequence_parallel`` keeps the residual on token slices;
        from how many tokens on that pays is the engine's choice. ``cp`` cuts the tokens of a
        prefill over attention CP ranks if every request is long enough to give each a row; the
        batch has ordinary rows otherwise. ``input_scattered`` gives attention slices of the input;
        then ``embeddings`` may be "partial", still owing the sum over attention TP ranks. In a
        stack whose file says ``entry: partial`` it always is; None is what the file says.

        TypeError for a missing fact, ValueError naming a wrong one or those that contradict each
        other, BoundaryError where the stack has no path for such a batch.
        """
        return self._batches.build(
            rows_per_dp=rows_per_dp,
            padding=padding,
            mode=mode,
            sequence_parallel=sequence_parallel,
            cp=cp,
            input_scattered=input_scattered,
            embeddings=self.entry if embeddings is None else embeddings,
        )

    def layer(self, index: int) -> LayerT:
        """The unbound boundaries of one layer; IndexError outside ``layers``."""
        if index not in self.layers:
            raise IndexError(
                f"layer {index} is not one of this stack's layers "
                f"{self.layers.start}..{self.layers.stop - 1}"
            )
        behind_a_cut = 0 < self._first == self._table.stages_before(index)
        entrance = self.from_pp if behind_a_cut else None
        layer = self._table.placed(index, entrance, extras_after(self.extras, index))
        return layer if self._check is None else completed(layer, self._table.behind(index))

    # What the model may do with an output between two stages.
    complete_output = staticmethod(access.complete_output)
    fold = staticmethod(access.fold)
    written = staticmethod(access.written)
    snapshot = staticmethod(access.snapshot)
    add_to_output = staticmethod(access.add_to_output)
    merge = staticmethod(overlap.merge)

    def add_extras(
        self,
        hidden: Tensor | OwedOutput,
        batch: Batch[GroupsT, RowsT],
        /,
        **given: Tensor | None,
    ) -> Tensor | OwedOutput:
        """Adds the extra contributions of the stack file to a layer's output; that to go on with.

        Called once after each layer that has any, with all of them by name, on the stack's rows;
        None for one that this batch is without, on all ranks alike. Each is added as by
        `add_to_output`; where none is given the output is left as it is. TypeError for a missing or
        an unknown one. What follows without them is refused, but not in a trace.
        """
        travels = self.layers.stop < self._table.depth and batch.stream.at == self._stop
        return add_extras(hidden, batch, given, self.extras, travels=travels)

    def take_output(self, hidden: Tensor | OwedOutput, batch: Batch[GroupsT, RowsT]) -> Tensor:
        """Ends the stream of a stack whose output is already written, and returns that output.

        BoundaryError while an update is pending, and before the last stage of this rank's layers
        where the model did not write the stream itself; the stream is kept then.
        """
        stream = batch.stream
        stream.check(hidden)
        stream.ended(self._stop, "the final output", _OWN)
        return access.take_output(hidden, batch)

    def start(self, batch: Batch[GroupsT, RowsT]) -> None:
        """Starts the residual stream of a forward; whatever a failed one left is dropped.

        BoundaryError where ``BOUNDARYC_CHECK`` is set and ranks start different batches.
        """
        if self._check is not None:
            self._check.compare("a forward", {"plan": batch.plan, **batch.facts.stated()})
        batch.start(self.captures, self._first)

    def split(
        self,
        hidden: Tensor | OwedOutput,
        batch: Batch[GroupsT, RowsT],
        children: Sequence[Batch[GroupsT, RowsT]],
    ) -> tuple[Tensor, Tensor]:
        """What each of the two ``children`` goes on with, in a stream of its own; see `overlap`."""
        if self._check is not None:
            stated = {f"of child {at}": child.facts.stated() for at, child in enumerate(children)}
            self._check.compare("a split", stated)
        return overlap.split(hidden, batch, children)

    def to_pp(self, hidden: Tensor | OwedOutput, batch: Batch[GroupsT, RowsT]) -> dict[str, Tensor]:
        """What the ranks that run the next layers go on with; the batch's stream ends here.

        Named tensors, see `payload`. Each rank sends its own to the rank with its number, which
        gives them to ``from_pp``. ``hidden`` is what the last stage of this rank's layers handed
        out, or what an accessor made of it. What must not travel is finished here: any sum where
        the stack file says ``payload: complete``, and an update or transform whose parameters only
        these ranks have.
        BoundaryError where ``hidden`` is another object or not the end of this rank's layers.
        """
        transfer = self._outgoing(batch)
        batch.stream.ended(self._stop, "to_pp", _OWN)
        batch.stream.check(hidden)
        batch.stream.settle("to_pp")
        captures = pipeline.captures_sent(transfer, self.travels, self._stop, batch)
        tensors = pipeline.sent(transfer, hidden, batch)
        batch.release()
        return tensors | captures

    def from_pp(
        self, tensors: Mapping[str, Tensor], batch: Batch[GroupsT, RowsT]
    ) -> Tensor | OwedOutput:
        """`from_pp` of the first stage of this rank's layers, also where they have no stage.

        It takes the place of `start`. BoundaryError for tensors that are not a payload of this cut.
        """
        transfer = self._incoming(batch)
        self.start(batch)
        rest = pipeline.captures_received(transfer, self.travels, self._first, tensors, batch)
        hidden = pipeline.received(transfer, rest, batch)
        batch.stream.goes_on(self._first)
        return hidden

    def payload(self, batch: Batch[GroupsT, RowsT], *, incoming: bool) -> tuple[PayloadTensor, ...]:
        """What crosses this rank's cut in such a batch, if the model leaves the output alone.

        But for the extras of the stack file. ``incoming``: what `from_pp` is given, else what
        `to_pp` returns. An output that the model completed, folded or wrote travels under other
        names.
        """
        transfer = self._incoming(batch) if incoming else self._outgoing(batch)
        before = self._first if incoming else self._stop
        kept = pipeline.captured_parts(transfer, self.travels, before)
        layer = self._table.layer_before(self.layers.start if incoming else self.layers.stop)
        parts = transfer.expected(changed=bool(extras_after(self.extras, layer)))
        return pipeline.described(transfer, (*parts, *kept), batch)

    def _outgoing(self, batch: Batch[GroupsT, RowsT]) -> Transfer:
        if self.layers.stop == self._table.depth:
            raise BoundaryError("these are the last layers: leave the stack through its final norm")
        if self._stop == 0:
            raise BoundaryError(
                "no stage has run yet: the ranks that run the first stage start the stack"
            )
        return transfer_of(self._table.resumes_at(self.layers.stop), batch)

    def _incoming(self, batch: Batch[GroupsT, RowsT]) -> Transfer:
        if self._first == 0:
            raise BoundaryError("this rank runs the first stage: start the stack instead")
        return transfer_of(self._table.resumes_at(self.layers.start), batch)

    def norm(
        self,
        hidden: Tensor | OwedOutput,
        batch: Batch[GroupsT, RowsT],
        *read: Any,
        skip_empty: bool = True,
        capture_output: Capture | None = None,
    ) -> Tensor:
        """The output of the final norm; the batch's stream ends here, before the norm runs.

        ``read`` is what the final read takes: a norm, and what `residual` may name beside it.
        A norm is not used where the stack file says ``kind: none``: the residual is the output.
        ``skip_empty``: on a rank that leaves the stack without rows, and did not change its last
        output, the norm is not run; what others wait in, such as a sum still owed, is.
        ``capture_output`` is given the updated residual, always as borrowed, on a rank without rows
        too: all ranks capture equally often.
        BoundaryError where ``hidden`` is not what the last stage handed out; the stream is kept.
        """
        stream, table = batch.stream, self._table
        if stream.state is not StreamState.INITIAL:
            stream.check(hidden)
            stream.ended(self._end, "the final norm", WHOLE)
            stream.settle("the final norm")
        final = crossing(table.norm[batch.plan], table.norm_resume, batch)
        empty = skip_empty and batch.stack_rows == 0 and stream.form is Form.PLANNED
        if empty and stream.state is not StreamState.INITIAL:
            final = table.without_rows(batch.plan, hidden)
        move = None
        if capture_output is not None and table.norm_resume:
            move = table.norm_resume[batch.plan].producer.move
        leaving = LeavingBatch(batch)
        result: Tensor = final(hidden, leaving, *read)
        if capture_output is not None:
            residual = stream.residual if move is None else move(stream.residual, leaving)
            capture_output(residual, owned=False)
        return result


AnyStack = Stack[Any, Any, Any]
"""A stack of any topology."""

AnyBatch = Batch[Any, Any]
"""A batch of any topology."""
