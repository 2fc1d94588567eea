"""What a rank loaded, and its groups, watched where the environment asks for it."""

from __future__ import annotations

from collections.abc import Callable

from boundaryc.runtime import handshake
from boundaryc.runtime.batch import GroupsT
from boundaryc.runtime.collectives import GroupProvider
from boundaryc.runtime.handshake import Handshake
from boundaryc.runtime.replicas import ReplicaCheckedGroups
from boundaryc.runtime.trace import traced_by_environment


def loaded(policy: str, layers: object) -> dict[str, object]:
    """The part of a stack that a rank loaded, for traces and handshakes."""
    # What is no range is refused once all ranks have said what they loaded.
    shown = f"{layers.start}..{layers.stop - 1}" if isinstance(layers, range) else repr(layers)
    return {"policy": policy, "layers": shown}


def connected(
    provider: GroupProvider,
    groups_type: Callable[[GroupProvider], GroupsT],
    check: Handshake | None,
    about: dict[str, object],
) -> tuple[GroupsT, Handshake | None]:
    """This rank's groups, traced and checked where the environment asks for it.

    ``check`` compares what all ranks of the stage loaded, ``about``, and has done so; None where no
    one asks or where no group has all of them.
    """
    if not handshake.is_asked_for():
        return groups_type(traced_by_environment(provider, about)), None
    traced = traced_by_environment(ReplicaCheckedGroups(provider), about)
    if check is not None:
        return groups_type(traced), check
    # No group has all ranks of the stage: each that the boundaries use is asked.
    untraced = handshake.RememberedGroups(provider)
    groups_type(untraced)
    check = Handshake(tuple(untraced.given), handshake.device_of(provider))
    check.compare("the first step", about)
    return groups_type(traced), check
