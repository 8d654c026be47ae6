"""Upkeep of a space: list agents with their states, pack, archive finished agents, and move idle ones to the archive repository.

Invariant: the refs of idle agents move to the archive repository, where a person's git does not see them. Reads give the same
answers wherever an agent's refs are, and a verb that moves one of them brings all of them back first (``clia.git.refs``). Each step
can be repeated after a crash: the objects are packed and flushed before a ref is written to the archive repository, and a ref is
removed from the main repository only while the archive repository has its value.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain, islice
from typing import NamedTuple

from clia.errors import CliaError, StaleRef
from clia.git.libgit2 import writing
from clia.git.repository import is_on
from clia.space.core import UNREADABLE
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
    from clia.space.landing import Landing

ARCHIVE_IDLE = "clia.archiveIdle"
"""The git setting that decides whether idle agents move to the archive repository; on by default."""
UPKEEP_LOCK = "@upkeep"
DAY = 24 * 60 * 60
RECENT = 10 * 60
"""An agent counts as idle this many seconds after its last commit."""
IDLE_AGENTS = 8
"""Default number of agents, with the newest commits, that stay in the main repository: a few refs cost git nothing."""
_PLACE = "to the archive repository"
_AT_ONCE = 200  # refs whose locks are held together
_PREFIXES = (names.HEADS, names.ARCHIVE, names.RECORDS, names.EVENTS, names.TRACES, names.SESSIONS, names.OWN)
_MAIN = ("refs/heads/agents/", "refs/clia/", "refs/notes/clia/", names.TRACKING, names.LOCAL)


class IdleRules(NamedTuple):
    """The policy that selects idle agents."""

    agents: int = IDLE_AGENTS  # number of agents that stay: those with the newest commits, archived ones last
    days: int | None = None  # agents without a commit for this many days do not stay either


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
        minutes keep an agent. An agent whose commits cannot be read is left alone.
        """
        # A branch without any other ref of an agent was not created by clia.
        refs = {name: own for name, own in self._by_agent().items() if own.keys() != {names.head(name)}}
        now = self._core.now()
        last = {name: self._last_commit(own) for name, own in refs.items()}
        order = sorted(refs, key=lambda name: (names.archived(name) in refs[name], -last[name], name))
        beyond = set(order[rules.agents :])
        longest = None if rules.days is None else rules.days * DAY
        ages = {name: now - last[name] for name in reversed(order)}
        old = {name for name, age in ages.items() if longest is not None and age >= longest}
        due = [name for name, age in ages.items() if last[name] and age >= RECENT and (name in beyond or name in old)]
        with self._core.store.reading() as view:
            pending = {key.removeprefix("trace/") for key in view.streams.names("trace/")}
        return [name for name in due if name not in pending and not self._is_used(name)]

    def put_away(self, agents: Iterable[str]) -> list[str]:
        """Move the refs of agents to the archive repository; return the agents that have none in the main one any more."""
        refs = self._by_agent()
        wanted = {ref: cid for name in agents for ref, cid in refs.get(name, {}).items()}
        wanted |= self._tracking(wanted)
        with self._envelope.among_others(), writing(_PLACE):
            self._packs.sweep()
            if not wanted:
                return []
            self._keep_objects(sorted(set(wanted.values()).difference(self._archived_tips())))
            for part in _parts(wanted):
                self._refs.put_away(part)
            self._porcelain.prune_packed()
        left = self._by_agent()
        return sorted({name for name in map(names.agent_of, wanted) if name is not None and name not in left})

    def _tracking(self, refs: Mapping[str, str]) -> dict[str, str]:
        """The tracking refs that have the same values as refs that are put away, of agents that are away, or of resting ones."""
        present = self._refs.present_under(names.TRACKING)
        if not present:
            return {}
        now, agents = self._core.now(), self._by_agent()
        archived = dict(self._refs.archive.under("refs/")) if self._refs.archive.exists() else {}
        for own in agents.values():
            rests = now - self._last_commit(own) >= RECENT
            archived |= own if rests else dict.fromkeys(own, "")
        settled = archived | dict(refs)
        return {ref: cid for ref, cid in present if settled.get(names.tracked(ref) or "") == cid}

    def bring_back(self, agents: Iterable[str] | None = None) -> list[str]:
        """Bring agents back to the main repository; None: all of them, and git may then clean up their objects like others."""
        brought = sorted(set(agents)) if agents is not None else self.names()
        archive = self._refs.archive
        with self._envelope.among_others(), writing(_PLACE):
            refs = archive.among(ref for name in brought for ref in [*names.of_agent(name), names.own(name)])
            if agents is None and archive.exists():
                refs |= dict(archive.under(names.TRACKING))
            for part in _parts(refs):
                self._refs.bring_back(part)
            if agents is None:
                self._refs.pack()
                if archive.is_empty():
                    self._packs.release()
                    for ref, cid in self._bases().items():
                        self._refs.move(ref, cid, None, "clia: no archived agents")
        return brought

    def rename_bases(self) -> None:
        """Rename the ref that an earlier version of clia wrote."""
        former, bases = self._refs.get(names.FORMER_BASES), self._refs.get(names.BASES)
        if former is not None and bases in (None, former):
            self._refs.move(names.BASES, bases, former, "clia: rename")
            self._refs.move(names.FORMER_BASES, former, None, "clia: rename")

    def join_packs(self, *, whole: int = 0) -> None:
        """Join small packs of the archive repository if there are many; all of them if they have at most ``whole`` objects."""
        with self._envelope.among_others(), writing(_PLACE):
            self._packs.join(self._archived_tips(), self._core.person_stamp(), whole=whole)

    def drop_objects(self, cids: Iterable[str]) -> None:
        """Remove unreachable objects from the packs of the archive repository."""
        with writing(_PLACE):
            self._packs.drop(cids, self._archived_tips(), self._core.person_stamp())

    def _bases(self) -> dict[str, str]:
        refs = {ref: self._refs.get(ref) for ref in (names.BASES, names.FORMER_BASES)}
        return {ref: cid for ref, cid in refs.items() if cid is not None}

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
        """Ensure that the objects of refs stay when the main repository no longer has the refs."""
        if not tips:
            return
        core, old = self._core, self._bases()
        parents = {ref: core.objects.commit(cid).parents for ref, cid in old.items()}
        people = [
            cid
            for ref, cid in self._refs.present_under("refs/")
            if not ref.startswith(_MAIN) and not (ref.startswith("refs/remotes/") and "/agents/" in ref)
        ]
        bases = self._packs.bases(tips, people, chain.from_iterable(parents.values()))
        if bases and bases != sorted(parents.get(names.BASES, ())):
            by = core.person_stamp()
            new = core.objects.write_commit(core.empty_tree(), bases, by, by, "Commits that archived agents are based on\n")
            self._refs.move(names.BASES, old.get(names.BASES), new, "clia: archive")
        if names.FORMER_BASES in old:
            self._refs.move(names.FORMER_BASES, old[names.FORMER_BASES], None, "clia: rename")
        core.reached("bases-kept")
        self._packs.keep(tips, bases, core.person_stamp())
        core.reached("objects-kept")


