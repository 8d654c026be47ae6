"""``clia trace show``: of a commit its trace, of an agent the traces of all its commits."""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line, write
from clia.cli.space.common import add_space, positive, short, show_entries, space_of
from clia.errors import CliaError
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.facade.space import Space
    from clia.values.typed_objects import ConsoleTrace


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("what", metavar="COMMIT|AGENT", help="a commit, or an agent for all its traces, newest first")
    parser.add_argument("-n", dest="limit", type=positive, metavar="N", help="of an agent, at most so many traces")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        if _is_agent(space, args.what):
            return _of_agent(space, args)
        return _of_commit(space, args)


def _is_agent(space: Space, text: str) -> bool:
    """Asked by name first: a space may have a hundred thousand agents."""
    try:
        space.head(text)
    except CliaError:
        return text in space.agents(archived=True)
    return True


def _of_agent(space: Space, args: argparse.Namespace) -> int:
    found = space.session_traces(args.what)[: args.limit]
    if args.json:
        emit_json(as_json(found))
    elif not found:
        write(f"no commit of {args.what} has a trace\n")
    else:
        for each in found:
            _show(space, each.trace)
    return 0


def _of_commit(space: Space, args: argparse.Namespace) -> int:
    """Exit 0 also where there is none: a commit need not have one."""
    commit = space.find(args.what)
    trace = space.trace_for(commit)
    if args.json:
        emit_json(None if trace is None else {"cid": space.trace_cid_for(commit), "trace": as_json(trace)})
    elif trace is None:
        write(f"no trace is bound to {commit}\n")
    else:
        _show(space, trace)
    return 0


def _show(space: Space, trace: ConsoleTrace) -> None:
    from rich.text import Text  # only people see it

    subject = one_line(space.show(trace.commit).subject)
    console().print(Text.assemble((short(trace.commit), "bold yellow"), f"  {one_line(trace.agent)}  ", subject), soft_wrap=True)
    show_entries(trace.entries)
