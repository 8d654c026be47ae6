"""Exchange with peers: announce, sync, remotes; and ``clia cap``, which grants what is accepted from them."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta

from clia.cli.command import Answer, arg, command, flag, opt
from clia.cli.inputs import invalid_option
from clia.cli.output import console, counted, one_line, write
from clia.cli.rendering import (
    MAX_ROWS,
    facts_table,
    is_wide,
    moment,
    progress_bar,
    short,
    show_hints,
    show_line,
    show_rows,
    spinner,
    styled,
)
from clia.errors import Ambiguous, CliaError, InvalidInput, TransportError
from clia.federation.announcing import NOTHING_SHARED
from clia.federation.model import Share
from clia.federation.statements import BEHAVIOUR, HEAD_MOVE, MERGE, NOTE, SPAWN, is_shared_ref, tracked_ref, tracking_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.facade.space import Space
    from clia.federation.model import Announced, Explained, Grant, Move, Refused, Remote, RemoteBehaviour, Synced, Untaken

HEARD_HINT = (
    "peers that read this repository receive it at their next sync; for peers that read a server: clia announce --push REMOTE\n"
)
_IMPOSTOR_CODES = frozenset(("key-not-continued", "malformed-key-chain", "chain-forked", "bad-signature"))

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


@command("announce")
def announce(
    space: Space,
    json_output: bool,
    peer: str | None = arg("PEER", "peer to tell (default: every peer that something is shared with)", nargs="?"),
    snapshot: bool = flag("announce everything again, to repair what a peer has missed"),
    push: str | None = opt("REMOTE", "git remote to push the announcement to, such as origin; pushes earlier announcements too"),
) -> Answer[list[Announced]]:
    """Tell peers what is new in what is shared with them.

    If the push fails, the announcement is still recorded.
    """
    with spinner("Announcing", hidden=json_output):
        announced = _announce(space, peer, snapshot, push)
    shared = announced or any(other.share != Share() for other in space.peers())

    def show() -> None:
        for announcement in announced:
            _show_announced(announcement, push)
        if not shared:
            write("nothing is shared with any peer; share agents with: clia peer share PEER --agent '*'\n")
        elif not announced:
            write("nothing to announce yet: none of the shared agents or behaviours exists here\n")
        if not push and any(announcement.statements and not announcement.rung for announcement in announced):
            write(HEARD_HINT)

    return Answer(announced, show)


def _announce(space: Space, peer: str | None, snapshot: bool, push: str | None) -> list[Announced]:
    """The announcements; none if what is shared does not exist yet."""
    try:
        return space.peers.announce(peer, snapshot=snapshot, push=push)
    except InvalidInput as err:
        if err.code != NOTHING_SHARED or peer is None or space.peers.get(peer).share == Share():
            raise
        return []
    except TransportError as err:
        hints = [*err.hints, f"push it later with: clia announce{f' {peer}' if peer else ''} --push {push}"]
        raise TransportError(f"announced, but not pushed: {err.message}", hints=hints, fields=err.fields) from None


def _show_announced(announced: Announced, push: str | None) -> None:
    pushed = f"; pushed to {push}" if push else ""
    if not announced.statements:
        write(one_line(f"{announced.peer}: nothing new{pushed}") + "\n")
        return
    statements = counted(announced.statements, "statement") + (", a snapshot" if announced.snapshot else "")
    notified = "; its forge was notified" if announced.rung else ""
    write(one_line(f"{announced.peer}: announced {statements}{pushed}{notified}") + "\n")
    _show_moves(
        [(tracked_name(move["ref"]), *(move[key] for key in ("old", "new", "type", "trigger"))) for move in announced.moves]
    )


@command("sync")
def sync(
    space: Space, json_output: bool, peer: str | None = arg("PEER", "peer to read (default: every peer with an address)", nargs="?")
) -> Answer[list[Synced]]:
    """Read what peers announce, and track what is granted.

    What no grant allows is refused, with exit code 0. Exit code 1 if a peer could not be read, or if its identity is in doubt:
    key-not-continued, malformed-key-chain, chain-forked, bad-signature, unknown-key. A peer that fails does not stop the others.
    """
    with progress_bar("Reading peers", hidden=json_output) as progress:
        synced = space.peers.sync(peer, progress=progress)

    def show() -> None:
        for result in synced:
            _show_synced(space, result)
        if not synced:
            write("no peer has an address; add one with: clia peer add NAME --key KEY --url URL\n")

    failed = False
    for result in synced:
        codes = {refused.code for refused in result.refused}
        # Statements of a lost key may precede those of the key that is pinned now.
        in_doubt = codes & _IMPOSTOR_CODES or ("unknown-key" in codes and not result.accepted)
        failed = failed or result.error is not None or bool(in_doubt)
    return Answer(synced, show, exit_code=1 if failed else 0)


def _show_synced(space: Space, synced: Synced) -> None:
    if synced.error is not None:
        error = CliaError.from_json(synced.error)
        for line in (f"{synced.peer}: error: {error.code}: {error.message}", *(f"  hint: {hint}" for hint in error.hints)):
            write(f"{one_line(line)}\n", sys.stderr)
        return
    parts = [f"{counted(synced.accepted, 'statement')} accepted"] if synced.accepted else []
    parts += [f"{counted(len(synced.moves), 'move')} tracked"] if synced.moves else []
    parts += [f"{len(synced.refused)} refused"] if synced.refused else []
    parts += [counted(synced.keys, "new key")] if synced.keys else []
    parts += ["it has announced nothing to this space yet"] if synced.silent else [] if parts else ["nothing new"]
    parts += [counted(synced.waiting, "claim waits", "claims wait")] if synced.waiting and not synced.refused else []
    write(one_line(f"{synced.peer}: {', '.join(parts)}") + "\n")
    show_moves(synced.moves)
    if synced.refused:
        show_refusals(synced.refused)
    if synced.silent:
        show_hints(_first_announcement_hints(space.peers.get(synced.peer).url or ""))
    if synced.waiting or synced.refused:
        show_hints([f"see what waits, and what would accept it: clia peer show {synced.peer}"])
    if synced.waiting and not synced.refused:
        show_hints(follow_hints(synced.peer, space.peers.waiting(synced.peer)))


def _first_announcement_hints(url: str) -> list[str]:
    """What to do in the other space before it announces something."""
    hints = [
        "in the other space: clia peer add NAME --key KEY, with the KEY that clia key show prints here",
        "then: clia peer share NAME --agent '*', and clia announce NAME",
    ]
    if "/federation/" not in url:  # a forge publishes announcements itself
        hints.append(f"if {url} is a server and not their repository: clia announce NAME --push REMOTE")
    return hints


def follow_hints(peer: str, waiting: Sequence[Untaken]) -> list[str]:
    """A hint for ``--follow``, if that would accept a waiting agent."""
    helps = any(claim.hint.startswith("clia cap grant") and claim.place.startswith("agents/") for claim in waiting)
    return [f"grant everything needed to follow its agents: clia cap grant {peer} --follow"] if helps else []


def show_moves(moves: Sequence[Move]) -> None:
    _show_moves([(move.place, move.old, move.new, move.type, move.trigger) for move in moves])


def _show_moves(moves: Sequence[tuple[str, str | None, str | None, str, str]]) -> None:
    if moves:
        rows = [(name, short(old) or "-", short(new) or "no longer shared", *why) for name, old, new, *why in moves]
        show_rows(("what", "from", "to", "type", "trigger"), rows, limit=MAX_ROWS)


def show_refusals(refusals: Sequence[Refused], when: Callable[[int], str] | None = None) -> None:
    """Print why statements were refused; ``when``: with the time of each."""
    rows = [
        (refused.code, tracked_name(refused.ref), reason(refused.message, refused.ref), *((when(refused.at),) if when else ()))
        for refused in refusals
    ]
    show_rows(("refused", "what", "why", *(("when (UTC)",) if when else ())), rows, wrapped=("why",), limit=MAX_ROWS)


def tracked_name(ref: str | None) -> str:
    """The name under which a peer's ref is tracked."""
    return tracking_path(ref) if ref is not None and is_shared_ref(ref) else ref or ""


