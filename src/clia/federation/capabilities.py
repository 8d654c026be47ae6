"""Capabilities: what is accepted from a peer.

Invariant: nothing is allowed without a grant. A grant is a typed object on the chain ``refs/clia/capabilities``; it is valid until
it expires or an event on the chain revokes it. The order of events on the chain has no meaning, so the chains of two clones can be
united; a revocation wins. The enforced facts are compiled from the current refs.
"""

from __future__ import annotations

from functools import cache

from clia.errors import CapabilityDenied, InvalidInput, NotFound
from clia.federation.model import Explained, Grant, Missing
from clia.federation.statements import SNAPSHOT, TRIGGERS
from clia.git.records import FILE, TreeEntry
from clia.space.events import read_events, revoked_by
from clia.space.model import EVENT
from clia.space.remotes import CAPABILITIES_LOCK
from clia.store.interface import GateFacts, GateQuestion, GrantFact
from clia.trust.statements import GRANT, UNGRANT, RecordedAct
from clia.values import refs as names
from clia.values.canonical import canonical_bytes, digest
from clia.values.commit_messages import check_count, check_flag, check_text, compose
from clia.values.typed_objects import as_bytes
from clia.values.types import is_type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.federation.peers import Peers, PinnedPeer
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.type_registry import Registry
    from clia.store.interface import Transaction

    State = Callable[[RecordedAct], list[tuple[str, str]]]

_COMPILED = "gate/compiled"
_EXPIRES_MAX = 2**40
"""Rejects expiry times in milliseconds."""


