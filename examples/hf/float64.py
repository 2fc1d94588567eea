"""Hugging Face models in float64 throughout.

Models compute norms, softmax and rotary tables in float32 whatever their dtype is. With these
casts made to float64 the only differences left are those of the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Float64(TorchFunctionMode):
    """Within it whatever asks for float32 gets float64."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls ``func`` with float64 in place of float32."""
        if func is Tensor.float:
            return args[0].double()
        if any(one is torch.float32 for one in args):  # a tensor is slow to compare with it
            args = tuple(torch.float64 if one is torch.float32 else one for one in args)
        kwargs = kwargs or {}
        if kwargs.get("dtype") is torch.float32:
            kwargs = {**kwargs, "dtype": torch.float64}
        return func(*args, **kwargs)
