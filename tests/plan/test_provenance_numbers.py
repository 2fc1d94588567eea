"""The checker against arithmetic: plans run on numbers modulo a prime, on lists, rank by rank.

This shares no code with the checker. Every operation that is not a sum is nonlinear here, so a
wrong sum, order or multiplicity changes a number.
"""

from __future__ import annotations

import itertools
import random
from math import prod
from typing import TYPE_CHECKING

import pytest

from boundaryc.plan import ops as o
from boundaryc.plan.provenance import Reason, check
from boundaryc.plan.provenance_batches import count_vectors, size_vectors
from tests.plan.hand_plans import ALL, RIGHT, HandPlan
from tests.plan.mutations import mutations

if TYPE_CHECKING:
    from collections.abc import Sequence

PRIME = (1 << 61) - 1

RULES = {Reason.HAND_OFF, Reason.HAND_OFF_STATE, Reason.JOIN, Reason.READ_ROWS}
"""Reasons that refuse a plan whose numbers may be right."""


class _CannotRunError(Exception):
    """The ranks would hang, or a shape would not fit."""


class _Numbers:
    """All ranks of one mesh, with numbers for rows."""

    def __init__(self, plan: HandPlan, sizes: tuple[int, ...], counts: tuple[int, ...]) -> None:
        self.plan, self.sizes = plan, sizes
        self.ranks = list(itertools.product(*(range(size) for size in sizes)))
        first = [0, *itertools.accumulate(counts)]
        self.leaf = dict(zip(self.ranks, itertools.pairwise(first), strict=True))
        self.source = random.Random(5)
        owed = sorted({self.at(rank, plan.start.owes) for rank in self.ranks})
        if plan.start.phase == "stream":
            owed = []
        self.partial = {key: self.draw(first[-1]) for key in owed}
        self.base = self.draw(first[-1])
        self.phase = plan.start.phase
        self.rows, self.owes = plan.start.rows, plan.start.owes
        self.residual_rows = plan.start.residual
        self.joined = False
        self.residual = None
        if self.residual_rows is not None:
            self.residual = self.spread(lambda _, t: self.base[t], self.residual_rows)
        self.value = self.spread(
            lambda rank, t: (
                self.partial[self.at(rank, plan.start.owes)][t] if self.partial else self.base[t]
            ),
            self.rows,
        )

    def draw(self, count: int) -> list[int]:
        return [self.source.randrange(PRIME) for _ in range(count)]

    def at(self, rank: tuple[int, ...], mask: int) -> tuple[int, ...]:
        return tuple(place for index, place in enumerate(rank) if mask >> index & 1)

    def tokens(self, rank: tuple[int, ...], rows: int) -> list[int]:
        agree = [other for other in self.ranks if self.at(other, rows) == self.at(rank, rows)]
        return [token for other in agree for token in range(*self.leaf[other])]

    def spread(self, number, rows):
        return {
            rank: [number(rank, token) for token in self.tokens(rank, rows)] for rank in self.ranks
        }

    def peers(self, rank: tuple[int, ...], axes: int) -> list[tuple[int, ...]]:
        rest = ~axes & ((1 << len(self.sizes)) - 1)
        return [other for other in self.ranks if self.at(other, rest) == self.at(rank, rest)]

    def update(self, contribution: int, residual: int) -> int:
        if self.plan.start.joins_sum:
            return (contribution + residual) % PRIME
        return (3 * contribution * contribution + residual) % PRIME

    def transform(self, x: int) -> int:
        return 5 * x % PRIME if self.plan.start.transform_linear else (x * x + 1) % PRIME

    @staticmethod
    def enter(x: int) -> int:
        return (x * x + 3) % PRIME

    @staticmethod
    def read(x: int) -> int:
        return (x * x * x + 7) % PRIME

    def added(self, held, axes: int):
        out = {}
        for rank in self.ranks:
            lists = [held[peer] for peer in self.peers(rank, axes)]
            if len({len(rows) for rows in lists}) > 1:
                raise _CannotRunError
            out[rank] = [sum(column) % PRIME for column in zip(*lists, strict=True)]
        return out

    def taken(self, held, axes: int, finer: int, fixed: bool = False):
        out = {}
        for rank in self.ranks:
            peers = self.peers(rank, axes)
            sizes = [len(self.tokens(peer, finer)) for peer in peers]
            start = sum(sizes[: peers.index(rank)])
            if sum(sizes) != len(held[rank]) or (fixed and len(set(sizes)) > 1):
                raise _CannotRunError
            out[rank] = held[rank][start : start + sizes[peers.index(rank)]]
        return out

    def joined_up(self, held, axes: int, finer: int, variable: bool):
        out = {}
        for rank in self.ranks:
            peers = self.peers(rank, axes)
            sizes = [len(held[peer]) for peer in peers]
            if variable and sizes != [len(self.tokens(peer, finer)) for peer in peers]:
                raise _CannotRunError
            if not variable and len(set(sizes)) > 1:
                raise _CannotRunError
            out[rank] = [number for peer in peers for number in held[peer]]
        return out

    def placed(self, held, gather: int):
        out = {}
        for rank in self.ranks:
            out[rank] = []
            for peer in self.peers(rank, gather):
                size = len(self.tokens(peer, self.rows))
                if size != len(held[peer]):
                    raise _CannotRunError
                out[rank] += held[peer] if peer == rank else [0] * size
        return out

    def move(self, op) -> bool:
        if self.phase == "stream":
            self.residual, self.residual_rows = self.value, self.rows
        rows, held = self.rows, self.value
        match op:
            case o.AllReduce(axes) | o.QuantizedAllReduce(axes):
                self.value, self.owes = self.added(held, axes), self.owes & ~axes
            case o.ReduceScatter(axes, variable):
                self.rows, self.owes = rows | axes, self.owes & ~axes
                self.value = self.taken(self.added(held, axes), axes, rows | axes, not variable)
            case o.AllGather(axes, variable):
                self.value, self.rows = self.joined_up(held, axes, rows, variable), rows & ~axes
            case o.Slice(axes):
                self.value, self.rows = self.taken(held, axes, rows | axes), rows | axes
            case o.GatherSum(gather, total):
                self.value = self.added(self.placed(held, gather), gather | total)
                self.rows, self.owes = rows & ~gather, self.owes & ~total
            case o.ResidualGather(axes, variable):
                self.need_residual()
                self.residual = self.joined_up(self.residual, axes, self.residual_rows, variable)
                self.residual_rows &= ~axes
            case o.ResidualSlice(axes):
                self.need_residual()
                self.residual_rows |= axes
                self.residual = self.taken(self.residual, axes, self.residual_rows)
            case _:
                return False
        if self.phase == "stream":
            if isinstance(op, o.ResidualGather | o.ResidualSlice):
                self.value, self.rows = self.residual, self.residual_rows
            else:
                self.residual, self.residual_rows = self.value, self.rows
        return True

    def need_residual(self) -> None:
        if self.residual is None:
            raise _CannotRunError

    def need(self, phase: str) -> None:
        if self.phase != phase:
            raise _CannotRunError

    def step(self, op) -> None:
        if self.phase == "contribution" and self.joined and not self.owes:
            self.phase, self.joined = "stream", False
            self.residual, self.residual_rows = self.value, self.rows
        if self.move(op):
            return
        match op:
            case o.Transform():
                self.need("contribution")
                self.value = {r: [self.transform(x) for x in v] for r, v in self.value.items()}
            case o.Update():
                self.need("contribution")
                self.need_residual()
                for rank in self.ranks:
                    if len(self.value[rank]) != len(self.residual[rank]):
                        raise _CannotRunError
                    pairs = zip(self.value[rank], self.residual[rank], strict=True)
                    self.value[rank] = [self.update(c, r) for c, r in pairs]
                self.phase = "stream"
                self.residual, self.residual_rows = dict(self.value), self.rows
            case o.Join():
                self.need("contribution")
                self.join()
            case o.Enter():
                self.need("initial")
                self.value = {r: [self.enter(x) for x in v] for r, v in self.value.items()}
                self.phase, self.residual, self.residual_rows = "stream", self.value, self.rows
            case o.Read():
                self.need("stream")
                self.residual, self.residual_rows = self.value, self.rows
                self.value = {r: [self.read(x) for x in v] for r, v in self.value.items()}
                self.phase = "input"

    def join(self) -> None:
        self.need_residual()
        chosen = self.owes & ~self.residual_rows
        for rank in self.ranks:
            if any(self.at(rank, chosen)):
                continue
            places = {token: i for i, token in enumerate(self.tokens(rank, self.rows))}
            own = self.tokens(rank, self.residual_rows)
            value = list(self.value[rank])
            for token, number in zip(own, self.residual[rank], strict=True):
                if token not in places or len(places) != len(value):
                    raise _CannotRunError
                value[places[token]] = (value[places[token]] + number) % PRIME
            self.value[rank] = value
        self.residual, self.joined = None, True

    def expected(self):
        """What the declared boundary means, token by token, without any move."""
        start, goal = self.plan.start, self.plan.goal
        stream = []
        for token, base in enumerate(self.base):
            total = sum(partial[token] for partial in self.partial.values()) % PRIME
            if start.transform:
                total = self.transform(total)
            if start.phase == "contribution":
                stream.append(self.update(total, base))
            else:
                stream.append(self.enter(total) if start.phase == "initial" else base)
        value = self.spread(lambda _, t: self.read(stream[t]), goal.rows)
        return value, self.spread(lambda _, t: stream[t], goal.residual)


