"""Upkeep of a space: the states of its agents, packing, archiving finished agents, and putting idle ones away.

Invariant: the refs of idle agents move to the archive repository, where a person's git does not see them. Reads give the same
answers wherever an agent's refs are, and a verb that moves one of them brings all of them back first (``clia.git.refs``). Each step
can be repeated after a crash: the objects are packed and flushed before a ref is written to the archive repository, and a ref is
removed from the main repository only while the archive repository has its value.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain, islice
from typing import NamedTuple

from clia.errors import CliaError
from clia.git.repository import is_on
from clia.space.model import AgentState, Maintained
from clia.space.traces import stream
from clia.values import refs as names
from clia.values.commit_messages import check_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from clia.git.archive import KeptPacks
    from clia.git.porcelain import GitPorcelain
    from clia.git.refs import GitRefs
    from clia.git.repository import Git
    from clia.space.agents import Agents
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.merging import Landing

ARCHIVE_IDLE = "clia.archiveIdle"
"""The git setting that says whether idle agents are put away; on by default."""
UPKEEP_LOCK = "@upkeep"
DAY = 24 * 60 * 60
RECENT = 10 * 60
"""Seconds since the last commit in which an agent is not idle."""
IDLE_AGENTS = 10
"""By default the agents with the newest commits stay, so many of them: a few refs cost git nothing."""
_AT_ONCE = 200  # refs whose locks are held together
_PREFIXES = (names.HEADS, names.ARCHIVE, names.RECORDS, names.EVENTS, names.TRACES, names.SESSIONS, names.OWN)
_MAIN = ("refs/heads/agents/", "refs/clia/", "refs/notes/clia/", names.TRACKING)


class IdleRules(NamedTuple):
    """Which agents are put away."""

    agents: int = IDLE_AGENTS  # so many stay, those with the newest commits; archived ones are the last
    days: int | None = None  # without a commit for so long no idle agent stays


class Archiving:
    def __init__(
        self, core: Core, envelope: Envelope, agents: Agents, refs: GitRefs, packs: KeptPacks, porcelain: GitPorcelain
    ) -> None:
        self._core = core
        self._envelope = envelope
        self._agents = agents
        self._refs = refs  # of this clone, also if a hub shares them: no value changes
        self._packs = packs
        self._porcelain = porcelain

    def names(self) -> list[str]:
        """The agents with refs in the archive repository."""
        refs = chain.from_iterable(self._refs.archive.under(prefix) for prefix in _PREFIXES) if self._refs.archive.exists() else ()
        return sorted({name for name in (names.agent_of(ref) for ref, _ in refs) if name is not None})

    def idle(self, rules: IdleRules) -> list[str]:
        """The agents in the main repository that can be put away, the longest idle first.

        A live session, an open question, pending trace entries, a checkout of the branch, or a commit within the last ten
        minutes keep an agent.
        """
        now, refs = self._core.now(), self._by_agent()
        last = {name: self._last_commit(own) for name, own in refs.items()}
        order = sorted(refs, key=lambda name: (names.archived(name) in refs[name], -last[name], name))
        beyond = set(order[rules.agents :])
        longest = None if rules.days is None else rules.days * DAY
        ages = {name: now - last[name] for name in reversed(order)}
        old = {name for name, age in ages.items() if longest is not None and age >= longest}
        due = [name for name, age in ages.items() if age >= RECENT and (name in beyond or name in old)]
        with self._core.store.reading() as view:
            pending = {key.removeprefix("trace/") for key in view.streams.names("trace/")}
        return [name for name in due if name not in pending and not self._is_used(name)]

    def put_away(self, agents: Iterable[str]) -> list[str]:
        """Move the refs of agents to the archive repository; return the agents that have none in the main one any more."""
        refs = self._by_agent()
        wanted = {ref: cid for name in agents for ref, cid in refs.get(name, {}).items()}
        with self._envelope.among_others():
            self._packs.sweep()
            if not wanted:
                return []
            self._keep_objects(sorted(set(wanted.values())))
            for part in _parts(wanted):
                self._refs.put_away(part)
            self._porcelain.prune_packed()
        left = self._by_agent()
        return sorted({name for name in map(names.agent_of, wanted) if name is not None and name not in left})

    def bring_back(self, agents: Iterable[str] | None = None) -> list[str]:
        """Bring agents back to the main repository; all of them if None, and then git also cleans up their objects like others."""
        brought = sorted(set(agents)) if agents is not None else self.names()
        archive = self._refs.archive
        with self._envelope.among_others():
            refs = archive.among(ref for name in brought for ref in [*names.of_agent(name), names.own(name)])
            for part in _parts(refs):
                self._refs.bring_back(part)
            if agents is None:
                self._refs.pack()
                if archive.is_empty():
                    self._packs.release()
                    bases = self._refs.get(names.BASES)
                    if bases is not None:
                        self._core.refs.move(names.BASES, bases, None, "clia: no archived agents")
        return brought

    def join_packs(self) -> None:
        """Join the packs of the archive repository if there are many."""
        with self._envelope.among_others():
            self._packs.join(self._archived_tips(), self._core.person_stamp())

    def drop_objects(self, cids: Iterable[str]) -> None:
        """Remove unreachable objects from the packs of the archive repository."""
        self._packs.drop(cids, self._archived_tips(), self._core.person_stamp())

    def _archived_tips(self) -> list[str]:
        return sorted({cid for _, cid in self._refs.archive.under("refs/")}) if self._refs.archive.exists() else []

    def _by_agent(self) -> dict[str, dict[str, str]]:
        """The refs of each agent in the main repository."""
        by_agent: dict[str, dict[str, str]] = {}
        for prefix in _PREFIXES:
            for ref, cid in self._refs.present_under(prefix):
                name = names.agent_of(ref)
                if name is not None:
                    by_agent.setdefault(name, {})[ref] = cid
        return by_agent

    def _last_commit(self, refs: Mapping[str, str]) -> int:
        """When the newest commit of some refs was made; objects that a partial clone lacks do not count."""
        times = [0]
        for cid in refs.values():
            with suppress(CliaError):
                times.append(self._core.objects.commit(cid).committer.at)
        return max(times)

    def _is_used(self, name: str) -> bool:
        return self._core.refs.followed_by(names.head(name)) is not None or self._agents.is_at_work(name)

    def _keep_objects(self, tips: list[str]) -> None:
        """Make sure that the objects of refs stay when the main repository has the refs no longer."""
        core, old = self._core, self._refs.get(names.BASES)
        before = core.objects.commit(old).parents if old is not None else ()
        people = [
            cid
            for ref, cid in self._refs.present_under("refs/")
            if not ref.startswith(_MAIN) and not (ref.startswith("refs/remotes/") and "/agents/" in ref)
        ]
        bases = self._packs.bases(tips, people, before)
        if bases and bases != sorted(before):
            by = core.person_stamp()
            new = core.objects.write_commit(core.empty_tree(), bases, by, by, "Commits that archived agents are based on\n")
            core.refs.move(names.BASES, old, new, "clia: archive")
        core.reached("bases-kept")
        self._packs.keep(tips, bases, core.person_stamp())
        core.reached("objects-kept")


def _parts(refs: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The refs in parts, sorted by agent."""
    rest = iter(sorted(refs.items(), key=lambda item: (names.agent_of(item[0]) or "", item[0])))
    while part := dict(islice(rest, _AT_ONCE)):
        yield part


