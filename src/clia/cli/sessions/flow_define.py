"""``clia flow define``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line
from clia.cli.sessions.common import add_why, source_text
from clia.cli.sessions.problems import show_problems
from clia.cli.space.common import add_space, message_of, require_person, short, space_of
from clia.engine.records import Problem
from clia.errors import InvalidFlow, InvalidInput, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.facade.space import Space
    from clia.sessions.model import Flow


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("name", metavar="NAME", help="the flow's name")
    parser.add_argument("file", metavar="FILE", help="its source: Python with a main(input) ('-': standard input)")
    add_why(parser)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    require_person(f"propose it instead: clia behaviour propose {args.name} --from FILE --agent AGENT")
    if args.file == args.message == "-":
        raise InvalidInput("only one of FILE and --message can be standard input", code="invalid-option")
    source = source_text(args.file, "source")
    with space_of(args) as space:
        before = _current(space, args.name)
        try:
            flow = space.define(args.name, source, why=message_of(args))
        except InvalidFlow as err:
            if not args.json:
                show_problems([Problem(**each) for each in err.fields.get("problems", ())], source, args.file, stderr=True)
            raise
    if args.json:
        emit_json({**flow_json(flow), "changed": flow.cid != before})
    else:
        _show(flow, changed=flow.cid != before)
    return 0


def _current(space: Space, name: str) -> str | None:
    try:
        return space.flow(name).cid
    except (NotFound, InvalidInput):  # a name that will not do is define's to refuse
        return None


def flow_json(flow: Flow) -> dict[str, object]:
    """A flow as a program reads it, without its source."""
    made = flow._asdict() | {"versions": list(flow.versions)}
    del made["source"]
    return made


def _show(flow: Flow, *, changed: bool) -> None:
    from rich.text import Text  # only people see it

    said = f"version {len(flow.versions)}" if changed else "as it was: nothing is written"
    console().print(Text.assemble((one_line(flow.name), "bold"), " ", (short(flow.cid), "yellow"), f"  {said}"), soft_wrap=True)