class Capabilities:
    def __init__(self, core: Core, envelope: Envelope, registry: Registry, peers: Peers, state: State = lambda _: []) -> None:
        """``state`` returns the trailers with a person's statement of an act."""
        self._state = state
        self._core = core
        self._envelope = envelope
        self._registry = registry
        self._peers = peers

    def grant(self, peer: str, type_: str, trigger: str, *, execute: bool = False, expires: int | None = None) -> Grant:
        """Grant something; an equal valid grant is reused."""
        core = self._core
        space = self._peers.get(peer).space
        self._check(type_, trigger, execute)
        types = self._registry.types().known()
        if type_ not in types:
            hints = [f"known types: {', '.join(types)}"]
            raise NotFound(f"unknown type {type_!r}", code="no-such-type", hints=hints, fields={"type": type_})
        if expires is not None and not core.now() < check_count(expires, "expires") < _EXPIRES_MAX:
            message = "the expiry time must be in the future, in seconds"
            raise InvalidInput(message, code="invalid-expiry", fields={"expires": expires})
        with self._envelope.among_others(), core.locks.hold(CAPABILITIES_LOCK):
            for grant in self.all():
                if grant[2:7] == (space, type_, trigger, execute, expires):
                    return grant
            terms = {"agentic_type": type_, "trigger": trigger, "execute": execute, "expires": expires}
            # Of the chain as it is: it can be granted again after a revocation, and two people state the same.
            nonce = digest([core.refs.get(names.CAPABILITIES), space, terms])[:32]
            body = {"type": "capability", "peer": space, **terms, "nonce": nonce}
            cid = core.objects.write_blob(as_bytes(body))
            self._append({"event": "grant", "capability": body}, f"grant: {peer} {type_} {trigger}", space)
            return next(grant for grant in self.all() if grant.cid == cid)  # while the lock prevents a revocation

    def revoke(self, peer: str, type_: str | None = None, trigger: str | None = None, cid: str | None = None) -> list[Grant]:
        """Revoke a peer's grants, filtered by type, trigger and id."""
        filters = {"type": type_, "trigger": trigger, "cid": cid}
        grants = self._revoke(f"revoke: {{}} of {peer}", space=self._peers.get(peer).space, **filters)
        if not grants:
            hints = [f"list the grants with: clia cap list {peer}"]
            raise NotFound(f"{peer} has no such grant", code="no-such-grant", hints=hints, fields={"peer": peer, **filters})
        return grants

    def revoke_all(self, space: str) -> None:
        """Revoke every grant of a space that is no longer a peer."""
        self._revoke(f"revoke: all of {space}", space=space)

    def _revoke(self, subject: str, **filters: str | None) -> list[Grant]:
        with self._envelope.among_others(), self._core.locks.hold(CAPABILITIES_LOCK):
            conditions = {field: value for field, value in filters.items() if value is not None}.items()
            grants = [grant for grant in self.all() if conditions <= grant._asdict().items()]
            if grants:
                space = grants[0].space
                body = {"event": "revoke", "grants": [grant.cid for grant in grants], "peer": space}
                self._append(body, subject.format(len(grants)), space)
        return grants

    def all(self) -> list[Grant]:
        """Every grant that is not revoked, including expired ones."""
        return self.standing(self._core.refs.get(names.CAPABILITIES))

    def standing(self, tip: str | None) -> list[Grant]:
        """The grants of a chain that are not revoked."""
        peer_names = {peer.space: peer.name for peer in self._peers.all()}
        grants: dict[str, Grant] = {}
        revoked: set[str] = set()
        for event in read_events(self._core, tip) if tip else ():
            revoked.update(revoked_by(event.body))
            grant = self._read(event.body, event.cid, peer_names)
            if grant is not None:
                grants[grant.cid] = grant
        valid = (grant for grant in grants.values() if grant.cid not in revoked)
        return sorted(valid, key=lambda grant: (grant.peer, grant.type, grant.trigger, grant.cid))

    def _read(self, body: Mapping[str, Any], commit: str, peer_names: Mapping[str, str]) -> Grant | None:
        grant = body.get("capability") if body.get("event") == "grant" else None
        if not isinstance(grant, dict) or not is_capability(grant):
            return None
        by = self._core.objects.commit(commit).committer
        cid = self._core.objects.blob_id(as_bytes(grant))
        space = grant["peer"]
        terms = (grant["agentic_type"], grant["trigger"], grant["execute"], grant["expires"])
        return Grant(cid, peer_names.get(space, space), space, *terms, f"{by.name} <{by.email}>", by.at)

    def _append(self, body: dict[str, Any], subject: str, space: str) -> None:
        """Append an event; the commit's tree holds every grant that is then valid."""
        core = self._core
        tip = core.refs.get(names.CAPABILITIES)
        changes: dict[str, TreeEntry | None] = {}
        if body["event"] == "grant":
            data = as_bytes(body["capability"])
            changes[f"{core.objects.blob_id(data)}.json"] = TreeEntry(FILE, core.objects.write_blob(data))
        tree = core.objects.commit(tip).tree if tip else core.empty_tree()
        entries = core.objects.entries(tree)
        changes |= {f"{cid}.json": None for cid in body.get("grants", ()) if f"{cid}.json" in entries}
        by, new_tree = core.person_stamp(), core.objects.update_tree(tree, changes)
        verb = GRANT if body["event"] == "grant" else UNGRANT
        proofs = self._state(RecordedAct(verb, space, body, tip or "", new_tree))
        message = compose(subject, [(EVENT, canonical_bytes(body).decode("utf-8")), *proofs], "capability")
        new = core.objects.write_commit(new_tree, [tip] if tip else [], by, by, message)
        core.reached("objects-written")
        core.refs.move(names.CAPABILITIES, tip, new, "clia: capability")
        core.reached("committed")

    def allowed(self, space: str, type_: str, trigger: str, *, execute: bool = False) -> bool:
        """Whether the gate allows something, by the current refs."""
        return bool(self._allowing(GateQuestion(space, type_, trigger, self._core.now(), execute)))

    def asking(self, peer: PinnedPeer) -> Callable[[str, str], bool]:
        """A cached gate for one peer: an answer is valid for a second, while no relevant ref moves."""
        refs = (names.CAPABILITIES, names.TYPES, names.peer(peer.name))

        @cache
        def answer(type_: str, trigger: str, *_: object) -> bool:
            return self.allowed(peer.space, type_, trigger)

        return lambda type_, trigger: answer(type_, trigger, self._core.now(), *map(self._core.refs.get, refs))

    def may_run(self, peer: str) -> bool:
        """Whether a peer's behaviours may run here; False for removed peers."""
        spaces = [pinned.space for pinned in self._peers.all() if pinned.name == peer]
        return bool(spaces) and self.allowed(spaces[0], "behaviour", "behaviour", execute=True)

    def require_execute(self, peer: str, behaviour: str) -> None:
        """``CapabilityDenied`` unless a behaviour of a peer may run here."""
        if not self.may_run(peer):
            hints = [
                f"clia cap grant {peer} behaviour behaviour --execute",
                f"or adopt only its current version: clia behaviour adopt {peer}/{behaviour}",
                f"clia cap explain {peer} behaviour behaviour --execute",
            ]
            message, fields = f"behaviour {peer}/{behaviour} may be read, but not run", {"peer": peer, "behaviour": behaviour}
            raise CapabilityDenied(message, code="execute-denied", hints=hints, fields=fields)

    def _allowing(self, question: GateQuestion) -> list[str]:
        store = self._core.store
        with store.reading() as view:
            if self.is_compiled(view):
                return view.gate.allowing(question)
        with store.writing() as transaction:
            compiled = self._compiled_from()  # read before the facts, so that a concurrent move triggers a rebuild
            transaction.gate.load(self.facts())
            transaction.values.put(_COMPILED, compiled)
            return transaction.gate.allowing(question)

    def is_compiled(self, view: Transaction) -> bool:
        """Whether the stored facts were compiled from the current refs."""
        row = view.values.get(_COMPILED)
        return row is not None and row.value == self._compiled_from()

    def forget_compiled(self) -> None:
        """Discard the compiled facts; the next question rebuilds them."""
        with self._core.store.writing() as transaction:
            transaction.values.delete(_COMPILED)

    def _compiled_from(self) -> list[Any]:
        """The refs that the facts depend on."""
        refs = self._core.refs
        return [refs.get(names.CAPABILITIES), refs.get(names.TYPES), [list(peer) for peer in refs.under(names.PEERS)]]

    def facts(self) -> GateFacts:
        """The facts for the gate."""
        grants = (GrantFact(grant.cid, *grant[2:7]) for grant in self.all())  # from the space to the expiry
        trusted = sorted(peer.space for peer in self._peers.all() if peer.trusted)
        # Plain git can put anything on a chain; invalid names are ignored.
        types = self._registry.types().known().items()
        parents = ((name, parent) for name, parent in types if is_type_name(name) and is_type_name(parent) and parent is not None)
        return GateFacts(tuple(grants), tuple(trusted), tuple(parents))

    def explain(self, peer: str, type_: str, trigger: str, *, execute: bool = False) -> Explained:
        """Which grants allow something, or what is missing."""
        self._check(type_, trigger, execute)
        pinned, now, types = self._peers.get(peer), self._core.now(), self._registry.types().known()
        allowing = self._allowing(GateQuestion(pinned.space, type_, trigger, now, execute))
        path = [type_]
        while (above := types.get(path[-1])) is not None and above not in path:
            path.append(above)
        near = [grant for grant in self.all() if grant.space == pinned.space and grant.trigger == trigger and grant.type in path]
        live = [grant for grant in near if grant.expires is None or grant.expires > now]
        again = f"clia cap grant {peer} {type_} {trigger}{' --execute' if execute else ''}"
        missing = []
        if not allowing and type_ not in types:
            hint = f"if {peer} defines it: clia cap grant {peer} agent-commit type, then clia sync {peer}"
            missing = [Missing("type", f"type {type_} is unknown here, so no grant covers it", hint)]
        elif not allowing:
            if not pinned.trusted:
                missing.append(Missing("trust", f"{peer} is not trusted", f"clia peer change {peer} --trust"))
            if not near:
                missing.append(Missing("grant", f"no grant for {type_} by {trigger}", again))
            elif not live:
                missing.append(Missing("expired", f"every grant of {type_} by {trigger} has expired", again))
            elif execute and not any(grant.execute for grant in live):
                missing.append(Missing("execute", f"{type_} is accepted by {trigger}, but may not run", again))
        grants = tuple(grant for grant in near if grant.cid in allowing)
        return Explained(peer, type_, trigger, execute, bool(allowing), pinned.trusted, grants, tuple(path), tuple(missing))

    def _check(self, type_: str, trigger: str, execute: bool) -> None:
        check_flag(execute, "execute")
        triggers = [trigger for trigger in TRIGGERS if trigger != SNAPSHOT]
        if check_text(trigger, "trigger") not in triggers:
            hints = [f"triggers: {', '.join(triggers)}; a snapshot counts as the trigger of each ref"]
            raise InvalidInput(f"unknown trigger {trigger!r}", code="invalid-trigger", hints=hints, fields={"trigger": trigger})
        check_text(type_, "type")


def is_capability(body: Mapping[str, Any]) -> bool:
    peer, expires = body.get("peer"), body.get("expires")
    return (
        isinstance(peer, str)
        and 0 < len(peer) <= 100
        and peer.isprintable()
        and body.get("trigger") in TRIGGERS
        and type(expires) in (int, type(None))
        and is_type_name(body.get("agentic_type"))
        and isinstance(body.get("execute"), bool)
    )
