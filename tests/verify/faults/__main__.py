"""Judges seeded faults.

python -m tests.verify.faults --all            every check on every fault; writes docs/faults.md
python -m tests.verify.faults NAME ...         every check on some faults
"""

from __future__ import annotations

import argparse
import sys

import click

from tests.verify.faults.catalogue import FAULTS
from tests.verify.faults.fault import ROOT
from tests.verify.faults.judge import judge, write_table


def main() -> int:
    """Prints what saw which fault; 1 where one was missed, or seen where there is none."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify.faults", description=__doc__)
    parser.add_argument("--all", action="store_true", help="judge all faults and write the table")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("names", nargs="*", help="faults to judge")
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if options.all or fault.name in options.names]
    verdicts, bad = [], False
    for verdict in judge([None, *chosen], jobs=options.jobs, thorough=True):
        verdicts.append(verdict)
        name = verdict.fault.name if verdict.fault else "no fault"
        bad |= bool(verdict.seen) != bool(verdict.fault)
        click.echo(f"{name}: {', '.join(verdict.seen) or 'nothing'} ({verdict.seconds} s)")
        if not options.all or verdict.fault is None:
            for check, text in verdict.seen.items():
                click.echo(f"    {check}: {text}")
    if options.all:
        write_table(verdicts, ROOT / "docs" / "faults.md")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
