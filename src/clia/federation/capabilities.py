"""Capabilities: what a peer may have taken in here.

Invariant: nothing is allowed that no grant allows. A grant is a typed object on the chain ``refs/clia/capabilities``; it stands
until it expires or an event on the chain revokes it. Order carries no meaning on the chain, so the chains of two clones unite
and where they disagree, the revocation wins. What is enforced is compiled from the refs as they are at that moment.
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
"""No grant is meant to outlive the year 36,000: whoever says more has said milliseconds."""


class GrantRequest(NamedTuple):
    """What is to be allowed."""

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

    def grant(self, wish: GrantRequest) -> Grant:
        """Allows something; a grant that says the same and stands already is kept as it is."""
        core = self._core
        space = self._space_of(wish.peer)
        self._check(wish)
        with self._envelope.among_others(), core.locks.hold(LOCK):
            for each in self.all():
                if each[2:7] == (space, wish.type, wish.trigger, wish.execute, wish.expires):
                    return each
            made = {
                "type": "capability",
                "peer": space,
                "agentic_type": wish.type,
                "trigger": wish.trigger,
                "execute": wish.execute,
                "expires": wish.expires,
                "nonce": self._nonce(),  # so that it can be granted again once it was revoked
            }
            cid = core.objects.write_blob(as_bytes(made))
            self._append({"event": "grant", "capability": made}, f"grant: {wish.peer} {wish.type} {wish.trigger}")
            return next(each for each in self.all() if each.cid == cid)  # before anyone else can revoke it

    def revoke(self, peer: str, type_: str | None = None, trigger: str | None = None, cid: str | None = None) -> list[Grant]:
        """Takes grants back: one by its id, or all of a peer that are for a type and a trigger, where given."""
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
                hints = [f"clia cap list {peer} shows what is granted"]
                raise NotFound(f"{peer} has no such grant", code="no-such-grant", hints=hints, fields=fields)
            self._append({"event": "revoke", "grants": [each.cid for each in gone]}, f"revoke: {len(gone)} of {peer}")
        return gone

    def revoke_all(self, space: str) -> None:
        """Every grant of a space that is no longer a peer."""
        core = self._core
        with self._envelope.among_others(), core.locks.hold(LOCK):
            gone = [each.cid for each in self.all() if each.space == space]
            if gone:
                self._append({"event": "revoke", "grants": gone}, f"revoke: all of {space}")

    def all(self) -> list[Grant]:
        """Every grant that was not revoked, those that have expired among them."""
        return self.standing(self._core.refs.get(names.CAPABILITIES))

    def standing(self, tip: str | None) -> list[Grant]:
        """What a chain of capabilities grants."""
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
        """One more event; the commit's tree holds every grant that stands after it."""
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
        """Whether the gate lets something in, as the refs are now."""
        return bool(self._allowing(GateQuestion(space, type_, trigger, self._core.now(), execute)))

    def asking(self, peer: PinnedPeer) -> Callable[[str, str], bool]:
        """The gate for many questions about one peer: each answer holds while no ref that it rests on moves, for a second."""
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
        """Whether behaviours of a peer may run here; those of one that is gone may not."""
        known = next((each for each in self._peers.all() if each.name == peer), None)
        return known is not None and self.allowed(known.space, "behaviour", "behaviour", execute=True)

    def require_execute(self, peer: str, behaviour: str) -> None:
        """``CapabilityDenied`` unless a behaviour of a peer may run here."""
        if not self.may_run(peer):
            raise CapabilityDenied(
                f"the behaviour {peer}/{behaviour} may be read here, not run",
                code="execute-denied",
                hints=[
                    f"clia cap grant {peer} behaviour behaviour --execute",
                    f"or only the version that is there now: clia behaviour adopt {peer}/{behaviour}",
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
            compiled = self._compiled_from()  # before the facts: what moves meanwhile makes them be made again
            transaction.gate.load(self.facts())
            transaction.values.put(_COMPILED, compiled)
            return transaction.gate.allowing(question)

    def is_compiled(self, view: Transaction) -> bool:
        """Whether a store's facts were made of the refs as they are now."""
        row = view.values.get(_COMPILED)
        return row is not None and row.value == self._compiled_from()

    def forget_compiled(self) -> None:
        """The next question makes the facts anew."""
        with self._core.store.writing() as transaction:
            transaction.values.delete(_COMPILED)

    def _compiled_from(self) -> list[Any]:
        """What the facts are made of; if none of it has moved, they hold."""
        refs = self._core.refs
        peers = [list(each) for each in refs.under(names.PEERS)]
        return [refs.get(names.CAPABILITIES), refs.get(names.TYPES), peers]

    def facts(self) -> GateFacts:
        """Everything that the gate decides by."""
        grants = (GrantFact(each.cid, each.space, each.type, each.trigger, each.execute, each.expires) for each in self.all())
        trusted = sorted(peer.space for peer in self._peers.all() if peer.trusted)
        known = self._registry.types().known().items()
        # Chains may hold what plain git put there: a name that is none decides nothing.
        parents = ((name, parent) for name, parent in known if is_type_name(name) and is_type_name(parent) and parent is not None)
        return GateFacts(tuple(grants), tuple(trusted), tuple(parents))

    def explain(self, peer: str, type_: str, trigger: str, *, execute: bool = False) -> Explained:
        """Which grant, trust and subtype allow something, or what is missing."""
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

    def _missing(self, wish: GrantRequest, near: Sequence[Grant], *, trusted: bool, now: int) -> list[Missing]:
        missing = []
        peer, type_, trigger = wish.peer, wish.type, wish.trigger
        again = f"clia cap grant {peer} {type_} {trigger}{' --execute' if wish.execute else ''}"
        if type_ not in self._registry.types().known():
            hint = f"if {peer} defines it: clia cap grant {peer} agent-commit type, then clia sync {peer}"
            message = f"the type {type_} is not known here: nothing can grant it, and no grant for a wider one covers it"
            return [Missing("type", message, hint)]
        if not trusted:
            missing.append(Missing("trust", f"{peer} is not trusted", f"clia peer change {peer} --trust"))
        live = [each for each in near if each.expires is None or each.expires > now]
        if near and not live:
            missing.append(Missing("expired", f"every grant of {type_} by {trigger} has expired", again))
        elif not near:
            missing.append(Missing("grant", f"nothing grants {type_} by {trigger}", again))
        elif wish.execute and not any(each.execute for each in live):
            missing.append(Missing("execute", f"{type_} may be taken in by {trigger}, not run", again))
        return missing

    def _path(self, type_: str) -> list[str]:
        known = self._registry.types().known()
        found = [type_]
        while (above := known.get(found[-1])) is not None and above not in found:
            found.append(above)
        return found

    def _space_of(self, peer: str) -> str:
        return self._peers.get(peer).space

    def _check(self, wish: GrantRequest, *, known_type: bool = True) -> None:
        check_flag(wish.execute, "execute")
        if check_text(wish.trigger, "trigger") not in TRIGGERS or wish.trigger == "snapshot":
            told = [each for each in TRIGGERS if each != "snapshot"]
            hints = [f"triggers: {', '.join(told)}; what a snapshot says counts as what moved each ref"]
            raise InvalidInput(
                f"{wish.trigger!r} is no trigger", code="invalid-trigger", hints=hints, fields={"trigger": wish.trigger}
            )
        known = self._registry.types().known()
        if check_text(wish.type, "type") not in known and known_type:
            hints = [f"known types: {', '.join(known)}"]
            raise NotFound(f"there is no type {wish.type!r}", code="no-such-type", hints=hints, fields={"type": wish.type})
        if wish.expires is not None and not self._core.now() < check_count(wish.expires, "expires") < _EXPIRES_MAX:
            raise InvalidInput("a grant cannot end before it begins", code="invalid-expiry", fields={"expires": wish.expires})


def is_capability(made: Mapping[str, Any]) -> bool:
    peer, trigger = made.get("peer"), made.get("trigger")
    texts = isinstance(peer, str) and 0 < len(peer) <= 100 and peer.isprintable() and trigger in TRIGGERS
    ends = made.get("expires")
    ending = ends is None or (isinstance(ends, int) and not isinstance(ends, bool))
    return texts and ending and is_type_name(made.get("agentic_type")) and isinstance(made.get("execute"), bool)
