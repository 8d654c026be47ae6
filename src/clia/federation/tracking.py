"""The tracked agents and behaviours of peers, and whether they may run here.

Invariant: nothing runs because it arrived from a peer or was proposed by an agent. A version of a flow runs if a person here has
adopted it, or if a grant with ``execute`` covers the peer's behaviours. A version retired here never runs.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CapabilityDenied, NotFound
from clia.federation.model import Remote, RemoteBehaviour
from clia.space.model import agent_commit
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.federation.capabilities import Capabilities
    from clia.federation.peers import Peers, PinnedPeer
    from clia.space.behaviour_chains import BehaviourChains
    from clia.space.core import Core


class PeerTracking(NamedTuple):
    core: Core
    chains: BehaviourChains
    peers: Callable[[], Peers]  # built for a peer's flow only: most flows are the space's own
    capabilities: Callable[[], Capabilities]

    def remotes(self, peer: str | None = None) -> list[Remote]:
        """The tracked agents of one peer, or of all, sorted."""
        return [remote for pinned in self._named(peer) for remote in self._of(pinned.name)]

    def _named(self, peer: str | None) -> list[PinnedPeer]:
        return self.peers().all() if peer is None else [self.peers().get(peer)]

    def _of(self, peer: str) -> Iterator[Remote]:
        core = self.core
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
        behaviours = []
        for pinned in self._named(peer):
            runs = self.capabilities().allowed(pinned.space, "behaviour", "behaviour", execute=True)
            top = names.remote(pinned.name, "behaviours/")
            for ref, tip in self.core.refs.under(top):
                current = self.chains.at(tip).current
                behaviours += [RemoteBehaviour(pinned.name, ref.removeprefix(top), current, runs)] if current else []
        return behaviours

    def runnable(self, text: str) -> tuple[str, str | None]:
        """The flow to start for a name or id, and ``PEER/NAME`` if it belongs to a peer.

        ``CapabilityDenied`` if it may not run: it is a peer's, not adopted, or retired.
        """
        if names.remote_agent(text) is not None:
            cid = self.readable(text)
            self.check_running(text)
            self._check_not_retired(cid)
            return cid, text
        if names.is_id(text):
            return text, None if self.chains.may_run(text) else self._foreign(text)
        if names.is_name(text):
            state = self.chains.state(text)
            if state.current is not None and not state.may_run(state.current):  # such a chain was not written by clia
                raise self._unreviewed(state.current)
        return text, None

    def check_running(self, flow: str, cid: str | None = None) -> None:
        """``CapabilityDenied`` if a peer's flow may no longer run; its sessions then stop.

        ``cid``: the version of a new session, which must be one that may run.
        """
        named = names.remote_agent(flow)
        if named is not None:
            self.capabilities().require_execute(*named)
            if cid is not None:
                self._check_not_retired(cid)
                tip = self.core.refs.get(names.remote(named[0], f"behaviours/{named[1]}"))
                if not self.chains.at(tip).may_run(cid):
                    raise self._unreviewed(cid)  # a note can claim any version for the peer
        elif cid is not None:
            self.runnable(cid)

    def check_trying(self, cid: str) -> None:
        """``CapabilityDenied`` if a version may not be replayed: a peer's version needs ``execute``."""
        if not any(cid in state.versions for _, state in self.chains.states()):
            self.runnable(cid)

    def readable(self, text: str) -> str:
        """The flow to read for a name: for ``PEER/NAME``, the id of its current version."""
        named = names.remote_agent(text)
        if named is None:
            return text
        core, (peer, name) = self.core, named
        self.peers().get(peer)
        tip = core.refs.get(names.remote(peer, f"behaviours/{name}"))
        if tip is None:
            hints = [f"clia sync {peer}", f"clia cap explain {peer} behaviour behaviour"]
            raise NotFound(f"no behaviour {name!r} of {peer} is tracked here", code="no-such-flow", hints=hints)
        state = self.chains.at(tip)
        if state.current is None or not state.may_run(state.current):
            raise NotFound(f"{peer} has retired behaviour {name!r}", code="retired", fields={"behaviour": text})
        return state.current

    def _foreign(self, cid: str) -> str | None:
        """The peer's behaviour that a version belongs to, preferring one that may run."""
        self._check_not_retired(cid)
        owners = []
        for ref, tip in self.core.refs.under(names.REMOTES):
            peer, _, place = ref.removeprefix(names.REMOTES).partition("/")
            if place.startswith("behaviours/") and self.chains.at(tip).may_run(cid):
                owners.append((peer, place.removeprefix("behaviours/")))
        for peer, name in owners:
            if self.capabilities().may_run(peer):
                return f"{peer}/{name}"
        for peer, name in owners:
            self.capabilities().require_execute(peer, name)
        if self.core.objects.kind(cid) is not None:
            raise self._unreviewed(cid)
        return None

    def _check_not_retired(self, cid: str) -> None:
        if not self.chains.may_run(cid) and any(cid in state.retired for _, state in self.chains.states()):
            raise self._unreviewed(cid)

    def _unreviewed(self, cid: str) -> CapabilityDenied:
        """The error for a version that is proposed, retired, or not a behaviour of this space."""
        states = list(self.chains.states())
        name = next((name for name, state in states if cid in state.versions), None)
        if name is None:
            hints = [f"read it: clia behaviour show {cid}", "then add it under a name: clia behaviour add NAME FILE"]
            message = f"object {cid} is not a behaviour of this space"
            return CapabilityDenied(message, code="execute-denied", hints=hints, fields={"cid": cid})
        retired = any(cid in state.retired for _, state in states)
        code, state = ("retired", "is retired") if retired else ("not-adopted", "is only proposed")
        adopt = f"clia behaviour adopt {name} {cid[:12]} [--trial]"
        hints = [f"read it: clia behaviour show {cid[:12]}", f"allow it to run: {adopt}"]
        message = f"version {cid} of {name!r} {state} and may not run"
        return CapabilityDenied(message, code=code, hints=hints, fields={"cid": cid, "behaviour": name})
