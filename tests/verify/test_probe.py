"""Facts that operations claim are tried on numbers before anything else runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from boundaryc.language.model import OperationDecl, Role
from boundaryc.verify.meaning import OperationError
from boundaryc.verify.probe import probe


def squared_add(contribution: Tensor, residual: Tensor) -> Tensor:
    """No plain addition."""
    return residual + contribution.square()


def shifted(output: Tensor) -> Tensor:
    """Affine: its sum over ranks has the shift once for each."""
    return output + 1.0


def halved(output: Tensor) -> Tensor:
    """Linear, and row by row."""
    return 0.5 * output


def over_rows(residual: Tensor) -> tuple[Tensor, Tensor]:
    """A read whose rows depend on each other, but not in what it makes of the residual."""
    return residual - residual.mean(dim=0), residual


def written_add(contribution: Tensor, residual: Tensor) -> None:
    """A plain addition in place."""
    residual.add_(contribution)


def declared(name: str, role: Role, *facts: str) -> OperationDecl:
    """An operation of this module with these facts."""
    none: frozenset[str] = frozenset()
    return OperationDecl(name, role, f"{__name__}:{name}", frozenset(facts), (), none, none)


@pytest.mark.parametrize(
    ("operation", "fact"),
    [
        (declared("squared_add", "update", "plain_add"), "plain_add"),
        (declared("shifted", "transform", "linear", "row_wise"), "linear"),
        (declared("over_rows", "read", "row_wise", "rewrites_residual"), "row_wise"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_false_fact_is_named(operation: OperationDecl, fact: str) -> None:
    """The message says which operation, which fact and what to do."""
    with pytest.raises(OperationError, match=f"claims `{fact}`, but .* leave the fact out"):
        probe(operation, width=8)


@pytest.mark.parametrize(
    "operation",
    [
        declared("halved", "transform", "linear", "row_wise"),
        declared("written_add", "update", "plain_add", "row_wise", "writes_stream"),
        declared("over_rows", "read", "rewrites_residual"),
        declared("shifted", "transform", "row_wise"),
    ],
    ids=lambda one: one.name,
)
def test_facts_that_hold_pass(operation: OperationDecl) -> None:
    """What an operation does not claim is not asked of it; arguments are not written."""
    torch.manual_seed(0)
    probe(operation, width=8)
