"""``clia session show``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line
from clia.cli.sessions.common import show_request, show_session, when
from clia.cli.sessions.requests import json_text
from clia.cli.space.common import add_space, short, show_table, space_of
from clia.sessions.records import COPIED, RESUMED, STARTED, Resumed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.sessions.model import Session


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="whose session it is")
    parser.add_argument("--session", metavar="ID", help="which one (default: the live one, else the last)")
    parser.add_argument("--journal", action="store_true", help="every event that is recorded of it")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        session = space.session(args.agent, args.session)
        journal = space.journal(args.agent, session.id) if args.journal else None
        if args.json:
            emit_json(whole_json(session) | ({} if journal is None else {"journal": journal}))
            return 0
        show_session(session, whole=True)
        for each in session.pending:
            console().print()
            show_request(each, space.rule(each), whole=True, path=args.path)
    if journal is not None:
        console().print()
        _show_journal(journal)
    return 0


def whole_json(session: Session) -> dict[str, Any]:
    """A session with all that its journal says."""
    decisions = [{"position": position, "commit": commit} for position, commit in session.decisions]
    return {**session.to_json(), "input": session.input, "resumes": session.resumes, "decisions": decisions}


def _show_journal(events: Sequence[Mapping[str, Any]]) -> None:
    rows = [(number, event["event"], *_told(event)) for number, event in enumerate(events, 1)]
    show_table(("", "event", "what", "by", "when (UTC)"), rows)


def _told(event: Mapping[str, Any]) -> tuple[str, str, str]:
    """What happened, by whom and when."""
    if event["event"] == STARTED:
        return f"{event['name']} ({short(event['flow'])}) on {event['engine']}", str(event.get("by", "")), when(event["started_at"])
    if event["event"] == RESUMED:
        made = Resumed(*event["resume"])
        value = f"given up: {made.error}" if made.error is not None else json_text(made.value)
        decision = f"  decision {short(made.decision)}" if made.decision else ""
        return f"call {made.call}: {one_line(value)}{decision}", made.by or "", when(made.at)
    if event["event"] == COPIED:
        return f"{len(event['resumes'])} resumes taken over", "", ""
    return str(event.get("status", "")), "", when(event.get("at"))
