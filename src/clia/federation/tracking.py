"""What is tracked of peers, and what of it may run here.

Invariant: nothing runs because it arrived from a peer or was proposed by an agent. A version of a flow runs if a person here has
adopted it, or if a grant with ``execute`` covers the peer's behaviours. A version retired here never runs.
"""

from __future__ import annotations

from clia.errors import CapabilityDenied, NotFound
from clia.federation.model import Remote, RemoteBehaviour
from clia.space.model import agent_commit
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.federation.capabilities import Capabilities
    from clia.federation.peers import Peers
    from clia.space.behaviour_chains import BehaviourChains
    from clia.space.core import Core


class PeerTracking:
    def __init__(self, core: Core, peers: Peers, capabilities: Capabilities, chains: BehaviourChains) -> None:
        self._core = core
        self._chains = chains
        self._peers = peers
        self._capabilities = capabilities

    def remotes(self, peer: str | None = None) -> list[Remote]:
        """The tracked agents of one peer, or of all, sorted."""
        known = [self._peers.get(peer)] if peer is not None else self._peers.all()
        return [found for each in known for found in self._of(each.name)]

    def _of(self, peer: str) -> Iterator[Remote]:
        core = self._core
        top = names.remote(peer, "agents/")
        for ref, cid in core.refs.under(top):
            name = ref.removeprefix(top)
            commit = agent_commit(core.objects.commit(cid))
            notes = names.remote(peer, f"notes/trace/{name}")
            traces = len(core.notes.all(notes)) if core.refs.get(notes) else 0
            record = core.refs.get(names.remote(peer, f"records/{name}")) is not None
            yield Remote(peer, name, cid, commit.kind, commit.subject, commit.committer.at, record, traces)

    def behaviours(self, peer: str | None = None) -> list[RemoteBehaviour]:
        """The tracked behaviours of one peer, or of all, sorted."""
        known = [self._peers.get(peer)] if peer is not None else self._peers.all()
        found = []
        for each in known:
            runs = self._capabilities.allowed(each.space, "behaviour", "behaviour", execute=True)
            top = names.remote(each.name, "behaviours/")
            for ref, tip in self._core.refs.under(top):
                current = self._chains.at(tip).current
                found += [RemoteBehaviour(each.name, ref.removeprefix(top), current, runs)] if current else []
        return found

    def runnable(self, text: str) -> tuple[str, str | None]:
        """The flow to start for a name or id, and ``PEER/NAME`` if it belongs to a peer.

        ``CapabilityDenied`` if it may not run: it is a peer's, not adopted, or retired.
        """
        if names.remote_agent(text) is not None:
            found = self.readable(text)
            self.check_running(text)
            self._check_not_retired(found)
            return found, text
        if names.is_id(text):
            return text, None if self._chains.may_run(text) else self._foreign(text)
        if names.is_name(text):
            self._check_current(text)
        return text, None

    def _check_current(self, name: str) -> None:
        """Refuse a current version that may not run: such a chain was not written by clia."""
        state = self._chains.state(name)
        if state.current is not None and not state.may_run(state.current):
            raise self._unreviewed(state.current)

    def check_running(self, flow: str, cid: str | None = None) -> None:
        """``CapabilityDenied`` if a peer's flow may no longer run; its sessions then stop.

        ``cid``: the version of a new session, which must be one that may run.
        """
        named = names.remote_agent(flow)
        if named is not None:
            self._capabilities.require_execute(*named)
            if cid is not None:
                self._check_not_retired(cid)
                tip = self._core.refs.get(names.remote(named[0], f"behaviours/{named[1]}"))
                if not self._chains.at(tip).may_run(cid):
                    raise self._unreviewed(cid)  # a note can claim any version for the peer
        elif cid is not None:
            self.runnable(cid)

    def check_trying(self, cid: str) -> None:
        """``CapabilityDenied`` if a version may not be replayed: a peer's version needs ``execute``."""
        if not any(cid in state.versions for _, state in self._chains.states()):
            self.runnable(cid)

    def readable(self, text: str) -> str:
        """The flow to read for a name: for ``PEER/NAME``, the id of its current version."""
        named = names.remote_agent(text)
        if named is None:
            return text
        core, (peer, name) = self._core, named
        self._peers.get(peer)
        tip = core.refs.get(names.remote(peer, f"behaviours/{name}"))
        if tip is None:
            hints = [f"clia sync {peer}", f"clia cap explain {peer} behaviour behaviour"]
            raise NotFound(f"no behaviour {name!r} of {peer} is tracked here", code="no-such-flow", hints=hints)
        state = self._chains.at(tip)
        if state.current is None or not state.may_run(state.current):
            raise NotFound(f"{peer} has retired behaviour {name!r}", code="retired", fields={"behaviour": text})
        return state.current

    def _foreign(self, cid: str) -> str | None:
        """The peer's behaviour that a version belongs to, preferring one that may run."""
        core = self._core
        self._check_not_retired(cid)
        found = []
        for ref, tip in core.refs.under(names.REMOTES):
            peer, _, place = ref.removeprefix(names.REMOTES).partition("/")
            if place.startswith("behaviours/") and self._chains.at(tip).may_run(cid):
                found.append((peer, place.removeprefix("behaviours/")))
        for peer, name in found:
            if self._capabilities.may_run(peer):
                return f"{peer}/{name}"
        for peer, name in found:
            self._capabilities.require_execute(peer, name)
        if core.objects.kind(cid) is not None:
            raise self._unreviewed(cid)
        return None

    def _check_not_retired(self, cid: str) -> None:
        if not self._chains.may_run(cid) and any(cid in state.retired for _, state in self._chains.states()):
            raise self._unreviewed(cid)

    def _unreviewed(self, cid: str) -> CapabilityDenied:
        """The error for a version that is proposed, retired, or not a behaviour of this space."""
        states = list(self._chains.states())
        name = next((name for name, state in states if cid in state.versions), None)
        if name is None:
            return CapabilityDenied(
                f"object {cid} is not a behaviour of this space",
                code="execute-denied",
                hints=[f"read it: clia behaviour show {cid}", "then add it under a name: clia behaviour add NAME FILE"],
                fields={"cid": cid},
            )
        retired = any(cid in state.retired for _, state in states)
        state = "is retired" if retired else "is only proposed"
        return CapabilityDenied(
            f"version {cid} of {name!r} {state} and may not run",
            code="retired" if retired else "not-adopted",
            hints=[
                f"read it: clia behaviour show {cid[:12]}",
                f"allow it to run: clia behaviour adopt {name} {cid[:12]} [--trial]",
            ],
            fields={"cid": cid, "behaviour": name},
        )
