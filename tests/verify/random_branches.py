"""The part of random stack files that is about branches: what nothing around one may say."""

from __future__ import annotations

import re

QUANTIZED_SUM = re.compile(r", quantized_sum: \w+")
QUANTIZE = re.compile(r", quantize: \{[^}]*\}")
DEFER = re.compile(r", defer: \w+")
UPDATE = re.compile(r"update: (\w+)")


def fitting(
    stages: list[str], beside: str, last: str, operations: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The lines of stages and the operations without what a branch next to ``beside`` excludes.

    No sum travels quantised; ``beside`` and the ``last`` of the branch do not say who sums, and the
    input of ``beside`` is not quantised, nor does its update run at the producer.
    """
    stages, operations = [QUANTIZED_SUM.sub("", line) for line in stages], dict(operations)
    for at, line in enumerate(stages):
        name = line.strip().split(":")[0]
        if name in (beside, last):
            stages[at] = DEFER.sub("", line)
        if name == beside:
            stages[at] = QUANTIZE.sub("", stages[at])
            update = UPDATE.search(line)
            if update and update[1] in operations:
                operations[update[1]] = _waiting(operations[update[1]])
    return stages, operations


def _waiting(operation: str) -> str:
    """An update that may run in the next stage."""
    if "outlives_producer" in operation:
        return re.sub(r"(, at_producer)|(at_producer, )", "", operation)
    return operation.replace("at_producer", "outlives_producer")
