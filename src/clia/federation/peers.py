"""Peers: other spaces, each pinned by a key.

Invariant: ``refs/clia/peers/<name>`` holds who a peer is (``peer.json``) and the accepted position (``accepted.json``), so that
losing the store reopens nothing. A removed peer keeps both under its space id and continues from there when it is added again.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import NamedTuple

from clia.errors import AlreadyExists, InvalidInput, NotFound
from clia.federation.acceptance import Position
from clia.federation.keys import read_identity
from clia.federation.model import Share
from clia.federation.statements import RefClaim, claim_of, tracked_ref
from clia.git.records import FILE, TreeEntry
from clia.values import refs as names
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import check_flag, check_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from clia.federation.signing import Ed25519Verifier
    from clia.space.core import Core
    from clia.space.envelope import Envelope

ALL = "*"
_FILES = ("peer.json", "accepted.json")
_ADD_LOCK = "@peers"  # a space has one name
_URL_HINT = "use a directory, ssh://…, https://…, or the URL of a forge: https://forge.example/federation/SPACE"


class PinnedPeer(NamedTuple):
    """A peer with everything stored about it; ``tip`` is the commit that holds it."""

    name: str
    space: str
    keys: tuple[str, ...]
    url: str | None
    trusted: bool
    share: Share
    position: Position
    failed: dict[str, str]  # ref -> commit that was refused permanently
    left: dict[str, str]  # ref -> last tracked commit of agents that are no longer shared
    tip: str


class Peers:
    def __init__(self, core: Core, envelope: Envelope, verifier: Ed25519Verifier) -> None:
        self._core = core
        self._envelope = envelope
        self._verifier = verifier
        self._read: dict[str, PinnedPeer] = {}  # by name

    def add(self, name: str, key: str, url: str | None, *, trusted: bool = True) -> PinnedPeer:
        """Pin a peer. A removed peer continues from its accepted position if the key is in its chain."""
        core = self._core
        check_peer_name(name)
        check_flag(trusted, "trusted")
        space, key = read_identity(check_text(key, "key"), self._verifier)
        if space == core.space_id:
            raise InvalidInput("this is the key of this space, not of a peer", code="same-space", fields={"space": space})
        _check_url(url)
        with self._envelope.among_others(), core.locks.hold(_ADD_LOCK), core.locks.hold(peer_lock(name)):
            for peer in self.all():
                if name == peer.name or space == peer.space:
                    hints = [f"clia peer show {peer.name}", "if the peer has a new identity, remove it first, then add it"]
                    fields = {"peer": peer.name, "space": peer.space}
                    raise AlreadyExists(f"peer {peer.name} already exists", hints=hints, fields=fields)
            self._untrack(name)  # plain git may have left refs of another peer with this name
            tip = core.refs.get(names.removed_peer(space))
            removed = None if tip is None else self.at("", tip)
            if removed is None or key not in removed.keys:
                removed = PinnedPeer(name, space, (key,), url, trusted, Share(), Position(), {}, {}, "")
            peer = removed._replace(name=name, url=url, trusted=trusted, share=Share(), failed={}, tip="")
            return self.write(peer, None, f"peer {name}: added")

    def change(self, name: str, *, url: str | None = None, trusted: bool | None = None, share: Share | None = None) -> PinnedPeer:
        """Change what is given."""
        _check_url(url)
        if trusted is not None:
            check_flag(trusted, "trusted")
        if share is not None:
            _check_share(share)

        def changed(peer: PinnedPeer) -> PinnedPeer:
            new_trust = peer.trusted if trusted is None else trusted
            return peer._replace(url=url or peer.url, trusted=new_trust, share=share or peer.share)

        with self._envelope.among_others(), self._core.locks.hold(peer_lock(name)):
            return self.update(name, changed, f"peer {name}: changed")

    def update(self, name: str, change: Callable[[PinnedPeer], PinnedPeer], why: str) -> PinnedPeer:
        """The caller holds the peer's lock."""
        peer = self.get(name)
        changed = change(peer)
        return peer if changed == peer else self.write(changed, peer.tip, why)

    def remove(self, name: str) -> None:
        """Remove a peer and its tracking refs, but keep its accepted position, if its record can be read."""
        core, why = self._core, "clia: remove peer"
        with self._envelope.among_others(), core.locks.hold(peer_lock(name)):
            try:
                peer = self.get(name)
            except InvalidInput:  # nothing readable to keep
                self._untrack(name)
                core.refs.move(names.peer(name), core.refs.get(names.peer(name)), None, why)
                return
            # Tracked refs become waiting claims, so that a peer that returns need not announce them again.
            waiting = {
                ref: claim_of(ref, cid, core.read(cid).kind if ref.startswith(names.HEADS) else None)
                for ref, cid in self.tracked(name).items()
            }
            position = peer.position._replace(waiting=waiting | dict(peer.position.waiting))
            peer = self.write(peer._replace(position=position, failed={}), peer.tip, f"peer {name}: removed")
            removed_ref = names.removed_peer(peer.space)
            core.refs.move(removed_ref, core.refs.get(removed_ref), peer.tip, why)
            core.reached("secondary-refs")
            self._untrack(name)  # before the peer itself: after a crash in between, it can still be removed or synced
            core.refs.move(names.peer(name), peer.tip, None, why)
            core.reached("committed")

    def _untrack(self, name: str) -> None:
        for ref, cid in self._core.refs.under(names.remote(name)):
            self._core.refs.move(ref, cid, None, "clia: remove peer")
            self._core.reached("tracked")

    def sweep(self) -> None:
        """Remove the tracking refs of unknown peers, which plain git may leave or fetch."""
        core = self._core
        for name in sorted({ref.removeprefix(names.REMOTES).partition("/")[0] for ref, _ in core.refs.under(names.REMOTES)}):
            if names.is_name(name) and core.refs.get(names.peer(name)) is None:
                with self._envelope.among_others(), core.locks.hold(peer_lock(name)):
                    if core.refs.get(names.peer(name)) is None:  # it may have been added meanwhile
                        self._untrack(name)

    def all(self) -> list[PinnedPeer]:
        """Every peer whose record can be read; ``verify`` reports the others."""
        peers = []
        for ref, tip in self._core.refs.under(names.PEERS):
            name = ref.removeprefix(names.PEERS)
            with suppress(InvalidInput):
                peers += [self.at(name, tip)] if names.is_name(name) else []
        return peers

    def get(self, name: str) -> PinnedPeer:
        tip = self._core.refs.get(names.peer(check_peer_name(name)))
        if tip is not None:
            return self.at(name, tip)
        peer_names = ", ".join(peer.name for peer in self.all())
        hints = [f"peers here: {peer_names}"] if peer_names else ["add one with: clia peer add NAME --key KEY --url URL"]
        raise NotFound(f"no peer {name!r}", code="no-such-peer", hints=hints, fields={"peer": name})

    def tracked(self, name: str) -> dict[str, str]:
        """The tracked commit of each of a peer's refs, by the peer's ref name."""
        top = names.remote(name)
        refs = ((tracked_ref(ref.removeprefix(top)), cid) for ref, cid in self._core.refs.under(top))
        return {ref: cid for ref, cid in refs if ref is not None}

    def write(self, peer: PinnedPeer, old: str | None, why: str) -> PinnedPeer:
        core = self._core
        identity = {field: getattr(peer, field) for field in ("space", "keys", "url", "trusted")}
        description = {"type": "peer", **identity, "share": peer.share._asdict()}
        accepted = {"type": "accepted", **position_json(peer.position), "failed": peer.failed, "left": peer.left}
        bodies = zip(_FILES, (description, accepted), strict=True)
        entries = {path: TreeEntry(FILE, core.objects.write_blob(canonical_bytes(body))) for path, body in bodies}
        by = core.person_stamp()
        commit = core.objects.write_commit(core.objects.update_tree(None, entries), [old] if old else [], by, by, f"{why}\n")
        core.refs.move(names.peer(peer.name), old, commit, "clia: peer")
        return peer._replace(tip=commit)

    def at(self, name: str, tip: str) -> PinnedPeer:
        """The peer in a commit."""
        peer = self._read.get(name)
        if peer is None or peer.tip != tip:
            peer = self._read[name] = self._parsed(name, tip)
        return peer

    def _parsed(self, name: str, tip: str) -> PinnedPeer:
        objects = self._core.objects
        tree = objects.commit(tip).tree
        try:
            description, accepted = (json.loads(objects.blob(entry.cid)) for path in _FILES if (entry := objects.entry(tree, path)))
            shared = description["share"]
            share = Share(tuple(shared["agents"]), shared["traces"], shared["sessions"], tuple(shared["behaviours"]))
            identity = (description["space"], tuple(description["keys"]), description["url"], description["trusted"])
            failed, left = dict(accepted["failed"]), dict(accepted["left"])
            return PinnedPeer(name, *identity, share, read_position(accepted), failed, left, tip)
        except (ValueError, KeyError, TypeError, AttributeError):
            message, hints = f"the peer record {tip} cannot be read", ["remove the peer and add it again"]
            raise InvalidInput(message, code="invalid-peer", hints=hints, fields={"commit": tip}) from None