def _parts(refs: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The refs in batches, sorted by agent."""
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
                states.append(self._state(name, head, waiting.get(name, 0)))
        return states

    def _state(self, name: str, head: str, pending: int) -> AgentState:
        state = AgentState(name, head, None, "", 0, pending, None)
        try:
            commit = self._core.read(head)
            state = state._replace(kind=commit.kind, subject=commit.subject, at=commit.committer.at)
            if commit.kind is None:
                self._core.check_created(name, head)
            branch = self._landing.landed_on(name, head)
        except UNREADABLE as err:
            return state._replace(problem=err.message)
        return state._replace(landed=branch and branch.removeprefix(names.BRANCHES))

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
        from clia.git.porcelain import LARGE_REPOSITORY
        from clia.space.remotes import fetch_rules  # states load this module, too

        for remote in self._porcelain.remotes():
            self._porcelain.remove_fetch_rules(remote, fetch_rules(remote))  # earlier versions added them
        with self._core.locks.hold(UPKEEP_LOCK):
            put_away = self._archiving.put_away(self._idle())
            self._rename_refs()
            self._tidy_log()
            self._archiving.join_packs(whole=LARGE_REPOSITORY)
            self._porcelain.pack()
            with writing("packed refs"):
                self._git.refs.pack()  # what was moved meanwhile
        return Maintained(tuple(archived), before, self._porcelain.size(), *move(), put_away=tuple(put_away))

    def run(self) -> bool:
        """Pack refs and loose objects and move idle agents to the archive repository, if this is due; False if another process does
        it."""
        with self._core.locks.attempt(UPKEEP_LOCK) as free:
            if free:
                self._archiving.put_away(self._idle())
                self._rename_refs()
                self._archiving.join_packs()
                self._tidy_log()
                with writing("packed refs"):
                    self._git.refs.pack()
                self._porcelain.pack_loose()
            return free

    def unarchive_all(self) -> list[str]:
        """Bring all agents back to the main repository, and let them stay there."""
        with self._core.locks.hold(UPKEEP_LOCK):
            with writing("the setting that keeps them"):
                self._git.handle.repo.config[ARCHIVE_IDLE] = False
            return self._archiving.bring_back()

    def _tidy_log(self) -> None:
        if self._git.refs.log is not None:
            self._git.refs.log.tidy()

    def _rename_refs(self) -> None:
        """Rename the refs of this clone that earlier versions of clia have below ``refs/clia``."""
        from clia.space.store_epochs import StoreEpochs  # states load this module, too

        with suppress(StaleRef):  # a verb moves one of them; the next upkeep repeats it
            StoreEpochs(self._core._replace(refs=self._git.refs)).rename()
            self._archiving.rename_bases()

    def _idle(self) -> list[str]:
        if not is_on(self._git.setting(ARCHIVE_IDLE)) or self._porcelain.is_partial():
            return []  # a pack of a partial clone cannot be complete
        days, agents = self._git.positive_number("clia.idleDays"), self._git.positive_number("clia.idleAgents")
        return self._archiving.idle(IdleRules(agents or IDLE_AGENTS, days))

    def _finished(self, days: int) -> list[str]:
        """Idle agents whose work is contained in another agent's branch or any other branch."""
        core = self._core
        states = [state for state in self.states() if state.problem is None]
        idle = [state for state in states if not state.pending and core.now() - state.at >= days * DAY]
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
