"""What the commands that change tools' settings share: which clia this is, showing a change, asking, and writing it."""

from __future__ import annotations

import os
import sys

from clia.cli.arguments import add_json
from clia.cli.output import console, emit_json, one_line, plain, write
from clia.errors import NotAllowed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.capture.hook_settings import SettingsPlan
    from clia.capture.hook_tools import CliaProgram

_DONE = {"create": "made", "edit": "changed", "remove": "removed"}
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def add_hooks(parser: argparse.ArgumentParser, which: str) -> None:
    from clia.capture.hook_tools import SCOPES, TOOLS

    # No choices: argparse would hold them against an empty list too.
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"{', '.join(TOOLS)} (default: {which})")
    parser.add_argument(
        "--scope",
        choices=SCOPES,
        default="project",
        help="this repository, for everybody (default); this repository, for you; every repository of yours",
    )
    parser.add_argument("--path", default=".", metavar="DIR", help="a directory of the repository (default: the current one)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="write nothing; show what would change")
    add_json(parser)


def this_program() -> CliaProgram:
    """The clia that runs, and the one that the name ``clia`` finds."""
    import shutil

    from clia.capture.hook_tools import CliaProgram

    found = shutil.which("clia")
    started = os.path.abspath(sys.argv[0])
    beside = os.path.join(os.path.dirname(sys.executable), "clia")  # for an agent's own program, and for python -m clia
    likely = (started if os.path.basename(started) == "clia" else beside, beside, found or beside)
    return CliaProgram(next((each for each in likely if os.access(each, os.X_OK)), beside), found)


def carry_out(args: argparse.Namespace, plan: SettingsPlan, nothing: str) -> int:
    """Shows the change, asks, writes. Exit 1 where it was not confirmed: then nothing is written."""
    from clia.capture.hook_settings import apply

    ready = args.yes and not args.dry_run
    if args.json:
        if ready:
            apply(plan)
        emit_json({**plan.to_json(), "written": ready and not plan.is_empty})
        return 0 if ready or args.dry_run or plan.is_empty else _refuse()
    _show(plan)
    if plan.is_empty:
        write(f"{nothing}\n")
    elif not args.dry_run:
        if not ready and not _confirmed():
            return _refuse()
        apply(plan)
        for each in plan.changes:
            if each.kind != "none":
                write(f"{_DONE[each.kind]}: {one_line(_shown(each.path))}\n")
    for note in plan.notes:
        write(f"note: {one_line(note)}\n")
    return 0


def _confirmed() -> bool:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    write("Write this? [y/N] ", sys.stderr)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def _refuse() -> int:
    raise NotAllowed("nothing was changed", code="not-confirmed", hints=["answer y, or give --yes"])


def _show(plan: SettingsPlan) -> None:
    from rich.text import Text  # only people see it

    terminal = console()
    for change in plan.changes:
        for line in change.diff(_shown(change.path)).splitlines() if change.kind != "none" else ():
            terminal.print(Text(plain(line), style=_STYLES.get(line[:1], "")), soft_wrap=True)


def _shown(path: str) -> str:
    """A path as whoever stands here would say it."""
    here = os.getcwd().rstrip("/") + "/"
    return path.removeprefix(here)
