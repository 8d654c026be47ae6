"""``clia flow show``.

Invariant: with ``--source`` a pipe or a file gets the source as it is; a terminal gets it harmless.
"""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line, plain, write
from clia.cli.sessions.common import rows_of
from clia.cli.sessions.flow_define import flow_json
from clia.cli.space.common import add_space, moment, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.sessions.model import Flow


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("what", metavar="NAME|CID", help="a flow's name, or the id of one version")
    parser.add_argument("--source", action="store_true", help="only the source, as it is")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        flow = space.flow(args.what)
    if args.json:
        emit_json({**flow_json(flow), "source": flow.source})
    elif args.source:
        write(plain(flow.source) if console().is_terminal else flow.source)
    else:
        _show(flow)
    return 0


def _show(flow: Flow) -> None:
    from rich.text import Text  # only people see it

    out = console()
    out.print(Text.assemble((one_line(flow.name), "bold"), "  ", (flow.cid, "yellow")), soft_wrap=True)
    facts: list[tuple[str, object]] = [("why", flow.why), ("by", flow.by), ("when", moment(flow.at) if flow.at else "")]
    facts += [("versions", "\n".join(flow.versions))] if len(flow.versions) > 1 else []
    out.print(rows_of(facts))
    out.print()
    show_lines(flow.source)


def show_lines(text: str) -> None:
    """A source or a prompt, each line with its number."""
    from rich.text import Text

    out = console()
    lines = text.rstrip("\n").split("\n")
    width = len(str(len(lines)))
    for number, line in enumerate(lines, 1):
        out.print(Text.assemble((f"  {number:>{width}} │ ", "dim"), one_line(line)), soft_wrap=True)