def _right_numbers(
    plan: HandPlan, ops: Sequence[o.Operation], sizes: tuple[int, ...], counts: tuple[int, ...]
) -> bool:
    numbers = _Numbers(plan, sizes, counts)
    wanted = numbers.expected()
    try:
        for op in ops:
            numbers.step(op)
    except _CannotRunError:
        return False
    return numbers.phase == "input" and (numbers.value, numbers.residual) == wanted


def _cases(plan: HandPlan):
    """Meshes of up to 12 ranks and their batches that have rows at all."""
    for sizes in size_vectors(plan.atoms):
        for counts in count_vectors(sizes, plan.even) if prod(sizes) <= 12 else ():
            if any(counts):
                yield sizes, counts


def _judge(plan: HandPlan, ops: Sequence[o.Operation], what: str) -> tuple[bool, bool]:
    """Compare checker and numbers case by case; return whether both were right everywhere."""
    accepted = numbers = True
    for sizes, counts in _cases(plan):
        faults = check(ops, sizes=sizes, start=plan.start, goal=plan.goal, counts=counts)
        right = _right_numbers(plan, ops, sizes, counts)
        reasons = {fault.reason for fault in faults}
        assert right or faults, (plan.name, what, sizes, counts)
        assert not right or reasons <= RULES, (plan.name, what, sizes, counts, reasons)
        accepted &= not faults
        numbers &= right
    return accepted, numbers


@pytest.mark.parametrize("plan", ALL, ids=lambda plan: plan.name)
def test_hand_plans_agree_with_numbers(plan: HandPlan) -> None:
    """Every hand-written plan is judged alike by marks and by numbers, case by case."""
    accepted, _ = _judge(plan, plan.ops, "the plan")
    assert accepted == (not plan.reasons)


def test_what_changes_a_number_is_rejected() -> None:
    """No damage that changes a number, or that cannot run, passes the checker."""
    changed = 0
    for plan in RIGHT:
        for what, mutated in mutations(plan.ops, atoms=plan.atoms):
            _, numbers = _judge(plan, mutated, what)
            changed += not numbers
    assert changed >= 500
