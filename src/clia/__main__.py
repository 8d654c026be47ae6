"""``python -m clia``: the same program as ``clia``."""

from __future__ import annotations

import sys

from clia.cli.entry import run

if __name__ == "__main__":
    sys.exit(run())
