"""Whether custom operations keep what their facts say, tried on random numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from boundaryc.language.model import OperationDecl
from boundaryc.verify.fixture import HYPER, BiasedParameter
from boundaryc.verify.meaning import OperationError, load_operation

ROWS = 6
CLOSE = 1e-5
"""Largest difference of results that count as equal: an operation may compute in float32."""


def probe(declared: OperationDecl, width: int, seed: int = 0) -> None:
    """OperationError where an operation does not keep a fact that numbers can show.

    These are `plain_add`, `linear` and `row_wise`, of operations without inputs of every batch.
    """
    # What it is given in a batch, or that is no weight, only the model knows.
    if "per_call" in declared.facts or not HYPER.keys().isdisjoint(declared.params):
        return
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    params = [BiasedParameter(1 + 0.3 * normal(width)) for _ in declared.params]
    many = (declared.streams,) if declared.streams > 1 else ()

    def values() -> list[Tensor]:
        """Arguments on `ROWS` rows, as the role has them."""
        row, residual = normal(ROWS, width), normal(ROWS, *many, width)
        if declared.role == "update":
            return [row, residual, *(normal(ROWS, columns) for _, columns in declared.state)]
        return [residual if declared.role == "read" else row]

    def found(given: list[Tensor]) -> list[Tensor]:
        return _results(declared, [value.clone() for value in given], params)

    first, second = values(), values()
    if "plain_add" in declared.facts and not _close(found(first), [first[0] + first[1]]):
        raise _broken(declared, "plain_add", "its result is not contribution + residual")
    if "linear" in declared.facts:
        whole = found([one + other for one, other in zip(first, second, strict=True)])
        parts = [one + other for one, other in zip(found(first), found(second), strict=True)]
        if not _close(whole, parts):
            raise _broken(declared, "linear", "its result for a sum is not the sum of its results")
    if "row_wise" in declared.facts:
        some = found([value[1:3] for value in first])
        if not _close(some, [value[1:3] for value in found(first)]):
            raise _broken(declared, "row_wise", "two rows alone give other results than among six")


def _results(
    declared: OperationDecl, values: list[Tensor], params: Sequence[object]
) -> list[Tensor]:
    """All tensors of a result; the residual where an operation writes that."""
    try:
        result = load_operation(declared)(*values, *params)
    except (Exception, SystemExit) as problem:  # the user's code
        told = f"failed: {type(problem).__name__}: {problem}"
        raise OperationError(f"operation `{declared.name}` ({declared.call}) {told}") from problem
    return _tensors(values[1] if "writes_stream" in declared.facts else result)


def _tensors(result: object) -> list[Tensor]:
    if isinstance(result, tuple):
        return [tensor for part in result for tensor in _tensors(part)]
    return [result] if isinstance(result, Tensor) else []


def _close(found: list[Tensor], expected: list[Tensor]) -> bool:
    """Whether results are the same, but for rounding."""
    if len(found) != len(expected):
        return False
    return all(
        one.shape == other.shape and torch.allclose(one, other, rtol=CLOSE, atol=CLOSE)
        for one, other in zip(found, expected, strict=True)
    )


def _broken(declared: OperationDecl, fact: str, shown: str) -> OperationError:
    return OperationError(
        f"operation `{declared.name}` ({declared.call}) claims `{fact}`, but {shown}: correct the "
        "function, or leave the fact out"
    )
