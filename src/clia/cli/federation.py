"""Exchange with peers: announce, sync, remotes."""

from __future__ import annotations

import sys

from clia.cli.command import Answer, arg, command, flag, opt
from clia.cli.output import console, counted, one_line, write
from clia.cli.rendering import MAX_ROWS, moment, progress_bar, short, show_hints, show_rest, show_rows, spinner
from clia.errors import CliaError, InvalidInput, TransportError
from clia.federation.announcing import NOTHING_SHARED
from clia.federation.model import Share
from clia.federation.statements import is_shared_ref, tracked_ref, tracking_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.facade.space import Space
    from clia.federation.model import Announced, Move, Refused, Remote, RemoteBehaviour, Synced, Untaken

HEARD_HINT = (
    "peers that read this repository receive it at their next sync; for peers that read a server: clia announce --push REMOTE\n"
)
_IMPOSTOR_CODES = frozenset(("key-not-continued", "malformed-key-chain", "chain-forked", "bad-signature"))
_UNKNOWN_KEY = "unknown-key"
_MOVE_HEADINGS = ("what", "from", "to", "type", "trigger")


@command("announce")
def announce(
    space: Space,
    json_output: bool,
    peer: str | None = arg("PEER", "peer to tell (default: every peer that something is shared with)", nargs="?"),
    snapshot: bool = flag("announce everything again; this repairs whatever a peer has missed"),
    push: str | None = opt("REMOTE", "git remote to push the announcement to, such as origin; pushes earlier announcements too"),
) -> Answer:
    """Tell peers what is new in what is shared with them.

    If the push fails, the announcement is still recorded.
    """
    with spinner("Announcing", hidden=json_output):
        announced = _announce(space, peer, snapshot, push)
    shared = announced or any(each.share != Share() for each in space.peers())

    def show() -> None:
        for each in announced:
            _show_announced(each, push)
        if not shared:
            write("nothing is shared with any peer; share agents with: clia peer share PEER --agent '*'\n")
        elif not announced:
            write("nothing to announce yet: none of the shared agents or behaviours exists here\n")
        if not push and any(each.statements and not each.rung for each in announced):
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
        retry = f"clia announce{f' {peer}' if peer else ''} --push {push}"
        raise TransportError(
            f"announced, but not pushed: {err.message}",
            hints=[*err.hints, f"push it later with: {retry}"],
            fields=err.fields,
        ) from None


def _show_announced(announced: Announced, push: str | None) -> None:
    pushed = f"; pushed to {push}" if push else ""
    if not announced.statements:
        write(one_line(f"{announced.peer}: nothing new{pushed}") + "\n")
        return
    statements = counted(announced.statements, "statement", "statements") + (", a snapshot" if announced.snapshot else "")
    notified = "; its forge was notified" if announced.rung else ""
    write(one_line(f"{announced.peer}: announced {statements}{pushed}{notified}") + "\n")
    if announced.moves:
        rows = [
            (
                tracked_name(move["ref"]),
                short(move["old"]) or "-",
                short(move["new"]) or "no longer shared",
                move["type"],
                move["trigger"],
            )
            for move in announced.moves[:MAX_ROWS]
        ]
        show_rows(_MOVE_HEADINGS, rows)
        show_rest(len(announced.moves) - MAX_ROWS)


@command("sync")
def sync(
    space: Space, json_output: bool, peer: str | None = arg("PEER", "peer to read (default: every peer with an address)", nargs="?")
) -> Answer:
    """Read what peers announce, and track what is granted.

    What no grant allows is refused, with exit code 0. Exit code 1 if a peer could not be read, or if its identity is in doubt:
    key-not-continued, malformed-key-chain, chain-forked, bad-signature, unknown-key. A peer that fails does not stop the others.
    """
    with progress_bar("Reading peers", hidden=json_output) as progress:
        synced = space.peers.sync(peer, progress=progress)

    def show() -> None:
        for each in synced:
            _show_synced(space, each)
        if not synced:
            write("no peer has an address; add one with: clia peer add NAME --key KEY --url URL\n")

    failed = any(each.error is not None or _identity_in_doubt(each) for each in synced)
    return Answer(synced, show, exit_code=1 if failed else 0)


