"""Terms that every rank holds whole and that belong into a sum once: a bias, a shared expert.

How such a term enters is declared once, in the stack file, and generated code adds it so. What a
weight loader or a kernel adds by itself is checked here against the declaration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

Bare = tuple[Tensor | None]
"""What an output was before terms were added to it; None in it where that was not kept."""

Multiplicity = Literal["rank0", "divided", "after_sum"]


@dataclass(frozen=True, slots=True)
class Additive:
    """A replicated additive term of a partial output and how it enters the sum.

    "rank0": the first rank of the group adds it to its partial; "divided": every rank adds its
    even share; "after_sum": it is added to the complete sum. ValueError for another multiplicity.
    """

    name: str
    multiplicity: Multiplicity

    def __post_init__(self) -> None:
        if self.multiplicity not in get_args(Multiplicity):
            raise ValueError(
                f"{self.name} has multiplicity {self.multiplicity!r}; it must be one of "
                f"{', '.join(get_args(Multiplicity))}"
            )

    def check(self, shares: Sequence[Tensor], term: Tensor) -> None:
        """Checks what each rank really added before the sum, in group order, against ``term``.

        ValueError where the shares do not add up to the term, or to nothing for "after_sum": a
        loader that divides a term which compute divides as well is found here. ValueError too for
        no shares, shares of another shape than the term, and a term that is empty or not floating.
        """
        self._checked(shares, term)
        total = torch.stack([share.to(torch.float64) for share in shares]).sum(dim=0)
        expected = term.to(torch.float64)
        if self.multiplicity == "after_sum":
            expected = torch.zeros_like(expected)
        # What one rounding of each share in the term's dtype can add up to.
        close = max(torch.finfo(term.dtype).eps * len(shares), 1e-12)
        if not torch.allclose(total, expected, rtol=close, atol=close * float(term.abs().max())):
            raise ValueError(
                f"{self.name} is declared `{self.multiplicity}`, but what {len(shares)} ranks add "
                "before the sum does not add up to it once"
            )

    def _checked(self, shares: Sequence[Tensor], term: Tensor) -> None:
        if not term.is_floating_point() or not term.numel():
            raise ValueError(
                f"{self.name}: a term is floating and not empty, this one is {term.dtype} "
                f"{list(term.shape)}"
            )
        if not shares:
            raise ValueError(f"{self.name}: there are no shares; give what each rank adds")
        for rank, share in enumerate(shares):
            if share.shape != term.shape:
                raise ValueError(
                    f"{self.name}: the share of rank {rank} is {list(share.shape)}, the term "
                    f"{list(term.shape)}"
                )


def bare(hidden: Tensor, terms: Mapping[str, Tensor], *, kept: bool) -> Bare | None:
    """What is known of ``hidden`` once ``terms`` are added to it; None if there are none.

    ``kept``: what it was, for a check of what ranks really computed.
    """
    return (hidden if kept else None,) if terms else None


def add_term(hidden: Tensor, term: Tensor, parts: int = 1) -> Tensor:
    """``hidden`` [rows, width] with one part of ``parts`` of ``term`` added, rounded once.

    ``term`` is [width] or like ``hidden``, of any floating dtype. The result has the dtype of
    ``hidden``, also on ranks that add nothing, so that all ranks sum one dtype. ValueError for
    another shape, TypeError for what is no floating tensor.
    """
    check_term(hidden, term)
    accumulate = torch.promote_types(torch.promote_types(hidden.dtype, term.dtype), torch.float32)
    wide = term.to(accumulate)
    if parts != 1:
        wide = wide / parts
    return (hidden.to(accumulate) + wide).to(hidden.dtype)


def check_term(hidden: Tensor, term: Tensor) -> None:
    """Refuses what `add_term` refuses: on ranks that do not add a term, which would go on alone."""
    if not isinstance(term, Tensor) or not term.is_floating_point():
        what = term.dtype if isinstance(term, Tensor) else type(term).__name__
        raise TypeError(f"an additive term is a floating tensor, not {what}")
    if term.shape not in (hidden.shape, hidden.shape[-1:]):  # torch would broadcast
        raise ValueError(
            f"an additive term of shape {list(term.shape)} does not fit an output of shape "
            f"{list(hidden.shape)}: it is [width], or rows like those of the output"
        )
