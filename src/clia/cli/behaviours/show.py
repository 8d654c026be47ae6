"""``clia behaviour show``: a behaviour with its versions and what happened to them, or one version.

Invariant: with ``--body`` a pipe or a file gets the body as it is; a terminal gets it harmless.
"""

from __future__ import annotations

from clia.cli.behaviours.common import known, known_json, person, some_ids, state_text, version_json
from clia.cli.federation.tables import show_rows
from clia.cli.output import console, emit_json, one_line, plain, write
from clia.cli.sessions.common import rows_of
from clia.cli.sessions.flow_show import show_lines
from clia.cli.space.common import add_space, moment, short, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.behaviours.model import BehaviourEvent, BehaviourVersion, KnownBehaviour
    from clia.facade.space import Space


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument(
        "what", metavar="NAME|CID|PEER/NAME", help="a behaviour, one version by its id or the start of it, or a peer's current one"
    )
    parser.add_argument("--body", action="store_true", help="only the body, as it is; of a name that of its current version")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        whole = None if args.body else known(space, args.what)
        version = None if whole else _version(space, args.what)
    if whole is not None:
        _show_whole(whole, as_json=args.json)
    elif version is not None:
        _show_version(version, as_json=args.json, only_body=args.body)
    return 0


def _version(space: Space, text: str) -> BehaviourVersion:
    """A version; what can only have been meant as a name is refused as one."""
    if "/" not in text and not all(char in "0123456789abcdef" for char in text):
        space.behaviour(text)
    return space.behaviour_version(text)


def _show_whole(behaviour: KnownBehaviour, *, as_json: bool) -> None:
    from rich.text import Text  # only people see it

    current = next((each for each in behaviour.versions if each.cid == behaviour.current), None)
    if as_json:
        emit_json({**known_json(behaviour), "body": current.body if current else None})
        return
    out = console()
    out.print(Text.assemble((one_line(behaviour.name), "bold"), f"  {one_line(behaviour.kind)}"), soft_wrap=True)
    nothing = f"none: it was retired, or nobody has adopted it; clia behaviour adopt {behaviour.name} CID"
    facts: list[tuple[str, object]] = [("current", behaviour.current or nothing)]
    facts += [("from", _origin(current)), ("notes", current.notes)] if current else []
    out.print(rows_of(facts))
    out.print()
    rows = [
        (short(each.cid), state_text(each.state), short(each.parent), _who(each), _when(each.at), each.why.split("\n")[0])
        for each in reversed(behaviour.versions)
    ]
    show_rows(("version", "state", "parent", "by", "when (UTC)", "why"), rows, cut=("by", "why"))
    out.print()
    _show_history(behaviour.history)


def _origin(version: BehaviourVersion) -> str:
    return f"the peer {version.origin}" if version.origin else ""


def _who(version: BehaviourVersion) -> str:
    """Who brought a version here, and from where."""
    return f"{person(version.by)}, from {version.origin}" if version.origin else person(version.by)


def _show_history(history: Sequence[BehaviourEvent]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("when (UTC)", "event", "version"):
        table.add_column(heading, no_wrap=True)
    table.add_column("by, why and on what evidence", overflow="fold")
    for each in history:
        said = Text.assemble(one_line(person(each.by)), f": {one_line(each.why)}" if each.why else "")
        said.append(f"\nby {one_line(each.measure)}" if each.measure else "", style="dim")
        said.append(f"\non {some_ids(each.evidence)}" if each.evidence else "", style="dim")
        table.add_row(_when(each.at), each.event, Text(short(each.cid), style="yellow"), said)
    console().print(table)


def _when(at: int) -> str:
    return moment(at) if at else ""


def _show_version(version: BehaviourVersion, *, as_json: bool, only_body: bool) -> None:
    from rich.text import Text  # only people see it

    out = console()
    if as_json:
        emit_json({**version_json(version), "body": version.body})
    elif only_body:
        write(plain(version.body) if out.is_terminal else version.body)
    else:
        head = (one_line(version.name), "bold"), "  ", (version.cid, "yellow"), "  "
        out.print(Text.assemble(*head, state_text(version.state)), soft_wrap=True)
        facts: list[tuple[str, object]] = [("kind", version.kind), ("parent", version.parent), ("from", _origin(version))]
        facts += [("by", version.by), ("when", _when(version.at)), ("why", version.why), ("notes", version.notes)]
        out.print(rows_of([*facts, ("evidence", "\n".join(version.evidence))]))
        out.print()
        show_lines(version.body)
