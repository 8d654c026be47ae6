"""What is tracked of peers, and what of it may run here.

Invariant: nothing of a peer's runs because it arrived. A version of a flow runs if this space has it of its own (defined by a
person here, or written here), or if a grant with ``execute`` lets the peer's behaviours run.
"""

from __future__ import annotations

from clia.errors import CapabilityDenied, NotFound
from clia.federation.model import Remote, RemoteBehaviour
from clia.kernel import refs as names
from clia.space.model import agent_commit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.federation.capabilities import Capabilities
    from clia.federation.peers import Peers
    from clia.space.core import Core


class Tracking:
    def __init__(self, core: Core, peers: Peers, capabilities: Capabilities) -> None:
        self._core = core
        self._peers = peers
        self._capabilities = capabilities

    def remotes(self, peer: str | None = None) -> list[Remote]:
        """The agents of one peer, or of all, sorted."""
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
        """The behaviours of one peer, or of all, sorted."""
        known = [self._peers.get(peer)] if peer is not None else self._peers.all()
        found = []
        for each in known:
            runs = self._capabilities.allowed(each.space, "behaviour", "behaviour", execute=True)
            top = names.remote(each.name, "behaviours/")
            for ref, _ in self._core.refs.under(top):
                name = ref.removeprefix(top)
                found.append(RemoteBehaviour(each.name, name, self.readable(f"{each.name}/{name}"), runs))
        return found

    def runnable(self, text: str) -> tuple[str, str | None]:
        """What a flow's name or id means to whoever starts it, and ``PEER/NAME`` where it is a peer's.

        ``CapabilityDenied`` where it is another's and may not run.
        """
        if names.remote_agent(text) is not None:
            found = self.readable(text)
            self.check_running(text)
            return found, text
        if names.is_id(text) and not self._is_ours(text):
            return text, self._foreign(text)
        return text, None

    def check_running(self, flow: str) -> None:
        """``CapabilityDenied`` where a flow is a peer's and may not run any more: a session of it takes no further step."""
        named = names.remote_agent(flow)
        if named is not None:
            self._capabilities.require_execute(*named)

    def readable(self, text: str) -> str:
        """What a flow's name means to whoever reads it: of ``PEER/NAME`` the id of its current version."""
        named = names.remote_agent(text)
        if named is None:
            return text
        core, (peer, name) = self._core, named
        self._peers.get(peer)
        tip = core.refs.get(names.remote(peer, f"behaviours/{name}"))
        if tip is None:
            hints = [f"clia sync {peer}", f"clia cap explain {peer} behaviour behaviour"]
            raise NotFound(f"{peer} has no behaviour {name!r} that is tracked here", code="no-such-flow", hints=hints)
        entry = core.objects.entry(core.objects.commit(tip).tree, "current")
        return core.objects.blob(entry.cid).decode("ascii", "replace").strip() if entry else ""

    def _is_ours(self, cid: str) -> bool:
        """Whether somebody here made it a version of a flow, or wrote it."""
        core = self._core
        places = [(tip, f"versions/{cid}.json") for _, tip in core.refs.under(names.BEHAVIOURS)]
        written = core.refs.get(names.OBJECTS)
        places += [(written, f"{cid[:2]}/{cid[2:]}.json")] if written else []
        return any(core.objects.entry(core.objects.commit(tip).tree, path) is not None for tip, path in places)

    def _foreign(self, cid: str) -> str | None:
        """Which behaviour of a peer a version belongs to; of several peers' one that may run, if there is one."""
        core = self._core
        found = []
        for ref, tip in core.refs.under(names.REMOTES):
            peer, _, place = ref.removeprefix(names.REMOTES).partition("/")
            version = f"versions/{cid}.json"
            if place.startswith("behaviours/") and core.objects.entry(core.objects.commit(tip).tree, version) is not None:
                found.append((peer, place.removeprefix("behaviours/")))
        for peer, name in found:
            if self._capabilities.may_run(peer):
                return f"{peer}/{name}"
        for peer, name in found:
            self._capabilities.require_execute(peer, name)
        if core.objects.kind(cid) is not None:
            raise CapabilityDenied(
                f"the object {cid} is no flow of this space: nobody here has defined it",
                code="execute-denied",
                hints=["read it with clia flow show, then define it under a name: clia flow define NAME FILE"],
                fields={"cid": cid},
            )
        return None
