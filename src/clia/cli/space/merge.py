"""``clia merge``: a conflict is an answer, said with what to do next."""

from __future__ import annotations

from clia.cli.output import counted, emit_json, one_line, write
from clia.cli.space.common import add_message, add_meta, add_space, message_of, meta_of, short, show_table, space_of
from clia.space.model import Conflicts, UpToDate, as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.space.model import ConflictPath, Content


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("into", metavar="INTO", help="the agent that takes the work in")
    parser.add_argument("from_", metavar="FROM", help="the agent whose work it is; PEER/AGENT: one of a peer's")
    add_message(parser)
    add_meta(parser)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 on conflicts."""
    with space_of(args) as space:
        found = space.merge(args.into, args.from_, message=message_of(args), meta=meta_of(args))
    result = "conflicts" if isinstance(found, Conflicts) else "up-to-date" if isinstance(found, UpToDate) else "merged"
    if args.json:
        emit_json({"result": result, **as_json(found)})
    elif isinstance(found, Conflicts):
        show_conflicts(found)
        write(f"nothing was committed; settle them: {resolve_hint(found.into, found.from_)}\n")
    elif isinstance(found, UpToDate):
        write(f"{args.into} has all of {args.from_} already, at {short(found.head)}\n")
    else:
        write(f"{args.into} took in {args.from_}: {found.cid}\n")
    return 1 if isinstance(found, Conflicts) else 0


def resolve_hint(into: str, from_: str) -> str:
    return f"clia resolve {one_line(into)} {one_line(from_)} --file PATH=FILE, --remove PATH, or --take ours|theirs for the rest"


def show_conflicts(found: Conflicts) -> None:
    """Which paths, and who did what to each."""
    count = counted(len(found.paths), "conflict", "conflicts")
    write(one_line(f"{count}: {found.into} at {short(found.ours)}, {found.from_} at {short(found.theirs)}") + "\n")
    show_table(("path", found.into, found.from_), ((each.path, *_deeds(each)) for each in found.paths))


def _deeds(path: ConflictPath) -> tuple[str, str]:
    return _deed(path.base, path.ours), _deed(path.base, path.theirs)


def _deed(base: Content | None, side: Content | None) -> str:
    if side is None:
        return "no such file" if base is None else "deleted"
    return "added" if base is None else "unchanged" if side == base else "changed"
