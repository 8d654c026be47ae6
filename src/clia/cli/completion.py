"""``clia completion``: a script that the shell loads."""

from __future__ import annotations

from clia.cli.output import emit_json, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

_SHELLS = ("bash", "zsh", "fish", "tcsh")


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("shell", choices=_SHELLS, help='then: eval "$(clia completion bash)"')
    parser.add_argument("--json", action="store_true", help="print the script as a JSON string")


def run(args: argparse.Namespace) -> int:
    import shtab

    from clia.cli.main import full_parser

    script: str = shtab.complete(full_parser(), args.shell)
    if args.json:
        emit_json({"shell": args.shell, "script": script})
    else:
        write(script)
    return 0
