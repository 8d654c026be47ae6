"""Capabilities: what is accepted from a peer.

Invariant: nothing is allowed without a grant. A grant is a typed object on the chain ``refs/clia/capabilities``; it is valid until
it expires or an event on the chain revokes it. Order has no meaning on the chain, so the chains of two clones can be united,
and a revocation wins. The enforced facts are compiled from the current refs.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CapabilityDenied, InvalidInput, NotFound
from clia.federation.model import Explained, Grant, Missing
from clia.federation.statements import TRIGGERS
from clia.git.records import FILE, TreeEntry
from clia.space.adoption import CAPABILITIES_LOCK
from clia.space.events import read_events, revoked_by
from clia.space.model import EVENT
from clia.store.interface import GateFacts, GateQuestion, GrantFact
from clia.values import refs as names
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import check_count, check_flag, check_text, compose
from clia.values.typed_objects import as_bytes
from clia.values.types import is_type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from clia.federation.peers import Peers, PinnedPeer
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.registry import Registry
    from clia.store.interface import Transaction

LOCK = CAPABILITIES_LOCK
_COMPILED = "gate/compiled"
_EXPIRES_MAX = 2**40
"""Rejects expiry times in milliseconds."""


class GrantRequest(NamedTuple):
    """What to allow."""

    peer: str
    type: str
    trigger: str
    execute: bool = False
    expires: int | None = None


class Capabilities:
    def __init__(self, core: Core, envelope: Envelope, registry: Registry, peers: Peers, nonce: Callable[[], str]) -> None:
        self._core = core
        self._envelope = envelope
        self._registry = registry
        self._peers = peers
        self._nonce = nonce

    def grant(self, request: GrantRequest) -> Grant:
        """Grant something; an equal valid grant is reused."""
        core = self._core
        space = self._space_of(request.peer)
        self._check(request)
        with self._envelope.among_others(), core.locks.hold(LOCK):
            for each in self.all():
                if each[2:7] == (space, request.type, request.trigger, request.execute, request.expires):
                    return each
            made = {
                "type": "capability",
                "peer": space,
                "agentic_type": request.type,
                "trigger": request.trigger,
                "execute": request.execute,
                "expires": request.expires,
                "nonce": self._nonce(),  # so that it can be granted again after a revocation
            }
            cid = core.objects.write_blob(as_bytes(made))
            self._append({"event": "grant", "capability": made}, f"grant: {request.peer} {request.type} {request.trigger}")
            return next(each for each in self.all() if each.cid == cid)  # while the lock prevents a revocation

    def revoke(self, peer: str, type_: str | None = None, trigger: str | None = None, cid: str | None = None) -> list[Grant]:
        """Revoke a peer's grants, filtered by type, trigger and id."""
        core = self._core
        space = self._space_of(peer)
        with self._envelope.among_others(), core.locks.hold(LOCK):
            gone = [
                each
                for each in self.all()
                if each.space == space
                and cid in (None, each.cid)
                and type_ in (None, each.type)
                and trigger in (None, each.trigger)
            ]
            if not gone:
                fields = {"peer": peer, "type": type_, "trigger": trigger, "cid": cid}
                hints = [f"list the grants with: clia cap list {peer}"]
                raise NotFound(f"{peer} has no such grant", code="no-such-grant", hints=hints, fields=fields)
            self._append({"event": "revoke", "grants": [each.cid for each in gone]}, f"revoke: {len(gone)} of {peer}")
        return gone

    def revoke_all(self, space: str) -> None:
        """Revoke every grant of a space that is no longer a peer."""
        core = self._core
        with self._envelope.among_others(), core.locks.hold(LOCK):
            gone = [each.cid for each in self.all() if each.space == space]
            if gone:
                self._append({"event": "revoke", "grants": gone}, f"revoke: all of {space}")

    def all(self) -> list[Grant]:
        """Every grant that is not revoked, including expired ones."""
        return self.standing(self._core.refs.get(names.CAPABILITIES))

    def standing(self, tip: str | None) -> list[Grant]:
        """The grants of a chain that are not revoked."""
        known = {peer.space: peer.name for peer in self._peers.all()}
        grants: dict[str, Grant] = {}
        revoked: set[str] = set()
        for event in read_events(self._core, tip) if tip else ():
            revoked.update(revoked_by(event.body))
            grant = self._read(event.body, event.cid, known)
            if grant is not None:
                grants[grant.cid] = grant
        standing = (each for each in grants.values() if each.cid not in revoked)
        return sorted(standing, key=lambda each: (each.peer, each.type, each.trigger, each.cid))

    def _read(self, body: Mapping[str, Any], commit: str, known: Mapping[str, str]) -> Grant | None:
        made = body.get("capability") if body.get("event") == "grant" else None
        if not isinstance(made, dict) or not is_capability(made):
            return None
        by = self._core.objects.commit(commit).committer
        cid = self._core.objects.blob_id(as_bytes(made))
        space = made["peer"]
        what = (made["agentic_type"], made["trigger"], made["execute"], made["expires"])
        return Grant(cid, known.get(space, space), space, *what, f"{by.name} <{by.email}>", by.at)

    def _append(self, body: Mapping[str, Any], subject: str) -> None:
        """Append an event; the commit's tree holds every grant that is then valid."""
        core = self._core
        tip = core.refs.get(names.CAPABILITIES)
        changes: dict[str, TreeEntry | None] = {}
        if body["event"] == "grant":
            data = as_bytes(body["capability"])
            changes[f"{core.objects.blob_id(data)}.json"] = TreeEntry(FILE, core.objects.write_blob(data))
        tree = core.objects.commit(tip).tree if tip else core.empty_tree()
        there = core.objects.entries(tree)
        changes |= {f"{cid}.json": None for cid in body.get("grants", ()) if f"{cid}.json" in there}
        by = core.person_stamp()
        whole = compose(subject, [(EVENT, canonical_bytes(dict(body)).decode("utf-8"))], "capability")
        new = core.objects.write_commit(core.objects.update_tree(tree, changes), [tip] if tip else [], by, by, whole)
        core.reached("objects-written")
        core.refs.move(names.CAPABILITIES, tip, new, "clia: capability")
        core.reached("committed")

    def allowed(self, space: str, type_: str, trigger: str, *, execute: bool = False) -> bool:
        """Whether the gate allows something, by the current refs."""
        return bool(self._allowing(GateQuestion(space, type_, trigger, self._core.now(), execute)))

    def asking(self, peer: PinnedPeer) -> Callable[[str, str], bool]:
        """A cached gate for one peer: an answer is valid for a second, while no relevant ref moves."""
        known: dict[tuple[Any, ...], bool] = {}
        core = self._core
        refs = (names.CAPABILITIES, names.TYPES, names.peer(peer.name))

        def allowed(type_: str, trigger: str) -> bool:
            asked = (type_, trigger, core.now(), *map(core.refs.get, refs))
            if asked not in known:
                known[asked] = self.allowed(peer.space, type_, trigger)
            return known[asked]

        return allowed

    def may_run(self, peer: str) -> bool:
        """Whether a peer's behaviours may run here; False for removed peers."""
        known = next((each for each in self._peers.all() if each.name == peer), None)
        return known is not None and self.allowed(known.space, "behaviour", "behaviour", execute=True)

    def require_execute(self, peer: str, behaviour: str) -> None:
        """``CapabilityDenied`` unless a behaviour of a peer may run here."""
        if not self.may_run(peer):
            raise CapabilityDenied(
                f"behaviour {peer}/{behaviour} may be read, but not run",
                code="execute-denied",
                hints=[
                    f"clia cap grant {peer} behaviour behaviour --execute",
                    f"or adopt only its current version: clia behaviour adopt {peer}/{behaviour}",
                    f"clia cap explain {peer} behaviour behaviour --execute",
                ],
                fields={"peer": peer, "behaviour": behaviour},
            )

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
        peers = [list(each) for each in refs.under(names.PEERS)]
        return [refs.get(names.CAPABILITIES), refs.get(names.TYPES), peers]

    def facts(self) -> GateFacts:
        """The facts for the gate."""
        grants = (GrantFact(each.cid, each.space, each.type, each.trigger, each.execute, each.expires) for each in self.all())
        trusted = sorted(peer.space for peer in self._peers.all() if peer.trusted)
        known = self._registry.types().known().items()
        # Plain git can put anything on a chain; invalid names are ignored.
        parents = ((name, parent) for name, parent in known if is_type_name(name) and is_type_name(parent) and parent is not None)
        return GateFacts(tuple(grants), tuple(trusted), tuple(parents))

    def explain(self, peer: str, type_: str, trigger: str, *, execute: bool = False) -> Explained:
        """Which grants allow something, or what is missing."""
        self._check(GrantRequest(peer, type_, trigger, execute), known_type=False)
        pinned = self._peers.get(peer)
        now = self._core.now()
        allowing = self._allowing(GateQuestion(pinned.space, type_, trigger, now, execute))
        path = self._path(type_)
        near = [each for each in self.all() if each.space == pinned.space and each.trigger == trigger and each.type in path]
        missing = (
            [] if allowing else self._missing(GrantRequest(peer, type_, trigger, execute), near, trusted=pinned.trusted, now=now)
        )
        grants = tuple(each for each in near if each.cid in allowing)
        return Explained(peer, type_, trigger, execute, bool(allowing), pinned.trusted, grants, tuple(path), tuple(missing))

    def _missing(self, request: GrantRequest, near: Sequence[Grant], *, trusted: bool, now: int) -> list[Missing]:
        missing = []
        peer, type_, trigger = request.peer, request.type, request.trigger
        again = f"clia cap grant {peer} {type_} {trigger}{' --execute' if request.execute else ''}"
        if type_ not in self._registry.types().known():
            hint = f"if {peer} defines it: clia cap grant {peer} agent-commit type, then clia sync {peer}"
            message = f"type {type_} is unknown here, so no grant covers it"
            return [Missing("type", message, hint)]
        if not trusted:
            missing.append(Missing("trust", f"{peer} is not trusted", f"clia peer change {peer} --trust"))
        live = [each for each in near if each.expires is None or each.expires > now]
        if near and not live:
            missing.append(Missing("expired", f"every grant of {type_} by {trigger} has expired", again))
        elif not near:
            missing.append(Missing("grant", f"no grant for {type_} by {trigger}", again))
        elif request.execute and not any(each.execute for each in live):
            missing.append(Missing("execute", f"{type_} is accepted by {trigger}, but may not run", again))
        return missing

    def _path(self, type_: str) -> list[str]:
        known = self._registry.types().known()
        found = [type_]
        while (above := known.get(found[-1])) is not None and above not in found:
            found.append(above)
        return found

    def _space_of(self, peer: str) -> str:
        return self._peers.get(peer).space

    def _check(self, request: GrantRequest, *, known_type: bool = True) -> None:
        check_flag(request.execute, "execute")
        if check_text(request.trigger, "trigger") not in TRIGGERS or request.trigger == "snapshot":
            triggers = [trigger for trigger in TRIGGERS if trigger != "snapshot"]
            hints = [f"triggers: {', '.join(triggers)}; a snapshot counts as the trigger of each ref"]
            raise InvalidInput(
                f"unknown trigger {request.trigger!r}", code="invalid-trigger", hints=hints, fields={"trigger": request.trigger}
            )
        known = self._registry.types().known()
        if check_text(request.type, "type") not in known and known_type:
            hints = [f"known types: {', '.join(known)}"]
            raise NotFound(f"unknown type {request.type!r}", code="no-such-type", hints=hints, fields={"type": request.type})
        if request.expires is not None and not self._core.now() < check_count(request.expires, "expires") < _EXPIRES_MAX:
            raise InvalidInput(
                "the expiry time must be in the future, in seconds", code="invalid-expiry", fields={"expires": request.expires}
            )


def is_capability(made: Mapping[str, Any]) -> bool:
    peer, trigger = made.get("peer"), made.get("trigger")
    texts = isinstance(peer, str) and 0 < len(peer) <= 100 and peer.isprintable() and trigger in TRIGGERS
    ends = made.get("expires")
    ending = ends is None or (isinstance(ends, int) and not isinstance(ends, bool))
    return texts and ending and is_type_name(made.get("agentic_type")) and isinstance(made.get("execute"), bool)
