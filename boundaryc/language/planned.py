"""What the language has and this version does not build.

Each entry of `PLANNED` is one construct and where a file says it: `shape.key` for a key of a
mapping, `shape.key=word` for one word of a value. Those without a place are found where their
meaning is checked. A construct of the first part is read and checked in full already, so that
deleting its line is all that opens it; one of the second part has a name and nothing else yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

PLANNED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # named only
        "residual_dtype": ("stack.residual_dtype",),
    }
)


class Gates:
    """The constructs that are closed, by place: everything that asks whether one is built."""

    def __init__(self, closed: Collection[str] = PLANNED) -> None:
        self._closed = frozenset(closed)
        self._places = {place for name in self._closed for place in PLANNED[name]}

    def closed(self, construct: str) -> bool:
        """Whether `construct`, a key of `PLANNED`, is rejected."""
        return construct in self._closed

    def key(self, shape: str, key: str) -> bool:
        """Whether the key is rejected in mappings of this shape."""
        return f"{shape}.{key}" in self._places

    def word(self, shape: str, key: str, word: str) -> bool:
        """Whether the word is rejected as a value of the key."""
        return f"{shape}.{key}={word}" in self._places

    def keys(self, shape: str) -> list[str]:
        """The keys that are rejected in mappings of this shape."""
        return [key for key in self._after(f"{shape}.") if "=" not in key]

    def words(self, shape: str, key: str) -> list[str]:
        """The words that are rejected as values of the key."""
        return list(self._after(f"{shape}.{key}="))

    def _after(self, prefix: str) -> Iterator[str]:
        return (
            place.removeprefix(prefix) for place in sorted(self._places) if place.startswith(prefix)
        )


SHIPPED = Gates()
"""What holds for users: everything planned is closed."""
