"""Peers: other spaces, each pinned by a key.

Invariant: ``refs/clia/peers/<name>`` holds who a peer is (``peer.json``) and the accepted position (``accepted.json``), so that
losing the store reopens nothing. A removed peer keeps both under its space id and continues from there when it is added again.
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
_ADD_LOCK = "@peers"  # a space has one name


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


class PeerChanges(NamedTuple):
    """Changes to a peer; None keeps a value."""

    url: str | None = None
    trusted: bool | None = None
    share: Share | None = None


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
        who = read_identity(check_text(key, "key"), self._verifier)
        if who.space == core.space_id:
            raise InvalidInput("the key is the one of this space", code="same-space", fields={"space": who.space})
        _check_url(url)
        with self._envelope.among_others(), core.locks.hold(_ADD_LOCK), core.locks.hold(peer_lock(name)):
            self._check_free(name, who.space)
            self._untrack(name)  # plain git may have left refs of another peer with this name
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
                    f"peer {each.name} already exists",
                    hints=[f"clia peer show {each.name}", "if the peer has a new identity, remove it first, then add it"],
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
        """Remove a peer and its tracking refs, but keep its accepted position. None: its record could not be read."""
        core = self._core
        with self._envelope.among_others(), core.locks.hold(peer_lock(name)):
            try:
                peer = self.get(name)
            except InvalidInput:  # nothing readable to keep
                self._untrack(name)
                core.refs.move(names.peer(name), core.refs.get(names.peer(name)), None, "clia: remove peer")
                return None
            # Tracked refs become waiting claims, so that a peer that returns need not announce them again.
            waiting = {**{claim.ref: claim for claim in self._as_claims(name)}, **peer.position.waiting}
            peer = self.write(
                peer._replace(position=peer.position._replace(waiting=waiting), failed={}), peer.tip, f"peer {name}: removed"
            )
            kept = names.removed_peer(peer.space)
            core.refs.move(kept, core.refs.get(kept), peer.tip, "clia: remove peer")
            core.reached("secondary-refs")
            self._untrack(name)  # before the peer itself: after a crash in between, it can still be removed or synced
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
        """Remove the tracking refs of unknown peers, which plain git may leave or bring along."""
        core = self._core
        found = {ref.removeprefix(names.REMOTES).partition("/")[0] for ref, _ in core.refs.under(names.REMOTES)}
        for name in sorted(found):
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
        known = ", ".join(each.name for each in self.all())
        hints = [f"peers here: {known}"] if known else ["add one with: clia peer add NAME --key KEY --url URL"]
        raise NotFound(f"no peer {name!r}", code="no-such-peer", hints=hints, fields={"peer": name})

    def tracked(self, name: str) -> dict[str, str]:
        """The tracked commit of each of a peer's refs, by the peer's ref name."""
        top = names.remote(name)
        found = ((tracked_ref(ref.removeprefix(top)), cid) for ref, cid in self._core.refs.under(top))
        return {ref: cid for ref, cid in found if ref is not None}

    def show(self, peer: PinnedPeer, tracked: Mapping[str, str]) -> Peer:
        """The public record of a peer; ``tracked`` as for ``accept``."""
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
        """The peer in a commit."""
        peer = self._read.get(name)
        if peer is None or peer.tip != tip:
            peer = self._read[name] = self._parsed(tip)._replace(name=name)
        return peer

    def _parsed(self, tip: str) -> PinnedPeer:
        objects = self._core.objects
        tree = objects.commit(tip).tree
        try:
            who, said = (json.loads(objects.blob(entry.cid)) for path in _FILES if (entry := objects.entry(tree, path)))
            shared = who["share"]
            share = Share(tuple(shared["agents"]), shared["traces"], shared["sessions"], tuple(shared["behaviours"]))
            known = (who["space"], tuple(who["keys"]), who["url"], who["trusted"], share)
            return PinnedPeer("", *known, _read_position(said), dict(said["failed"]), dict(said["left"]), tip)
        except (ValueError, KeyError, TypeError, AttributeError):
            message = f"the peer record {tip} cannot be read"
            raise InvalidInput(
                message, code="invalid-peer", hints=["remove the peer and add it again"], fields={"commit": tip}
            ) from None


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
    hints = ["use lower-case letters, digits and hyphens, for example platform-team"]
    raise InvalidInput(f"invalid peer name {name!r}", code="invalid-name", hints=hints, fields={"name": name})


def _check_share(share: Share) -> None:
    check_flag(share.traces, "traces")
    check_flag(share.sessions, "sessions")
    for field, listed in (("agents", share.agents), ("behaviours", share.behaviours)):
        for each in listed:
            if each != ALL and not names.is_name(each):
                raise InvalidInput(f"invalid name {each!r} in {field}", code="invalid-name", fields={"field": field, "name": each})


def _check_url(url: str | None) -> None:
    """Check that git can only read the URL as a URL, not as an option or a helper program."""
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
            "the URL must not contain a user name or password",
            code="invalid-url",
            hints=["use git's credential helper instead (git help credentials)"],
            fields={"field": "url"},
        )
    if odd or (scheme and scheme not in ("http", "https", "ssh", "git", "file")):
        raise InvalidInput(
            f"{url!r} is not the URL of a repository",
            code="invalid-url",
            hints=["use a directory, ssh://…, https://…, or the URL of a forge: https://forge.example/federation/SPACE"],
            fields={"field": "url"},
        )


def shares(listed: Sequence[str], name: str) -> bool:
    return ALL in listed or name in listed
