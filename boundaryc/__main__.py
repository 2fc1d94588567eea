"""`python -m boundaryc` is the command line."""

from __future__ import annotations

import sys

from boundaryc.cli import main

if __name__ == "__main__":
    sys.exit(main())