def _identity_in_doubt(synced: Synced) -> bool:
    codes = {refused.code for refused in synced.refused}
    # Statements of a lost key may precede those of the key that is pinned now.
    return bool(codes & _IMPOSTOR_CODES) or (_UNKNOWN_KEY in codes and not synced.accepted)


def _show_synced(space: Space, synced: Synced) -> None:
    if synced.error is not None:
        error = CliaError.from_json(synced.error)
        write(one_line(f"{synced.peer}: error: {error.code}: {error.message}") + "\n", sys.stderr)
        write("".join(one_line(f"  hint: {hint}") + "\n" for hint in error.hints), sys.stderr)
        return
    parts = [f"{counted(synced.accepted, 'statement', 'statements')} accepted"] if synced.accepted else []
    parts += [f"{counted(len(synced.moves), 'move', 'moves')} tracked"] if synced.moves else []
    parts += [f"{len(synced.refused)} refused"] if synced.refused else []
    parts += [f"{counted(synced.keys, 'new key', 'new keys')}"] if synced.keys else []
    parts += ["it has announced nothing to this space yet"] if synced.silent else [] if parts else ["nothing new"]
    parts += [counted(synced.waiting, "claim waits", "claims wait")] if synced.waiting and not synced.refused else []
    write(one_line(f"{synced.peer}: {', '.join(parts)}") + "\n")
    if synced.moves:
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
    rows = [(move.place, short(move.old) or "-", short(move.new) or "no longer shared", move.type, move.trigger) for move in moves]
    show_rows(_MOVE_HEADINGS, rows[:MAX_ROWS])
    show_rest(len(rows) - MAX_ROWS)


def show_refusals(refusals: Sequence[Refused], when: Callable[[int], str] | None = None) -> None:
    """Print why statements were refused; ``when``: with the time of each."""
    rows = [
        (each.code, tracked_name(each.ref), reason(each.message, each.ref), *((when(each.at),) if when else ()))
        for each in refusals[:MAX_ROWS]
    ]
    show_rows(("refused", "what", "why", *(("when (UTC)",) if when else ())), rows, wrapped=("why",))
    show_rest(len(refusals) - MAX_ROWS)


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
) -> Answer:
    """List the tracked agents and behaviours of peers."""
    agents = [] if only_behaviours else space.peers.remotes(peer)
    behaviours = space.peers.behaviours(peer) if only_behaviours or not json_output else []
    value = behaviours if only_behaviours else agents
    if agents or behaviours:
        return Answer(value, lambda: show_remotes(agents, behaviours))
    name = peer or "PEER"
    what, grant = ("behaviours", f"{name} behaviour behaviour") if only_behaviours else ("agents", f"{name} --follow")
    return Answer(value, f"no {what} of peers are tracked; accept some with: clia cap grant {grant}, then clia sync {name}")


def show_remotes(agents: Sequence[Remote], behaviours: Sequence[RemoteBehaviour]) -> None:
    """Print what is tracked, by the name that other commands take: PEER/NAME."""
    if agents:
        _show_remote_agents(agents)
    if agents and behaviours:
        console().print()
    if behaviours:
        rows = [(f"{each.peer}/{each.name}", short(each.cid), "yes" if each.runs else "no") for each in behaviours]
        show_rows(("behaviour", "version", "may run"), rows)


def _show_remote_agents(agents: Sequence[Remote]) -> None:
    from rich.text import Text

    rows = [
        (
            Text(one_line(f"{each.peer}/{each.agent}"), style="bold"),
            each.kind or "",
            each.subject,
            Text(moment(each.at), style="dim"),
            "yes" if each.record else "no",
            str(each.traces or ""),
        )
        for each in agents
    ]
    show_rows(("agent", "last", "subject", "when (UTC)", "briefing", "traces"), rows, cut=("subject",), right=("traces",))
