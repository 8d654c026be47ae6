"""``clia hook claude-code|codex|gemini``: for help, completion and the reference.

A tool's event never comes this way: ``clia.cli.entry`` takes it before any parser is loaded.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    tool = (parser.prog or "").rpartition(" ")[2]
    parser.epilog = "The event is the JSON that the tool gives on standard input. It always exits 0."
    parser.add_argument("--json", action="store_true", help="taken for uniformity: a hook prints nothing")
    parser.set_defaults(tool=tool)


def run(args: argparse.Namespace) -> int:
    from clia.capture.hook import record

    record(args.tool)
    return 0
