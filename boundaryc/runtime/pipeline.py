"""Pipeline cuts: what of a stream travels from the last stage of some ranks to the next ranks.

A payload is named tensors and nothing else, so it survives any transport. The names say in what
state they are: ``hidden_states`` with ``residual`` is a complete output whose update is pending and
its residual, ``residual`` alone is the written residual, all on the stack's rows. An output that
travels as its producer left it says so in its name, like ``hidden_states.owes_tp_on_all``. Nothing
that was summed can be summed again, and sides that disagree are told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from boundaryc.runtime.access import fold
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.handoffs import settle
from boundaryc.runtime.left import Access, Move
from boundaryc.runtime.mesh import Axes
from boundaryc.runtime.owed import OwedOutput
from boundaryc.runtime.stream import Form

if TYPE_CHECKING:
    from boundaryc.runtime.batch import Batch

HIDDEN, RESIDUAL, STATE = "hidden_states", "residual", "state"

Part = tuple[str, Axes]
"""A tensor of a payload: its name, and the atoms of the mesh that cut its rows."""

Entrance = Callable[[Mapping[str, Tensor], "Batch[Any, Any]"], Tensor | OwedOutput]
"""``(tensors, batch) -> output``: starts a batch's stream with what came from other ranks."""


Travelling = tuple[str, str, tuple[int, ...]]
"""A capture that goes on to later ranks: its name, whose rows it has ("producer" or "input"), and
the indices of the stages at whose entry it is taken."""


@dataclass(frozen=True, slots=True)
class PayloadTensor:
    """One tensor of a payload: [``rows``, width], of the dtype of the stack's hidden states.

    A residual of several streams is [``rows``, streams, width]; ``state.…``, what an update takes
    that a read kept, is [``rows``, columns], float32 unless the residual is wider. ``inner`` are
    the sizes behind the rows, None for the width of the hidden states.

    ``axes`` are the atoms of the mesh that cut its rows: ranks that differ on other atoms only hold
    the same rows. Where the name says that no sum is owed they hold equal numbers too, and a
    transport may slice the tensor over them and gather it.
    """

    name: str
    rows: int
    axes: Axes
    inner: tuple[int | None, ...] = (None,)


@dataclass(frozen=True, slots=True)
class Transfer:
    """What travels in one column where a boundary is a pipeline cut.

    ``rows`` are the atoms that cut the stack's rows, ``input_rows`` those that cut what travels of
    captures on the rows of token mixers' inputs. ``inputs_sent`` brings these captures there from
    the rows on which they were taken, and ``inputs_received`` back; None where they are the same.
    ``parts`` are the tensors of an output as its
    producer left it, the value first, none where it may not travel so; ``owes``: it owes a sum.
    Other outputs are finished first, by ``finish`` or, if they were completed early, by
    ``finish_completed``: ``written`` says that what these return is the written residual, else a
    complete output whose residual they leave in the stream, both on the stack's rows. None where
    that is what they are. ``received`` prepares from the latter. ``access`` and ``received_access``
    are what can be done with what arrives. ``streams`` are those of the residual; ``state`` has the
    names and columns of what travels on its rows for an update that is pending.
    """

    rows: Axes
    input_rows: Axes = ()
    inputs_sent: Move | None = None
    inputs_received: Move | None = None
    parts: tuple[Part, ...] = ()
    owes: bool = False
    written: bool = False
    finish: Move | None = None
    finish_completed: Move | None = None
    received: Callable[..., Any] | None = None
    access: Access | None = None
    received_access: Access | None = None
    streams: int = 1
    state: tuple[tuple[str, int], ...] = ()

    @property
    def finished(self) -> tuple[Part, ...]:
        """The tensors of an output that was finished."""
        kept = tuple((f"{STATE}.{name}", self.rows) for name, _ in self.state)
        return self._whole if self.written else ((HIDDEN, self.rows), *self._whole, *kept)

    @property
    def forms(self) -> tuple[tuple[Part, ...], ...]:
        """Every payload that the cut takes; the first is that of an output that nobody changed."""
        found = (self.parts or self.finished, self.finished, self._whole)
        return tuple(dict.fromkeys(found))

    def expected(self, *, changed: bool) -> tuple[Part, ...]:
        """The payload of an output that nobody changed but, if ``changed``, by adding to it."""
        if not changed:
            return self.forms[0]
        if self.owes or not self.parts:
            return self.finished
        return self._whole if len(self.parts) == 1 else self.parts

    @property
    def _whole(self) -> tuple[Part, ...]:
        return ((RESIDUAL, self.rows),)


