"""Peers: other spaces, each pinned by a key.

Invariant: ``refs/clia/peers/<name>`` holds who a peer is (``peer.json``) and how far it was believed (``accepted.json``), so that
losing the store reopens nothing. A peer that is removed leaves both under its space's id: added again, it goes on from there.
"""

from __future__ import annotations

import json
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

from clia.errors import AlreadyExists, InvalidInput, NotFound
from clia.federation.acceptance import Position
from clia.federation.keys import fingerprint, read_identity
from clia.federation.model import Peer, Share
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
_ADD_LOCK = "@peers"  # one space has one name


class PinnedPeer(NamedTuple):
    """A peer with everything that is kept about it; ``tip`` is the commit that says so."""

    name: str
    space: str
    keys: tuple[str, ...]
    url: str | None
    trusted: bool
    share: Share
    position: Position
    failed: dict[str, str]  # the id of a claim that was refused for what it is, by ref
    left: dict[str, str]  # where agents were that are no longer shared: should they be again, they go on from there
    tip: str


class PeerChanges(NamedTuple):
    """What is to be different about a peer; None stays."""

    url: str | None = None
    trusted: bool | None = None
    share: Share | None = None


class Peers:
    def __init__(self, core: Core, envelope: Envelope, verifier: Ed25519Verifier) -> None:
        self._core = core
        self._envelope = envelope
        self._verifier = verifier
        self._read: dict[str, PinnedPeer] = {}  # by name; what a commit says never changes

    def add(self, name: str, key: str, url: str | None, *, trusted: bool = True) -> PinnedPeer:
        """Pins a peer. One that was here before goes on from where it was believed, if its key continues."""
        core = self._core
        check_peer_name(name)
        check_flag(trusted, "trusted")
        who = read_identity(check_text(key, "key"), self._verifier)
        if who.space == core.space_id:
            raise InvalidInput("that is this very space", code="same-space", fields={"space": who.space})
        _check_url(url)
        with self._envelope.among_others(), core.locks.hold(_ADD_LOCK), core.locks.hold(peer_lock(name)):
            self._check_free(name, who.space)
            self._untrack(name)  # what plain git has left of another one of that name is not this one's
            before = self._removed(who.space)
            known = before if before is not None and who.key in before.keys else None
            peer = PinnedPeer(
                name=name,
                space=who.space,
                keys=known.keys if known else (who.key,),
                url=url,
                trusted=trusted,
                share=Share(),
                position=known.position if known else Position(),
                failed={},
                left=known.left if known else {},
                tip="",
            )
            return self.write(peer, None, f"peer {name}: added")

    def _check_free(self, name: str, space: str) -> None:
        for each in self.all():
            if each.name == name or each.space == space:
                raise AlreadyExists(
                    f"the peer {each.name} is known already",
                    hints=[f"clia peer show {each.name}", "a peer that has a new identity: remove it first, then add it"],
                    fields={"peer": each.name, "space": each.space},
                )

    def _removed(self, space: str) -> PinnedPeer | None:
        tip = self._core.refs.get(names.removed_peer(space))
        return None if tip is None else self.at("", tip)

    def change(self, name: str, changes: PeerChanges) -> PinnedPeer:
        _check_url(changes.url)
        if changes.trusted is not None:
            check_flag(changes.trusted, "trusted")
        if changes.share is not None:
            _check_share(changes.share)

        def changed(peer: PinnedPeer) -> PinnedPeer:
            given = {key: value for key, value in changes._asdict().items() if value is not None}
            return peer._replace(**given)

        with self._envelope.among_others(), self._core.locks.hold(peer_lock(name)):
            return self.update(name, changed, f"peer {name}: changed")

    def update(self, name: str, change: Callable[[PinnedPeer], PinnedPeer], why: str) -> PinnedPeer:
        """The caller holds the peer's lock."""
        peer = self.get(name)
        made = change(peer)
        return peer if made == peer else self.write(made, peer.tip, why)

    def remove(self, name: str) -> PinnedPeer | None:
        """Takes a peer away with everything tracked of it; how far it was believed stays. None: its record could not be read."""
        core = self._core
        with self._envelope.among_others(), core.locks.hold(peer_lock(name)):
            try:
                peer = self.get(name)
            except InvalidInput:  # what it says cannot be kept
                self._untrack(name)
                core.refs.move(names.peer(name), core.refs.get(names.peer(name)), None, "clia: remove peer")
                return None
            # What is tracked now waits again: should the peer come back, it need not say it anew.
            waiting = {**{claim.ref: claim for claim in self._as_claims(name)}, **peer.position.waiting}
            peer = self.write(
                peer._replace(position=peer.position._replace(waiting=waiting), failed={}), peer.tip, f"peer {name}: removed"
            )
            kept = names.removed_peer(peer.space)
            core.refs.move(kept, core.refs.get(kept), peer.tip, "clia: remove peer")
            core.reached("secondary-refs")
            self._untrack(name)  # before the peer itself: whoever dies in between leaves one that can be removed, or listened to
            core.refs.move(names.peer(name), peer.tip, None, "clia: remove peer")
            core.reached("committed")
        return peer

    def _untrack(self, name: str) -> None:
        for ref, cid in self._core.refs.under(names.remote(name)):
            self._core.refs.move(ref, cid, None, "clia: remove peer")
            self._core.reached("tracked")

    def _as_claims(self, name: str) -> list[RefClaim]:
        claims = []
        for ref, cid in self.tracked(name).items():
            kind = self._core.read(cid).kind if ref.startswith(names.HEADS) else None
            claims.append(claim_of(ref, cid, kind))
        return claims

    def sweep(self) -> None:
        """Takes away what is tracked of peers that are not there: plain git has removed them, or brought their refs along."""
        core = self._core
        found = {ref.removeprefix(names.REMOTES).partition("/")[0] for ref, _ in core.refs.under(names.REMOTES)}
        for name in sorted(found):
            if names.is_name(name) and core.refs.get(names.peer(name)) is None:
                with self._envelope.among_others(), core.locks.hold(peer_lock(name)):
                    if core.refs.get(names.peer(name)) is None:  # it may have been added just now
                        self._untrack(name)

    def all(self) -> list[PinnedPeer]:
        """Every peer whose record can be read; of another ``verify`` tells."""
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
        known = ", ".join(each.name for each in self.all())
        hints = [f"peers here: {known}"] if known else ["there is none yet: clia peer add NAME --key KEY --url URL"]
        raise NotFound(f"there is no peer {name!r}", code="no-such-peer", hints=hints, fields={"peer": name})

    def tracked(self, name: str) -> dict[str, str]:
        """Where each ref of a peer is tracked, by its owner's name of it."""
        top = names.remote(name)
        found = ((tracked_ref(ref.removeprefix(top)), cid) for ref, cid in self._core.refs.under(top))
        return {ref: cid for ref, cid in found if ref is not None}

    def show(self, peer: PinnedPeer, tracked: Mapping[str, str]) -> Peer:
        """A peer as users see it; ``tracked`` as for ``accept``."""
        position = peer.position
        waiting = sum(claim.new != tracked.get(ref) for ref, claim in position.waiting.items())
        agents = sum(ref.startswith(names.HEADS) for ref in tracked)
        return Peer(
            name=peer.name,
            space=peer.space,
            keys=peer.keys,
            fingerprint=fingerprint(peer.keys[-1]),
            url=peer.url,
            trusted=peer.trusted,
            share=peer.share,
            seq=position.seq,
            heard=position.at or None,
            level=position.level,
            forked=position.forked,
            waiting=waiting,
            agents=agents,
        )

    def write(self, peer: PinnedPeer, old: str | None, why: str) -> PinnedPeer:
        core = self._core
        who = {
            "type": "peer",
            "space": peer.space,
            "keys": list(peer.keys),
            "url": peer.url,
            "trusted": peer.trusted,
            "share": {**peer.share._asdict()},
        }
        files = zip(_FILES, (who, _position_body(peer.position, peer.failed, peer.left)), strict=True)
        entries = {path: TreeEntry(FILE, core.objects.write_blob(canonical_bytes(_plain_json(body)))) for path, body in files}
        by = core.person_stamp()
        tree = core.objects.update_tree(None, entries)
        made = core.objects.write_commit(tree, [old] if old else [], by, by, f"{why}\n")
        core.refs.move(names.peer(peer.name), old, made, "clia: peer")
        return peer._replace(tip=made)

    def at(self, name: str, tip: str) -> PinnedPeer:
        """A peer as a commit says."""
        peer = self._read.get(name)
        if peer is None or peer.tip != tip:
            peer = self._read[name] = self._parsed(tip)._replace(name=name)
        return peer

    def _parsed(self, tip: str) -> PinnedPeer:
        objects = self._core.objects
        tree = objects.commit(tip).tree
        try:
            who, said = (json.loads(objects.blob(entry.cid)) for path in _FILES if (entry := objects.entry(tree, path)))
            told = who["share"]
            share = Share(tuple(told["agents"]), told["traces"], told["sessions"], tuple(told["behaviours"]))
            known = (who["space"], tuple(who["keys"]), who["url"], who["trusted"], share)
            return PinnedPeer("", *known, _read_position(said), dict(said["failed"]), dict(said["left"]), tip)
        except (ValueError, KeyError, TypeError, AttributeError):
            message = f"the record of a peer cannot be read: {tip}"
            raise InvalidInput(message, code="invalid-peer", hints=["clia peer remove, then add"], fields={"commit": tip}) from None


