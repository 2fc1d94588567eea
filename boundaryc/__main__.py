"""`python -m boundaryc` is the command line."""

from __future__ import annotations

from boundaryc.cli import script

if __name__ == "__main__":
    script()
