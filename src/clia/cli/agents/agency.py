"""``clia agents agency``."""

from __future__ import annotations

from clia.cli.agents import merged

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

configure = merged.configure


def run(args: argparse.Namespace) -> int:
    return merged.run(args, "agency")