def _position_body(position: Position, failed: Mapping[str, str], left: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    waiting = [list(each) for _, each in sorted(position.waiting.items())]
    kept = {"seq": position.seq, "last": position.last, "level": position.level, "forked": position.forked, "at": position.at}
    return {"type": "accepted", **kept, "waiting": waiting, "failed": dict(failed), "left": dict(left)}


def _read_position(said: dict[str, Any]) -> Position:
    claims = [RefClaim(*each) for each in said["waiting"]]
    return Position(said["seq"], said["last"], said["level"], said["forked"], {claim.ref: claim for claim in claims}, said["at"])


def _plain_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain_json(each) for key, each in value.items()}
    return [_plain_json(each) for each in value] if isinstance(value, (list, tuple)) else value


def peer_lock(name: str) -> str:
    return f"@peer-{check_peer_name(name)}"


def check_peer_name(name: str) -> str:
    if names.is_name(name):
        return name
    hints = ["lower-case letters, digits and hyphens: platform-team"]
    raise InvalidInput(f"{name!r} is not a peer's name", code="invalid-name", hints=hints, fields={"name": name})


def _check_share(share: Share) -> None:
    check_flag(share.traces, "traces")
    check_flag(share.sessions, "sessions")
    for field, listed in (("agents", share.agents), ("behaviours", share.behaviours)):
        for each in listed:
            if each != ALL and not names.is_name(each):
                raise InvalidInput(f"{each!r} is no name of {field}", code="invalid-name", fields={"field": field, "name": each})


def _check_url(url: str | None) -> None:
    """An address that git takes for nothing else: no option, and no helper program."""
    if url is None:
        return
    text = check_text(url, "url")
    scheme = text.partition("://")[0] if "://" in text else ""
    odd = (
        not text
        or text != text.strip()
        or text.startswith("-")
        or "::" in text.partition("/")[0]
        or any(ord(each) < 32 for each in text)
    )
    if scheme in ("http", "https") and "@" in text.partition("://")[2].partition("/")[0]:
        raise InvalidInput(
            "an address with a user or a password in it is not kept",
            code="invalid-url",
            hints=["leave it out: git's own credential helper knows it (git help credentials)"],
            fields={"field": "url"},
        )
    if odd or (scheme and scheme not in ("http", "https", "ssh", "git", "file")):
        raise InvalidInput(
            f"{url!r} is no address of a repository",
            code="invalid-url",
            hints=["a folder, ssh://…, https://…, or the address of a forge: https://forge.example/federation/SPACE"],
            fields={"field": "url"},
        )


def shares(listed: Sequence[str], name: str) -> bool:
    return ALL in listed or name in listed
