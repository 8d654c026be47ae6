"""``clia commit``.

Invariant: what is committed stands on the head that the files came from, so that another's commit in between is never undone.
"""

from __future__ import annotations

import os

from clia.cli.output import console, emit_json, one_line
from clia.cli.space.common import (
    add_message,
    add_meta,
    add_redaction,
    add_space,
    content_of,
    message_of,
    meta_of,
    pairs,
    short,
    space_of,
)
from clia.errors import InvalidInput
from clia.space.model import File

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.facade.space import Space
    from clia.space.model import AgentCommit, Content


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="who did it")
    parser.add_argument("kind", metavar="KIND", help="what it is: finding, refactor, test, … (clia types)")
    parser.add_argument("--dir", metavar="DIR", help="the files of a directory (default: the checkout you are in)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=FILE", help="put a file at a path (repeatable; '-': standard input)"
    )
    parser.add_argument("--remove", action="append", default=[], metavar="PATH", help="take a path away (repeatable)")
    parser.add_argument(
        "--executable", action="append", default=[], metavar="PATH", help="a path of --set that is to be executable (repeatable)"
    )
    add_message(parser)
    add_meta(parser)
    parser.add_argument("--base", metavar="COMMIT", help="the head that the files came from; refused where it has moved")
    parser.add_argument("--trace", action="store_true", help="bind what was traced since the last time")
    add_redaction(parser)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    changes = _changes(args)
    if args.dir is not None and changes:
        raise InvalidInput("give --dir, or --set and --remove", code="invalid-option", fields={"option": "--dir"})
    with space_of(args) as space:
        made = _commit_changes(space, args, changes) if changes else _commit_directory(space, args)
        commit, trace = space.show(made), space.trace_for(made) if args.trace else None
    entries = len(trace.entries) if trace else 0
    if args.json:
        emit_json({"commit": made, "parent": commit.parents[0], "agent": args.agent, "kind": args.kind, "traced": entries})
    else:
        _show(commit, entries)
    return 0


def _changes(args: argparse.Namespace) -> dict[str, Content | None]:
    """What ``--set`` and ``--remove`` say; a path is named once."""
    found: dict[str, Content | None] = {}
    given = pairs(args.set, "--set")
    for path in (*(path for path, _ in given), *args.remove):
        if path in found:
            raise InvalidInput(f"{path!r} is named twice", code="invalid-option", fields={"path": path})
        found[path] = None
    for path in args.executable:
        if path not in dict(given):
            raise InvalidInput(f"--executable names {path!r}, which no --set does", code="invalid-option", fields={"path": path})
    for path, file in given:
        content = content_of(file)
        found[path] = File(content, True) if path in args.executable and isinstance(content, bytes) else content
    return found


def _commit_changes(space: Space, args: argparse.Namespace, changes: dict[str, Content | None]) -> str:
    base = _base(space, args)
    verb = space.commit_with_trace if args.trace else space.commit
    return verb(args.agent, args.kind, changes=changes, message=message_of(args), meta=meta_of(args), base=base)


def _commit_directory(space: Space, args: argparse.Namespace) -> str:
    directory = args.dir if args.dir is not None else _checkout(space, args)
    return space.commit_dir(
        args.agent,
        args.kind,
        directory,
        message=message_of(args),
        meta=meta_of(args),
        base=_base(space, args),
        with_trace=args.trace,
    )


def _base(space: Space, args: argparse.Namespace) -> str | None:
    return None if args.base is None else space.find(args.base)


def _checkout(space: Space, args: argparse.Namespace) -> str:
    """The top of the agent's checkout that ``--path`` lies in."""
    space.head(args.agent)  # an unknown agent has no checkout, and should be told that first
    found = space.checkout_at(args.path)
    if found is None or found.agent != args.agent:
        raise InvalidInput(
            f"{os.path.abspath(args.path)} is in no checkout of {args.agent!r}: what is to be committed?",
            code="nothing-to-commit",
            hints=["give --dir, or --set and --remove", f"or work in a checkout: clia checkout {args.agent} DIR"],
            fields={"path": os.path.abspath(args.path), "agent": args.agent},
        )
    return found.directory


def _show(commit: AgentCommit, entries: int) -> None:
    from rich.text import Text  # only people see it

    line = Text.assemble((short(commit.cid), "yellow"), f" {one_line(commit.kind)} by ", (one_line(commit.agent), "bold"))
    line.append(f": {one_line(commit.subject)}")
    if entries:
        line.append(f"  ({entries} traced)", style="dim")
    console().print(line, soft_wrap=True)
