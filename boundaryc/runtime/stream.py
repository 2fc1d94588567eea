"""The residual of one forward and the contribution that is still to be added to it."""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn

from torch import Tensor

from boundaryc.runtime.errors import BoundaryError

_NOT_STARTED = "start the layer stack before entering a stage"
_FOREIGN = (
    "output does not belong to this residual stream; "
    "change layer outputs through boundary accessors"
)
_OCCUPIED = "a contribution is already pending; prepare the next stage before finishing another"


class StreamState(Enum):
    """Where a stream is between two stages."""

    UNSTARTED = "unstarted"  # no forward is running
    INITIAL = "initial"  # neither residual nor contribution
    WRITTEN = "written"  # residual, no pending contribution
    PENDING = "pending"  # a contribution whose update has not run


class OwedOutput:
    """An opaque handle of an unfinished output: pass it to the next boundary, do nothing else.

    Every use as a tensor raises TypeError.
    """

    __slots__ = ()

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "this output still owes a sum and is not a tensor; pass it unchanged to the next "
            "boundary of the stack"
        )

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "this output still owes a sum and is not a tensor; a torch function cannot use it"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            # Python and torch.compile probe for protocols: this object has none.
            raise AttributeError(name)
        self._refuse()

    __setattr__ = __delattr__ = _refuse
    __bool__ = __len__ = __iter__ = __contains__ = __int__ = __float__ = __index__ = _refuse
    __getitem__ = __setitem__ = __delitem__ = _refuse
    __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __isub__ = _refuse
    __mul__ = __rmul__ = __imul__ = __truediv__ = __rtruediv__ = __itruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse
    __matmul__ = __rmatmul__ = __imatmul__ = __neg__ = __pos__ = __abs__ = __invert__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __eq__ = __ne__ = _refuse
    __hash__ = object.__hash__
    __array__ = _refuse
    __reduce_ex__ = _refuse


class ResidualStream:
    """The residual and the producer's contribution, carried from one boundary to the next.

    ``residual`` is set by whoever writes the stream and is unset before. ``params`` are those of
    the producer's update. Every value handed to the model is taken back by identity, once.
    """

    __slots__ = ("handle", "params", "residual", "state", "value")

    residual: Tensor
    state: StreamState
    handle: Tensor | OwedOutput | None
    value: Tensor | None
    params: tuple[Any, ...]

    def __init__(self, state: StreamState = StreamState.INITIAL) -> None:
        self.state = state
        self.handle = None
        self.value = None
        self.params = ()

    def enter(self, hidden: Tensor) -> Tensor:
        """Opens an initial stream with the stack's input; the caller sets ``residual``.

        BoundaryError where no stream was started for this forward.
        """
        if self.state is not StreamState.INITIAL:
            raise BoundaryError(_NOT_STARTED)
        self.state = StreamState.WRITTEN
        return hidden

    def take(self, hidden: Tensor | OwedOutput) -> Tensor:
        """The value behind what the last stage handed out; the stream is written afterwards.

        BoundaryError where ``hidden`` is another object or no stream was started.
        """
        value = self.value
        if value is None or hidden is not self.handle:
            raise BoundaryError(_NOT_STARTED if self.state is StreamState.UNSTARTED else _FOREIGN)
        self.handle = None
        self.value = None
        self.state = StreamState.WRITTEN
        return value

    def owe(self, value: Tensor, params: tuple[Any, ...] = ()) -> OwedOutput:
        """Leaves a contribution whose sum is not complete; the model gets an opaque handle."""
        handle = OwedOutput()
        self._leave(value, handle, params)
        return handle

    def pend(self, value: Tensor, params: tuple[Any, ...] = ()) -> Tensor:
        """Leaves a complete contribution whose update has not run; the model gets it back."""
        self._leave(value, value, params)
        return value

    def keep(self, value: Tensor) -> Tensor:
        """Leaves a written stream: the update already ran, ``value`` is what the next one takes."""
        self._leave(value, value, ())
        self.state = StreamState.WRITTEN
        return value

    def _leave(self, value: Tensor, handle: Tensor | OwedOutput, params: tuple[Any, ...]) -> None:
        if self.state is not StreamState.WRITTEN or self.handle is not None:
            raise BoundaryError(
                _OCCUPIED if self.handle is not None else _NOT_STARTED,
            )
        self.state = StreamState.PENDING
        self.handle = handle
        self.value = value
        self.params = params
