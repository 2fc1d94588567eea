"""What a stage hands on while its output still owes work."""

from __future__ import annotations

from typing import Any, NoReturn


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


class BranchOutput(OwedOutput):
    """The output of a stage that a branch ends with or is beside: it is merged and nothing else."""

    __slots__ = ()
