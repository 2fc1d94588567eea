"""The boundaries of a whole stack under one policy, as its generated tables have them."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, Generic, TypeVar, cast

from torch import Tensor

from boundaryc.runtime.batch import Batch
from boundaryc.runtime.crossing import Prepare, Resumes
from boundaryc.runtime.owed import OwedOutput
from boundaryc.runtime.pipeline import Entrance
from boundaryc.runtime.places import Place, Position, before

LayerT = TypeVar("LayerT")


@dataclass(frozen=True, slots=True)
class Table(Generic[LayerT]):
    """The boundaries of a whole stack under one policy.

    ``layers`` are runs of equal unbound layers, (count, layer), in order; ``norm`` are the
    functions that read the final norm's input, one per column, and ``norm_resume`` how they are
    reached from other forms of the stream. ``norm_empty`` are called in their place on a rank that
    leaves the stack without rows: None where ``norm`` does not communicate, else a function that
    does the same without the norm, or the same function.
    """

    layers: tuple[tuple[int, LayerT], ...]
    norm: tuple[Prepare, ...]
    norm_resume: Resumes = ()
    norm_empty: tuple[Prepare | None, ...] = ()

    @property
    def depth(self) -> int:
        """Number of layers."""
        return sum(count for count, _ in self.layers)

    def layer(self, index: int) -> LayerT:
        """The layer at ``index``, which must be in 0..depth - 1."""
        for count, layer in self.layers:
            if index < count:
                return layer
            index -= count
        raise IndexError(f"the stack has {self.depth} layers")

    def stages_before(self, index: int) -> int:
        """Number of stages in the layers before the one at ``index``; of all stages at `depth`."""
        stages = 0
        for count, layer in self.layers:
            stages += min(count, index) * len(_stages(layer))
            index -= min(count, index)
        return stages

    def resumes_at(self, index: int) -> Resumes:
        """How the first boundary behind the layers before ``index`` is crossed from other forms."""
        for following in range(index, self.depth):
            layer = self.layer(following)
            for name in _stages(layer):
                found: Resumes = getattr(layer, name).resumes
                return found
        return self.norm_resume

    def layer_before(self, index: int) -> int:
        """The last layer before ``index`` that has a stage; -1 where there is none."""
        return next((at for at in range(index - 1, -1, -1) if _stages(self.layer(at))), -1)

    def placed(
        self, index: int, entrance: Entrance | None = None, extras: tuple[str, ...] = ()
    ) -> LayerT:
        """The layer at ``index``, whose boundaries know where in the stack they are.

        ``entrance`` is for the first of them, ``extras`` are added to the output of the last.
        """
        layer, first = self.layer(index), self.stages_before(index)
        names, kind = _stages(layer), cast(Any, type(layer))
        boundaries = {
            name: getattr(layer, name).placed(
                Position(
                    first + at,
                    f"`{name}` of layer {index}",
                    extras if at == len(names) - 1 else (),
                    self._onward(first + at + 1, self._following(index, names[at + 1 :])),
                ),
                None if at else entrance,
                _bound(kind, name),
            )
            for at, name in enumerate(names)
        }
        return replace(layer, **boundaries) if boundaries else layer  # type: ignore[type-var]

    def behind(self, index: int) -> tuple[tuple[str, str], ...]:
        """The names of the stages of the layer at ``index``, each with what follows it."""
        names = _stages(self.layer(index))
        later = (_stages(self.layer(at)) for at in range(index + 1, self.depth))
        last = next((f"`{stages[0]}`" for stages in later if stages), "the final norm")
        return tuple(zip(names, (*(f"`{name}`" for name in names[1:]), last), strict=False))

    def _following(self, index: int, later: tuple[str, ...]) -> tuple[object, ...]:
        """What prepares, by plan, the stage behind one of the layer ``index``.

        ``later`` are the stages that follow in that layer.
        """
        places = [(self.layer(index), name) for name in later]
        for following in range(index + 1, self.depth):
            if places:
                break
            layer = self.layer(following)
            places = [(layer, name) for name in _stages(layer)]
        if not places:
            return self.norm
        layer, name = places[0]
        prepares: tuple[object, ...] = getattr(layer, name).prepares
        return prepares

    @staticmethod
    def _onward(index: int, prepares: tuple[object, ...]) -> tuple[Place, ...]:
        """The place before the stage ``index`` by plan; one for all that one function serves."""
        return tuple(before(index, prepares.index(one)) for one in prepares)

    def without_rows(self, plan: int, hidden: Tensor | OwedOutput) -> Prepare:
        """What ends a stack in column ``plan`` on a rank that has no rows there.

        Without ``norm_empty`` only a complete output without rows is known to need nothing.
        """
        if self.norm_empty:
            return self.norm_empty[plan] or _take_nothing
        if isinstance(hidden, Tensor) and hidden.shape[0] == 0:
            return _take_nothing
        return self.norm[plan]


def _stages(layer: object) -> tuple[str, ...]:
    """The stages of a layer in their order; a layer class that is not generated has none."""
    kind: Any = type(layer)
    return _fields(kind)


@cache  # asked for every layer before the one that is placed
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


@cache
def _bound(kind: Any, stage: str) -> tuple[bool, bool]:
    """Whether a class of layers binds something to a stage, and something that is not its norm."""
    if not hasattr(kind, "bind"):
        return False, False
    code = kind.bind.__code__
    given = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    others = [f"{name}_" for name in _fields(kind) if name.startswith(f"{stage}_")]
    own = [
        name
        for name in given
        if name.startswith(f"{stage}_") and not f"{name}_".startswith(tuple(others))
    ]
    return stage in given or bool(own), bool(own)


def _take_nothing(hidden: Tensor | OwedOutput, batch: Batch[Any, Any], *_: Any) -> Tensor:
    """The output of a rank without rows, on which no norm runs."""
    stream = batch.stream
    stream.residual = stream.residual[:0]
    return stream.take(hidden)[:0]