def reason(message: str, place_or_ref: str | None) -> str:
    """The reason of a refusal without the name of its ref, which is shown beside it."""
    for ref in (place_or_ref, tracked_ref(place_or_ref or "")):
        message = message.removeprefix(f"{ref}: ") if ref else message
    return message


@command("remotes")
def remotes(
    space: Space,
    json_output: bool,
    peer: str | None = arg("PEER", "only this peer", nargs="?"),
    only_behaviours: bool = flag("only behaviours; with --json, these instead of agents", "--behaviours"),
) -> Answer[Sequence[Remote] | Sequence[RemoteBehaviour]]:
    """List the tracked agents and behaviours of peers."""
    agents = [] if only_behaviours else space.peers.remotes(peer)
    behaviours = space.peers.behaviours(peer) if only_behaviours or not json_output else []
    value = behaviours if only_behaviours else agents
    if agents or behaviours:
        return Answer(value, lambda: show_remotes(agents, behaviours))
    name = peer or "PEER"
    nouns, grant = ("behaviours", f"{name} behaviour behaviour") if only_behaviours else ("agents", f"{name} --follow")
    return Answer(value, f"no {nouns} of peers are tracked; accept some with: clia cap grant {grant}, then clia sync {name}")


def show_remotes(agents: Sequence[Remote], behaviours: Sequence[RemoteBehaviour]) -> None:
    """Print what is tracked, by the name that other commands take: PEER/NAME."""
    if agents:
        rows = [
            (
                styled(f"{remote.peer}/{remote.agent}", "bold"),
                remote.kind or "",
                remote.subject,
                styled(moment(remote.at), "dim"),
                "yes" if remote.record else "no",
                remote.traces or "",
            )
            for remote in agents
        ]
        show_rows(("agent", "last", "subject", "when (UTC)", "briefing", "traces"), rows, cut=("subject",), right=("traces",))
    if agents and behaviours:
        console().print()
    if behaviours:
        versions = [(f"{remote.peer}/{remote.name}", short(remote.cid), "yes" if remote.runs else "no") for remote in behaviours]
        show_rows(("behaviour", "version", "may run"), versions)