def position_json(position: Position) -> dict[str, Any]:
    return {**position._asdict(), "waiting": [tuple(claim) for _, claim in sorted(position.waiting.items())]}


def read_position(body: Mapping[str, Any]) -> Position:
    claims = [RefClaim(*claim) for claim in body["waiting"]]
    fields = {field: body[field] for field in Position._fields}
    return Position(**{**fields, "waiting": {claim.ref: claim for claim in claims}})


def peer_lock(name: str) -> str:
    return f"@peer-{check_peer_name(name)}"


def check_peer_name(name: str) -> str:
    if names.is_name(name):
        return name
    hints = ["use lower-case letters, digits and hyphens, for example platform-team"]
    raise InvalidInput(f"invalid peer name {name!r}", code="invalid-name", hints=hints, fields={"name": name})


def _check_share(share: Share) -> None:
    check_flag(share.traces, "traces")
    check_flag(share.sessions, "sessions")
    for field, listed in (("agents", share.agents), ("behaviours", share.behaviours)):
        for name in listed:
            if name != ALL and not names.is_name(name):
                raise InvalidInput(f"invalid name {name!r} in {field}", code="invalid-name", fields={"field": field, "name": name})


def _check_url(url: str | None) -> None:
    """Check that git can only read the URL as a URL, not as an option or a helper program."""
    if url is None:
        return
    text = check_text(url, "url")
    scheme, _, address = text.partition("://") if "://" in text else ("", "", text)
    message, hint = f"{url!r} is not the URL of a repository", _URL_HINT
    odd = not text or text != text.strip() or text.startswith("-") or "::" in text.partition("/")[0]
    if scheme in ("http", "https") and "@" in address.partition("/")[0]:
        message = "the URL must not contain a user name or password"
        hint = "use git's credential helper instead (git help credentials)"
    elif not odd and all(ord(char) >= 32 for char in text) and scheme in ("", "http", "https", "ssh", "git", "file"):
        return
    raise InvalidInput(message, code="invalid-url", hints=[hint], fields={"field": "url"})


def shares(listed: Sequence[str], name: str) -> bool:
    return ALL in listed or name in listed
