"""Questions to a config, each of one type and range; nothing else of it enters a stack file."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from typing import TypeGuard

from boundaryc.language.diagnostics import BoundarycError, Diagnostic, error
from boundaryc.scaffold.config import Config

_ABSENT = "boundaries depend on it; take the config.json that lies beside the model's weights"
_WRONG = "correct the config: the model cannot be loaded with this either"


class Answers:
    """What a config answers. Mistakes are collected, and `done` raises them.

    A key with null counts as absent. ``assumed`` are the keys that a default stood in for.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.assumed: list[str] = []
        self._problems: list[Diagnostic] = []

    def done(self) -> None:
        """Raises BoundarycError with all mistakes that were met, if there is one."""
        if self._problems:
            config = self.config
            raise BoundarycError(self._problems, {config.source: config.text})

    def has(self, key: str) -> bool:
        """Whether the config says anything under a key."""
        return self.config.values.get(key) is not None

    def first(self, *keys: str) -> str:
        """The first key of several that the config has; of none the first."""
        return next((key for key in keys if self.has(key)), keys[0])

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number; required without a default."""
        return int(self._ranged(key, low, high, default, whole=True))

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A number; required without a default."""
        return float(self._ranged(key, low, high, default, whole=False))

    def flag(self, key: str) -> bool:
        """True or false, and false where the config says nothing."""
        value = self.config.values.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.report("BC103", key, f"`{key}` is true or false, and here it is {_shown(value)}")
        return False

    def word(self, key: str, known: Collection[str]) -> None:
        """Sees to it that a word is a known one, where the config says one."""
        value = self.config.values.get(key)
        if value is not None and value not in known:
            message = f"`{key}` is {_shown(value)}, and only {_listed(known)} is known"
            self.report("BC105", key, message)

    def words(self, key: str, known: Collection[str]) -> tuple[str, ...]:
        """A list of known words, of one at least; required."""
        found = self._list(key)
        if self.config.values.get(key) == []:
            self.report("BC104", key, f"`{key}` is an empty list")
        for word in found:
            if not isinstance(word, str) or word not in known:
                message = f"`{key}` has {_shown(word)}, and only {_listed(known)} are known"
                self.report("BC105", key, message)
                return ()
        return tuple(str(word) for word in found)

    def characters(self, key: str, known: Collection[str]) -> str:
        """A text of known characters; required."""
        value = self.config.values.get(key)
        if value is None:
            self._missing(key)
        elif not isinstance(value, str) or not value:
            self.report("BC103", key, f"`{key}` is a text, and here it is {_shown(value)}")
        elif other := next((one for one in value if one not in known), None):
            message = f"`{key}` has {_shown(other)}, and only {_listed(known)} are known"
            self.report("BC105", key, message)
        else:
            return value
        return ""

    def integers(self, key: str, low: int, high: int) -> tuple[int, ...]:
        """A list of whole numbers, empty where the config says nothing."""
        found = self._list(key) if self.has(key) else []
        for value in found:
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                message = f"`{key}` has {_shown(value)}, and its numbers are {low} to {high}"
                self.report("BC104", key, message)
                return ()
        return tuple(int(str(value)) for value in found)

    def numbers(self, key: str, count: int, low: float, high: float) -> tuple[float, ...] | None:
        """So many numbers; None where the config says nothing."""
        if not self.has(key):
            return None
        found = self._list(key)
        right = [float(value) for value in found if _is_number(value) and low <= value <= high]
        if len(found) == len(right) == count:
            return tuple(right)
        message = f"`{key}` is a list of {count} numbers from {low:g} to {high:g}"
        self.report("BC104", key, message)
        return None

    def report(self, code: str, key: str, message: str) -> None:
        """Adds a mistake, at a key."""
        self._problems.append(error(code, message, self.config.place(key), help=_WRONG))

    def _missing(self, key: str) -> None:
        found = error("BC102", f"`{key}` is missing", self.config.place(key), help=_ABSENT)
        self._problems.append(found)

    def _list(self, key: str) -> list[object]:
        value = self.config.values.get(key)
        if value is None:
            self._missing(key)
        elif not isinstance(value, list):
            self.report("BC103", key, f"`{key}` is a list, and here it is {_shown(value)}")
        else:
            return value
        return []

    def _ranged(
        self, key: str, low: float, high: float, default: float | None, *, whole: bool
    ) -> float:
        value = self.config.values.get(key)
        if value is None:
            if default is None:
                self._missing(key)
                return low
            self.assumed.append(key)
            return default
        if not _is_number(value) or (whole and not isinstance(value, int)):
            what = "a whole number" if whole else "a number"
            self.report("BC103", key, f"`{key}` is {what}, and here it is {_shown(value)}")
        elif not low <= value <= high:
            message = f"`{key}` is {_shown(value)}, and may be {low:g} to {high:g}"
            self.report("BC104", key, message)
        else:
            return value
        return low


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or isfinite(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _listed(words: Collection[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