@command("cap grant")
def cap_grant(
    space: Space,
    peer: str = PEER,
    type_: str | None = arg("TYPE", "type to accept, with its subtypes; agent-commit: every commit", nargs="?"),
    triggers: list[str] = arg("TRIGGER", f"{_TRIGGERS} (one or more)", nargs="*"),
    follow: bool = flag("instead of TYPE and TRIGGER: grant everything needed to follow its agents, and show what that is"),
    execute: bool = flag("also let behaviours run here: for TYPE and TRIGGER behaviour"),
    expires: str | None = opt("WHEN", "end of the grant: 2027-01-31 (00:00 UTC), or 30d from now"),
) -> Answer[list[Grant]]:
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
            raise invalid_option("--follow excludes TYPE, TRIGGER and --execute")
        return list(_FOLLOW)
    if kind is None or not triggers:
        hints = [f"clia cap grant {peer} agent-commit spawn head-move merge", f"clia cap grant {peer} --follow"]
        raise InvalidInput("give TYPE and TRIGGER, or --follow", code="usage", hints=hints)
    pairs = [(kind, trigger) for trigger in dict.fromkeys(triggers)]
    for pair in pairs:
        _check_execute(*pair, execute=execute)
    return pairs


def _check_execute(kind: str, trigger: str, *, execute: bool) -> None:
    if execute and (kind, trigger) != ("behaviour", "behaviour"):
        message = "only behaviours can run: --execute goes with TYPE behaviour and TRIGGER behaviour"
        raise invalid_option(message, option="--execute")


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
        hints = ["2027-01-31, 2027-01-31T10:00:00Z, or how long from now: 90m, 12h, 30d, 4w"]
        message = f"--expires takes a time, not {text!r}"
        raise InvalidInput(message, code="invalid-time", hints=hints, fields={"field": "expires"}) from None


