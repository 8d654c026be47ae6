"""``clia peer``: the other spaces that this one knows."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from clia.cli.command import Answer, arg, command, flag, opt, several
from clia.cli.federation import follow_hints, reason, show_refusals, show_remotes
from clia.cli.inputs import invalid_option
from clia.cli.output import console, counted, one_line, write
from clia.cli.rendering import MAX_ROWS, facts_table, is_wide, line_of, moment, short, show_hints, show_rows, styled
from clia.errors import InvalidInput
from clia.federation.keys import fingerprint
from clia.values.records import EMBED, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.facade.space import Space
    from clia.federation.model import Peer, Refused, Remote, RemoteBehaviour, Share, Untaken

NAME = arg("NAME", "peer name")
_NO_TRUST = "accept nothing from it, even with a grant, and do not let it fetch from a forge here"
TRUST: Any = {
    "trust": flag("trust the peer: its grants take effect", one_of="trust", default=None),
    "no_trust": flag(_NO_TRUST, one_of="trust", action="store_false", dest="trust"),
}
_MAX_REFUSALS = 10


@command("peer add")
def peer_add(
    space: Space,
    peer: str = arg("NAME", "name for the other space, such as platform-team"),
    key: str = opt("KEY", "key that clia key show prints there: clia:SPACE:KEY", required=True),
    url: str | None = opt(
        "URL", "address: a directory, any git address, or its forge's https://forge.example.org/federation/SPACE"
    ),
    no_trust: bool = flag(_NO_TRUST),
) -> Answer[Peer]:
    """Add another space as a peer, identified by its key."""
    added = space.peers.add(peer, key, _absolute_address(url), trusted=not no_trust)

    def show() -> None:
        _note_missing_directory(added.url)
        trust = "" if added.trusted else ", not trusted"
        write(one_line(f"added {added.name}{trust}: space {added.space}, key {added.fingerprint}") + "\n")
        write(f"next: clia cap grant {added.name} --follow accepts its agents; clia peer share {added.name} shares yours\n")

    return Answer(added, show)


@command("peer list")
def peer_list(space: Space) -> Answer[list[Peer]]:
    """List peers."""
    peers = space.peers()
    if not peers:
        return Answer([], "no peers yet; add one with: clia peer add NAME --key KEY --url URL")
    return Answer(peers, lambda: _show_peers(peers))


def _show_peers(peers: Sequence[Peer]) -> None:
    shared = ("shared",) if is_wide() else ()
    rows = []
    for peer in peers:
        trust = ("forked", "red") if peer.forked else ("trusted", "green") if peer.trusted else ("not trusted", "yellow")
        heard = styled("never" if peer.heard is None else moment(peer.heard), "dim")
        counts = (peer.agents or "", styled(peer.waiting or "", "yellow"))
        share = (share_text(peer.share),) if shared else ()
        rows.append((styled(peer.name, "bold"), styled(*trust), *counts, heard, *share, peer.url or ""))
    headings = ("peer", "trust", "agents", "waiting", "heard (UTC)", *shared, "url")
    show_rows(headings, rows, cut=(*shared, "url"), right=("agents", "waiting"))


@json_form(peer=EMBED)
class ShownPeer(NamedTuple):
    peer: Peer
    fingerprints: list[str]  # of its keys, newest last
    tracked: list[Remote]  # agents that are tracked
    behaviours: list[RemoteBehaviour]  # behaviours that are tracked
    claims: list[Untaken]  # announcements that are not applied
    refusals: list[Refused]  # refused statements, newest first


@command("peer show")
def peer_show(space: Space, peer: str = NAME) -> Answer[ShownPeer]:
    """Show a peer: its keys, what is tracked, what waits and why."""
    details = space.peers.get(peer)
    agents, behaviours = space.peers.remotes(peer), space.peers.behaviours(peer)
    waiting, refusals = space.peers.waiting(peer), space.peers.refusals(peer)

    def show() -> None:
        _show_peer(details)
        if agents or behaviours:
            console().print()
            show_remotes(agents, behaviours)
        if waiting:
            _show_waiting(details, waiting)
        if refusals:
            console().print()
            show_refusals(refusals[:_MAX_REFUSALS], moment)
            _show_rest(len(refusals) - _MAX_REFUSALS)

    fingerprints = [fingerprint(key) for key in details.keys]
    return Answer(ShownPeer(details, fingerprints, agents, behaviours, waiting, refusals), show)


def _show_peer(peer: Peer) -> None:
    trust = ("trusted", "green") if peer.trusted else ("not trusted", "yellow")
    console().print(line_of((one_line(peer.name), "bold"), "  ", trust))
    keys = [("replaced key" if key != peer.keys[-1] else "key", f"{key}\n{fingerprint(key)}") for key in peer.keys]
    forked = "its chain has forked: nothing is accepted until it sends a snapshot" if peer.forked else ""
    facts: list[tuple[str, object]] = [("space", peer.space), *keys, ("url", peer.url or "unknown")]
    facts += [("shared", share_text(peer.share)), ("heard", "never" if peer.heard is None else f"{moment(peer.heard)} UTC")]
    facts += [("forked", forked), ("tracked", counted(peer.agents, "agent")), ("waiting", counted(peer.waiting, "claim"))]
    console().print(facts_table(facts))


def _show_waiting(peer: Peer, waiting: Sequence[Untaken]) -> None:
    """Print waiting claims, grouped by reason."""
    groups: dict[tuple[str, str, str], list[Untaken]] = {}
    for claim in waiting[:MAX_ROWS]:
        groups.setdefault((claim.code, reason(claim.why, claim.place), claim.hint), []).append(claim)
    for (code, why, hint), claims in groups.items():
        console().print()
        write(one_line(f"{code}: {why}") + "\n")
        rows = [(claim.place, short(claim.new) or "gone", claim.type, claim.trigger) for claim in claims]
        show_rows(("waits", "at", "type", "trigger"), rows, indent=2)
        show_hints([hint] if hint else [])
    _show_rest(len(waiting) - MAX_ROWS)
    hints = follow_hints(peer.name, waiting)
    if hints:
        console().print()
        show_hints(hints)


def _show_rest(number: int) -> None:
    if number > 0:
        write(f"and {number} more: --json shows all\n")


@command("peer change")
def peer_change(
    space: Space,
    peer: str = NAME,
    url: str | None = opt("URL", "new address"),
    trust: bool | None = TRUST,
) -> Answer[Peer]:
    """Change the address or the trust of a peer."""
    if url is None and trust is None:
        raise InvalidInput("give --url, --trust or --no-trust", code="usage", hints=["clia peer change --help"])
    changed = space.peers.change(peer, url=_absolute_address(url), trusted=trust)

    def show() -> None:
        _note_missing_directory(_absolute_address(url))
        address = f", address {changed.url}" if changed.url else ""
        write(one_line(f"{changed.name} is {'trusted' if changed.trusted else 'not trusted'}{address}") + "\n")

    return Answer(changed, show)


@command("peer share")
def peer_share(
    space: Space,
    peer: str = arg("NAME", "peer name; without an option, show what is shared"),
    agents: list[str] = several("NAME", "agents to share; '*': all, including future ones", "--agent"),
    traces: bool = flag("share the traces of these agents"),
    sessions: bool = flag("share the state of their sessions"),
    behaviours: list[str] = several("NAME", "behaviours to share; '*': all", "--behaviour"),
    nothing: bool = flag("stop sharing; the peer keeps what it already has"),
) -> Answer[Share]:
    """Choose what a peer is told about. Nothing is shared by default.

    The options replace what was shared before: what they do not name is no longer shared.
    """
    has_options = bool(agents or behaviours or traces or sessions)
    if nothing and has_options:
        raise invalid_option("--nothing excludes all other options", option="--nothing")
    if (traces or sessions) and not agents:
        hints = [f"clia peer share {peer} --agent '*' --traces", "what is not named is no longer shared"]
        raise invalid_option("--traces and --sessions need --agent", hints, option="--agent")
    unknown: list[str] = []
    if has_options or nothing:
        agents, behaviours = list(dict.fromkeys(agents)), list(dict.fromkeys(behaviours))
        changed = space.peers.share(peer, agents=agents, behaviours=behaviours, traces=traces, sessions=sessions)
        unknown = _unknown_names(space, agents, behaviours)
    else:
        changed = space.peers.get(peer)

    def show() -> None:
        write(one_line(f"shared with {changed.name}: {share_text(changed.share)}") + "\n")
        write("".join(f"note: {one_line(note)}\n" for note in unknown), sys.stderr)
        if has_options or nothing:
            write(f"next: clia announce {changed.name}\n")

    return Answer(changed.share, show)


def _unknown_names(space: Space, agents: Sequence[str], behaviours: Sequence[str]) -> list[str]:
    """Notes about names that do not exist yet: they may be for later, or misspelled."""
    known_agents = {"*", *space.agents(), *space.agents(archived=True)}
    known_behaviours = {"*", *(behaviour.name for behaviour in space.behaviours())} if behaviours else set()
    notes = [f"no agent {name!r} exists yet" for name in agents if name not in known_agents]
    return notes + [f"no behaviour {name!r} exists yet" for name in behaviours if name not in known_behaviours]


class RemovedPeer(NamedTuple):
    peer: str  # its name
    removed: bool  # true


@command("peer remove")
def peer_remove(space: Space, peer: str = NAME) -> Answer[RemovedPeer]:
    """Remove a peer, its grants and everything tracked from it.

    Merged work stays.
    """
    space.peers.remove(peer)
    return Answer(RemovedPeer(peer, True), f"removed {peer}, its grants and what was tracked from it; merged work stays")


def share_text(share: Share) -> str:
    """What is shared with a peer, in words."""
    agents, behaviours = _name_list(share.agents, "agent"), _name_list(share.behaviours, "behaviour")
    parts = (agents, "traces" if share.traces else "", "sessions" if share.sessions else "", behaviours)
    return "; ".join(part for part in parts if part) or "nothing"


def _name_list(names: Sequence[str], one: str) -> str:
    if not names:
        return ""
    return f"all {one}s" if "*" in names else f"{one}{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _absolute_address(url: str | None) -> str | None:
    """An address to store; a directory becomes absolute."""
    if not url or not _is_directory_address(url):
        return url
    return os.path.abspath(os.path.expanduser(url))


def _note_missing_directory(url: str | None) -> None:
    if url and is_missing_directory(url):
        write(f"note: directory {one_line(url)} does not exist yet\n", sys.stderr)


def is_missing_directory(url: str) -> bool:
    return _is_directory_address(url) and not os.path.isdir(url)


def _is_directory_address(url: str) -> bool:
    """Whether an address is a path, and not a URL, an ssh host or something invalid."""
    return url == url.strip() and not url.startswith("-") and ":" not in url.partition("/")[0]