class Upkeep:
    def __init__(self, core: Core, agents: Agents, landing: Landing, archiving: Archiving, git: Git) -> None:
        self._core = core
        self._agents = agents
        self._landing = landing
        self._archiving = archiving
        self._git = git
        self._porcelain = git.porcelain

    def states(self, *, after: str = "", limit: int | None = None) -> list[AgentState]:
        core = self._core
        names_here = self._agents.names(after=after, limit=limit)
        with core.store.reading() as view:
            # Most agents have nothing pending: read only the streams that exist.
            busy = {stream(name) for name in names_here} if limit is not None else set(view.streams.names(stream("")))
            waiting = {name: len(view.streams.read(stream(name))) for name in names_here if stream(name) in busy}
        states = []
        for name in names_here:
            head = core.head(name)
            if head is not None:  # archived in between
                commit, branch = core.read(head), self._landing.landed_on(name, head)
                landed = branch and branch.removeprefix(names.BRANCHES)
                states.append(
                    AgentState(name, head, commit.kind, commit.subject, commit.committer.at, waiting.get(name, 0), landed)
                )
        return states

    def maintain(
        self, move: Callable[[], tuple[tuple[str, ...], tuple[str, ...]]], archive_idle_days: int | None, *, dry_run: bool
    ) -> Maintained:
        """``move`` moves the worktrees of earlier versions; see ``Maintained`` for its results."""
        if archive_idle_days is not None:
            check_count(archive_idle_days, "days")
        before = self._porcelain.size()
        archived = [] if archive_idle_days is None else self._finished(archive_idle_days)
        if dry_run:
            return Maintained(tuple(archived), before, before, put_away=tuple(sorted(self._idle())))
        archived = [name for name in archived if self._put_away(name)]
        from clia.space.remotes import fetch_rules  # states load this module, too

        for remote in self._porcelain.remotes():
            self._porcelain.remove_fetch_rules(remote, fetch_rules(remote))  # earlier versions added them
        with self._core.locks.hold(UPKEEP_LOCK):
            put_away = self._archiving.put_away(self._idle())
            self._archiving.join_packs()
            self._porcelain.pack()
        return Maintained(tuple(archived), before, self._porcelain.size(), *move(), put_away=tuple(put_away))

    def run(self) -> bool:
        """Pack refs and loose objects and put idle agents away, as far as it is due; False if another process does."""
        with self._core.locks.attempt(UPKEEP_LOCK) as free:
            if free:
                self._archiving.put_away(self._idle())
                self._archiving.join_packs()
                self._git.refs.pack()
                self._porcelain.pack_loose()
            return free

    def unarchive_all(self) -> list[str]:
        """Bring all agents back to the main repository, and let them stay there."""
        with self._core.locks.hold(UPKEEP_LOCK):
            self._git.handle.repo.config[ARCHIVE_IDLE] = False
            return self._archiving.bring_back()

    def _idle(self) -> list[str]:
        if not is_on(self._git.setting(ARCHIVE_IDLE)) or self._porcelain.is_partial():
            return []  # a pack of a partial clone cannot be complete
        days, agents = self._git.positive_number("clia.idleDays"), self._git.positive_number("clia.idleAgents")
        return self._archiving.idle(IdleRules(agents or IDLE_AGENTS, days))

    def _finished(self, days: int) -> list[str]:
        """Idle agents whose work is contained in another agent's branch or any other branch."""
        core = self._core
        idle = [state for state in self.states() if not state.pending and core.now() - state.at >= days * DAY]
        if not idle:
            return []
        # One walk over everything: a head that is another commit's parent is reachable from that commit.
        tips = [cid for _, cid in core.refs.under(names.BRANCHES)]
        contained = {parent for commit in core.graph.walk(tips) for parent in commit.parents}
        finished = [state.agent for state in idle if state.landed or state.head in contained]
        return [name for name in finished if not self._agents.is_at_work(name)]

    def _put_away(self, name: str) -> bool:
        try:
            self._agents.archive(name)
        except CliaError:
            return False  # it is at work again, or checked out
        return True