@command("cap revoke")
def cap_revoke(
    space: Space,
    peer: str = PEER,
    type_: str | None = arg("TYPE", "only grants for this type (default: every grant)", nargs="?"),
    trigger: str | None = arg("TRIGGER", "only grants for this trigger", nargs="?"),
    grant_id: str | None = opt("CID", "only this grant; clia cap list shows the ids", "--id"),
) -> Answer[list[Grant]]:
    """Revoke grants of a peer, with immediate effect.

    What is already tracked stays.
    """
    if grant_id is not None and type_ is not None:
        raise invalid_option("--id excludes TYPE and TRIGGER", option="--id")
    if type_ is not None and trigger is not None:
        space.peers.explain(peer, type_, trigger)  # refuses an unknown trigger
    revoked = space.peers.revoke(peer, type_, trigger, cid=None if grant_id is None else _full_id(space, peer, grant_id))

    def show() -> None:
        show_grants(revoked)
        number = counted(len(revoked), "grant")
        write(one_line(f"revoked {number} of {peer}; what is already tracked stays") + "\n")

    return Answer(revoked, show)


def _full_id(space: Space, peer: str, start: str) -> str:
    """The id that begins with ``start``; the library refuses an unknown one."""
    matches = [grant.cid for grant in space.peers.grants(peer) if len(start) >= 4 and grant.cid.startswith(start)]
    if len(matches) > 1:
        raise Ambiguous(f"{start} matches {len(matches)} grants", fields={"matches": matches})
    return matches[0] if matches else start


@command("cap list")
def cap_list(space: Space, peer: str | None = arg("PEER", "only grants of this peer", nargs="?")) -> Answer[list[Grant]]:
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
        expires = "never" if grant.expires is None else moment(grant.expires)
        expires += ", expired" if grant.expires is not None and grant.expires <= datetime.now(UTC).timestamp() else ""
        terms = (grant.peer, grant.type, grant.trigger, "may run" if grant.execute else "", expires, short(grant.cid))
        rows.append((*terms, *((grant.by.partition(" <")[0], moment(grant.at)) if wide else ())))
    origin_headings = ("by", "since (UTC)") if wide else ()
    show_rows(("peer", "type", "trigger", "execute", "expires (UTC)", "id", *origin_headings), rows, cut=("by",))


@command("cap explain")
def cap_explain(
    space: Space,
    peer: str = PEER,
    type_: str = arg("TYPE", "type, such as finding"),
    trigger: str = arg("TRIGGER", _TRIGGERS),
    execute: bool = flag("whether it may also run: for TYPE and TRIGGER behaviour"),
) -> Answer[Explained]:
    """Explain why something from a peer is accepted, or what is missing.

    Exit code 1 if it is not accepted.
    """
    _check_execute(type_, trigger, execute=execute)
    explained = space.peers.explain(peer, type_, trigger, execute=execute)
    return Answer(explained, lambda: _show_explained(explained), exit_code=0 if explained.allowed else 1)


def _show_explained(explained: Explained) -> None:
    verdict = ("allowed", "green") if explained.allowed else ("denied", "red")
    run = " and run" if explained.execute else ""
    show_line(verdict, one_line(f": accept{run} {explained.type} by {explained.trigger} from {explained.peer}"))
    trust = "is trusted" if explained.trusted else "is not trusted"
    facts: list[tuple[str, object]] = [("trust", f"{explained.peer} {trust}"), ("type", " → ".join(map(one_line, explained.path)))]
    for grant in explained.grants:
        until = f", until {moment(grant.expires)} UTC" if grant.expires is not None else ""
        terms = f"{grant.type} by {grant.trigger}{', may run' if grant.execute else ''}{until}"
        facts.append(("grant", one_line(f"{short(grant.cid)}: {terms}; by {grant.by}, {moment(grant.at)} UTC")))
    for missing in explained.missing:
        facts += [("missing", one_line(missing.message)), ("to change it", one_line(missing.hint))]
    console().print(facts_table(facts))