def sent(
    transfer: Transfer, hidden: Tensor | OwedOutput, batch: Batch[Any, Any]
) -> dict[str, Tensor]:
    """The payload of ``hidden``; the stream is taken apart.

    What an exit deferred is done first, and an output of `postprocess` is folded. BoundaryError
    where ``hidden`` is not what the last stage handed out, or where such an output's update is not
    plain; the stream is kept then.
    """
    stream = batch.stream
    hidden = settle(hidden, batch)
    if stream.form is Form.HANDED:
        hidden = fold(hidden, batch)
    form = stream.form
    value = stream.check(hidden)
    if form is Form.WRITTEN:
        return {RESIDUAL: value}
    parts = transfer.parts if form is Form.PLANNED else ()
    if not parts:
        parts = transfer.finished
        finish: Move | None = None  # a received output is finished
        if form is not Form.RECEIVED:
            finish = transfer.finish if form is Form.PLANNED else transfer.finish_completed
        value = stream.take(hidden)
        value = value if finish is None else finish(value, batch)
    kept = stream.kept if transfer.state else ()  # else an earlier stage has used it
    tensors = (value,) if len(parts) == 1 else (value, stream.residual, *kept)
    return {name: tensor for (name, _), tensor in zip(parts, tensors, strict=True)}


def received(
    transfer: Transfer, tensors: Mapping[str, Tensor], batch: Batch[Any, Any]
) -> Tensor | OwedOutput:
    """Rebuilds a stream that was just started; what the last stage of other ranks handed out.

    BoundaryError where ``tensors`` are not a payload of this cut.
    """
    stream = batch.stream
    parts = _checked(transfer, tensors, batch)
    value, *rest = (tensors[name] for name, _ in parts)
    names = tuple(name for name, _ in parts)
    if names == (RESIDUAL,):
        return stream.write(value)
    as_left = parts == transfer.parts
    access = transfer.access if as_left else transfer.received_access
    stream.arrive(rest[0] if rest else None, tuple(rest[1:]))
    if as_left and transfer.owes:
        return stream.owe(value, access=access)
    if as_left and not rest:
        stream.residual = value
        return stream.keep(value, access)
    stream.pend(value, access=access)
    return stream.replace(value, Form.PLANNED if as_left else Form.RECEIVED)


def _checked(
    transfer: Transfer, tensors: Mapping[str, Tensor], batch: Batch[Any, Any]
) -> tuple[Part, ...]:
    """The form of a payload, whose tensors have the rows and the type that it must have."""
    found = next(
        (parts for parts in transfer.forms if tensors.keys() == {name for name, _ in parts}), None
    )
    if found is None:
        known = " or ".join(" and ".join(name for name, _ in parts) for parts in transfer.forms)
        raise BoundaryError(
            f"this pipeline cut takes {known}; it was given {_listed(tensors)}: both sides load "
            "the same stack, topology and policy and build the same batch"
        )
    like = found[0][0]
    for name, axes in found:
        alike = None if name.startswith(f"{STATE}.") else (like, tensors[like])
        _check(transfer, name, tensors[name], batch.rows_on(axes), alike)
    return found


