"""``clia cap``: grants, which say what is accepted from peers. Nothing is accepted by default."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta

from clia.cli.command import Answer, arg, command, flag, opt
from clia.cli.output import console, counted, one_line, write
from clia.cli.rendering import facts_table, is_wide, moment, short, show_line, show_rows
from clia.errors import Ambiguous, InvalidInput
from clia.federation.statements import BEHAVIOUR, HEAD_MOVE, MERGE, NOTE, SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.facade.space import Space
    from clia.federation.model import Explained, Grant

PEER = arg("PEER", "peer name")
_TRIGGERS = "spawn, head-move, merge, note, behaviour or type"
# Accepts a peer's agents with their briefings and traces, but neither types, which cannot be undone, nor behaviours.
_FOLLOW = (
    ("agent-commit", "spawn"),
    ("agent-commit", "head-move"),
    ("agent-commit", "merge"),
    ("briefing", "spawn"),
    ("console-trace", "note"),
)
# What each trigger can carry, besides types; head-move carries all other kinds of commits.
_CARRIED = {
    SPAWN: ("agent-commit", "spawn", "briefing"),
    MERGE: ("agent-commit", "session-merge"),
    NOTE: ("console-trace", "session"),
    BEHAVIOUR: ("behaviour",),
}
_DURATION = re.compile(r"(\d{1,6})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MIN_ID = 4


@command("cap grant", example="clia cap grant friends agent-commit spawn head-move merge --expires 30d")
def cap_grant(
    space: Space,
    peer: str = PEER,
    type_: str | None = arg("TYPE", "type to accept, with its subtypes; agent-commit: every commit", nargs="?"),
    triggers: list[str] = arg("TRIGGER", f"{_TRIGGERS} (one or more)", nargs="*"),
    follow: bool = flag("instead of TYPE and TRIGGER: grant everything needed to follow its agents, and show what that is"),
    execute: bool = flag("also let behaviours run here: for TYPE and TRIGGER behaviour"),
    expires: str | None = opt("WHEN", "end of the grant: 2027-01-31 (00:00 UTC), or 30d from now"),
) -> Answer:
    """Accept something from a peer.

    Either all grants are made, or none.
    """
    pairs = _granted_pairs(peer, type_, triggers, follow=follow, execute=execute)
    end = None if expires is None else _end_time(expires)
    # Refuses an unknown peer or trigger before anything is granted.
    paths = [space.peers.explain(peer, kind, trigger).path for kind, trigger in pairs]
    grants = [space.peers.grant(peer, *pair, execute=execute, expires=end) for pair in pairs]
    url = space.peers.get(peer).url

    def show() -> None:
        show_grants(grants)
        for (kind, trigger), path in zip(pairs, paths, strict=True):
            if not _can_occur(path, trigger):
                write(f"note: {trigger} never carries {kind}: this grant has no effect\n", sys.stderr)
        change = "" if url else f"peer change {peer} --url URL sets its address; then clia "
        write(one_line(f"next: clia {change}sync {peer}") + "\n")

    return Answer(grants, show)


def _can_occur(path: Sequence[str], trigger: str) -> bool:
    """Whether a trigger can carry a type or one of its subtypes; ``path`` leads from the type to its root."""
    if trigger == HEAD_MOVE:
        return path[-1] == "agent-commit" and not {"spawn", "session-merge"} & set(path)
    return trigger not in _CARRIED or path[0] in _CARRIED[trigger]


def _granted_pairs(peer: str, kind: str | None, triggers: Sequence[str], *, follow: bool, execute: bool) -> list[tuple[str, str]]:
    if follow:
        if kind is not None or execute:
            raise InvalidInput("--follow excludes TYPE, TRIGGER and --execute", code="invalid-option")
        return list(_FOLLOW)
    if kind is None or not triggers:
        raise InvalidInput(
            "give TYPE and TRIGGER, or --follow",
            code="usage",
            hints=[f"clia cap grant {peer} agent-commit spawn head-move merge", f"clia cap grant {peer} --follow"],
        )
    pairs = [(kind, trigger) for trigger in dict.fromkeys(triggers)]
    for pair in pairs:
        _check_execute(*pair, execute=execute)
    return pairs


def _check_execute(kind: str, trigger: str, *, execute: bool) -> None:
    if execute and (kind, trigger) != ("behaviour", "behaviour"):
        raise InvalidInput(
            "only behaviours can run: --execute goes with TYPE behaviour and TRIGGER behaviour",
            code="invalid-option",
            fields={"option": "--execute"},
        )


def _end_time(text: str) -> int:
    """The value of ``--expires``, in seconds since the epoch."""
    duration = _DURATION.fullmatch(text) if text.isascii() else None
    try:
        if duration is not None:
            end = datetime.now(UTC) + timedelta(**{_UNITS[duration[2]]: int(duration[1])})
        else:
            end = datetime.fromisoformat(text)
        return int((end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"--expires takes a time, not {text!r}",
            code="invalid-time",
            hints=["2027-01-31, 2027-01-31T10:00:00Z, or how long from now: 90m, 12h, 30d, 4w"],
            fields={"field": "expires"},
        ) from None


@command("cap revoke")
def cap_revoke(
    space: Space,
    peer: str = PEER,
    type_: str | None = arg("TYPE", "only grants for this type (default: every grant)", nargs="?"),
    trigger: str | None = arg("TRIGGER", "only grants for this trigger", nargs="?"),
    grant_id: str | None = opt("CID", "only this grant; clia cap list shows the ids", "--id"),
) -> Answer:
    """Revoke grants of a peer, with immediate effect.

    What is already tracked stays.
    """
    if grant_id is not None and type_ is not None:
        raise InvalidInput("--id excludes TYPE and TRIGGER", code="invalid-option", fields={"option": "--id"})
    if type_ is not None and trigger is not None:
        space.peers.explain(peer, type_, trigger)  # refuses an unknown trigger
    revoked = space.peers.revoke(peer, type_, trigger, cid=None if grant_id is None else _full_id(space, peer, grant_id))

    def show() -> None:
        show_grants(revoked)
        number = counted(len(revoked), "grant", "grants")
        write(one_line(f"revoked {number} of {peer}; what is already tracked stays") + "\n")

    return Answer(revoked, show)


def _full_id(space: Space, peer: str, start: str) -> str:
    """The id that begins with ``start``; the library refuses an unknown one."""
    matches = [grant.cid for grant in space.peers.grants(peer) if len(start) >= _MIN_ID and grant.cid.startswith(start)]
    if len(matches) > 1:
        raise Ambiguous(f"{start} matches {len(matches)} grants", fields={"matches": matches})
    return matches[0] if matches else start


@command("cap list")
def cap_list(space: Space, peer: str | None = arg("PEER", "only grants of this peer", nargs="?")) -> Answer:
    """List grants that were not revoked."""
    grants = space.peers.grants(peer)
    if not grants:
        hint = f"clia cap grant {peer or 'PEER'} --follow"
        return Answer([], f"no grants, so nothing is accepted from peers; to follow agents: {hint}")
    return Answer(grants, lambda: show_grants(grants))


def show_grants(grants: Sequence[Grant]) -> None:
    wide = is_wide()
    rows = []
    for grant in grants:
        terms = ("may run" if grant.execute else "", _expiry(grant))
        origin = (grant.by.partition(" <")[0], moment(grant.at)) if wide else ()
        rows.append((grant.peer, grant.type, grant.trigger, *terms, short(grant.cid), *origin))
    origin_headings = ("by", "since (UTC)") if wide else ()
    show_rows(("peer", "type", "trigger", "execute", "expires (UTC)", "id", *origin_headings), rows, cut=("by",))


def _expiry(grant: Grant) -> str:
    if grant.expires is None:
        return "never"
    expired = grant.expires <= int(datetime.now(UTC).timestamp())
    return f"{moment(grant.expires)}{', expired' if expired else ''}"


@command("cap explain")
def cap_explain(
    space: Space,
    peer: str = PEER,
    type_: str = arg("TYPE", "type, such as finding"),
    trigger: str = arg("TRIGGER", _TRIGGERS),
    execute: bool = flag("whether it may also run: for TYPE and TRIGGER behaviour"),
) -> Answer:
    """Explain why something from a peer is accepted, or what is missing.

    Exit code 1 if it is not accepted.
    """
    _check_execute(type_, trigger, execute=execute)
    explained = space.peers.explain(peer, type_, trigger, execute=execute)
    return Answer(explained, lambda: _show_explained(explained), exit_code=0 if explained.allowed else 1)


def _show_explained(explained: Explained) -> None:
    from rich.text import Text

    verdict = ("allowed", "green") if explained.allowed else ("denied", "red")
    run = " and run" if explained.execute else ""
    show_line(Text.assemble(verdict, one_line(f": accept{run} {explained.type} by {explained.trigger} from {explained.peer}")))
    trust = "is trusted" if explained.trusted else "is not trusted"
    facts: list[tuple[str, object]] = [("trust", f"{explained.peer} {trust}"), ("type", " → ".join(map(one_line, explained.path)))]
    facts += [("grant", _grant_text(grant)) for grant in explained.grants]
    for missing in explained.missing:
        facts += [("missing", one_line(missing.message)), ("to change it", one_line(missing.hint))]
    console().print(facts_table(facts))


def _grant_text(grant: Grant) -> str:
    until = f", until {moment(grant.expires)} UTC" if grant.expires is not None else ""
    run = ", may run" if grant.execute else ""
    return one_line(f"{short(grant.cid)}: {grant.type} by {grant.trigger}{run}{until}; by {grant.by}, {moment(grant.at)} UTC")
