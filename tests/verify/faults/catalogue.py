"""All seeded faults."""

from __future__ import annotations

from tests.verify.faults import emitter, models_and_language, numbers, planner, runtime, streams

FAULTS = (
    *planner.FAULTS,
    *emitter.FAULTS,
    *runtime.FAULTS,
    *numbers.FAULTS,
    *models_and_language.FAULTS,
    *streams.FAULTS,
)
