"""The version of the runtime's interface that generated code is written against."""

from __future__ import annotations

ABI = 1
"""That of `boundaryc.runtime.abi`, where it says when it goes up. A test holds both equal.

It is here again because the runtime imports torch, and compiling must not.
"""