def _check(
    transfer: Transfer, name: str, tensor: Tensor, rows: int, alike: tuple[str, Tensor] | None
) -> None:
    """BoundaryError where a tensor has not the sizes that its name says.

    ``alike`` is another one of the payload, whose width and dtype it must have, with its name.
    """
    inner = _inner(transfer, name)
    if tensor.dim() != 1 + len(inner) or tensor.shape[0] != rows:
        raise BoundaryError(
            f"`{name}` must have {rows} rows on this rank, not shape {list(tensor.shape)}"
        )
    if any(size not in (None, own) for size, own in zip(inner, tensor.shape[1:], strict=True)):
        raise BoundaryError(
            f"`{name}` must be {[rows, *(size or 'width' for size in inner)]} on this rank, "
            f"not {list(tensor.shape)}"
        )
    if alike is None:
        return
    other, value = alike
    if tensor.shape[-1] != value.shape[-1] or tensor.dtype != value.dtype:
        raise BoundaryError(
            f"`{name}` is {list(tensor.shape)} {tensor.dtype} where `{other}` is "
            f"{list(value.shape)} {value.dtype}; widths and dtypes are equal"
        )


def _inner(transfer: Transfer, name: str) -> tuple[int | None, ...]:
    """The sizes of a row of a tensor of a payload; None is the width of hidden states."""
    if name.startswith(f"{STATE}."):
        return (dict(transfer.state)[name.partition(".")[2]],)
    written = name.startswith((RESIDUAL, f"{HIDDEN}.written", "captured."))
    return (transfer.streams, None) if written and transfer.streams > 1 else (None,)


def _listed(tensors: Mapping[str, Tensor]) -> str:
    return " and ".join(sorted(tensors)) or "nothing"


def described(
    transfer: Transfer, parts: tuple[Part, ...], batch: Batch[Any, Any]
) -> tuple[PayloadTensor, ...]:
    """The tensors of a payload with their sizes on this rank."""
    return tuple(
        PayloadTensor(name, batch.rows_on(axes), axes, _inner(transfer, name))
        for name, axes in parts
    )


def captured_parts(
    transfer: Transfer, travels: tuple[Travelling, ...], before: int
) -> tuple[Part, ...]:
    """The captures that were taken at the entry of stages with an index below ``before``."""
    return tuple(
        (f"captured.{name}.{number}", transfer.rows if rows == "producer" else transfer.input_rows)
        for name, rows, places in travels
        for number, place in enumerate(places)
        if place < before
    )


def _on_inputs(travels: tuple[Travelling, ...]) -> set[str]:
    """The names of the captures that are taken on the rows of token mixers' inputs."""
    return {name for name, rows, _ in travels if rows == "input"}


def captures_sent(
    transfer: Transfer, travels: tuple[Travelling, ...], before: int, batch: Batch[Any, Any]
) -> dict[str, Tensor]:
    """The captures of a batch that travel, by name: those `captured_parts` names.

    All ranks call this alike: a collective may run. BoundaryError where one was not taken.
    """
    parts = captured_parts(transfer, travels, before)
    found = {
        f"captured.{name}.{number}": value
        for name, values in batch.captures.items()
        for number, value in enumerate(values)
    }
    missing = [name for name, _ in parts if name not in found]
    if missing:
        raise BoundaryError(f"{' and '.join(missing)} was not taken; run all layers before the cut")
    move, moved = transfer.inputs_sent, _on_inputs(travels)
    return {
        name: move(found[name], batch)
        if move is not None and name.split(".")[1] in moved
        else found[name]
        for name, _ in parts
    }


def captures_received(
    transfer: Transfer,
    travels: tuple[Travelling, ...],
    before: int,
    tensors: Mapping[str, Tensor],
    batch: Batch[Any, Any],
) -> dict[str, Tensor]:
    """Keeps the captures among ``tensors``; the other ones. BoundaryError where some are wrong."""
    parts = captured_parts(transfer, travels, before)
    move, moved = transfer.inputs_received, _on_inputs(travels)
    rest = dict(tensors)
    taken = {name: rest.pop(name, None) for name, _ in parts}
    like = next((name for name in rest if not name.startswith(f"{STATE}.")), None)
    alike = None if like is None else (like, rest[like])  # `received` refuses what has none
    for name, axes in parts:
        value = taken[name]
        if value is None:
            raise BoundaryError(f"`{name}` is missing: captures that travel go on at every cut")
        _check(transfer, name, value, batch.rows_on(axes), alike)
        capture = name.split(".")[1]
        if move is not None and capture in moved:
            value = move(value, batch)
        batch.captures[capture].append(value)
    return rest
