"""What was acknowledged must be there once, what was refused must not, and a loss must be a finding that names it."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.errors import CliaError, Conflict
from clia.facade.setup import set_hub
from clia.hub.joining import HubTarget
from clia.sessions import records
from clia.space.events import read_events
from clia.testing import components
from clia.values import refs as names
from support.fuzzer.person import leave_branches
from support.fuzzer.place import be_impatient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import clia
    from clia.sessions.health import Ailment
    from clia.space.verification import Finding
    from clia.trust.verification import TrustFinding
    from support.fuzzer.place import Outcome, Place

_OF_LOG = (
    "repeated-move",
    "forged-log",
    "malformed-log",
    "unknown-machine",
    "missing-log",
    "log-backdated",
    "log-gap",
    "missing-ref",
)
"""Findings about the log of moves that people do not cause with git."""
_LOSSES = ("no-branch", "ref-rewound", "ref-missing", "rewound-ref", "missing-ref")
_OF_STORE = ("session", "answer", "over")
_STALE = re.compile(r"failed to parse commit ([0-9a-f]{40}) from object database for commit-graph")
_TOKEN = re.compile(r"<s\d+(?:-\d+)?>")


class LostState(NamedTuple):
    """What was acknowledged and was only in a store that was lost since."""

    pending: frozenset[str] = frozenset()  # texts of pending trace entries
    steps: frozenset[str] = frozenset()  # tokens of steps until then: their sessions were in the store

    def joined(self, pending: Iterable[str], steps: Iterable[str]) -> LostState:
        return LostState(self.pending.union(pending), self.steps.union(steps))


class Expected(NamedTuple):
    """What a history has acknowledged and refused until now."""

    outcomes: dict[str, Outcome]  # by token
    disturbed: frozenset[str]  # agents whose branches people may have moved back
    lost: LostState = LostState()

    def facts(self, kind: str) -> Iterator[tuple[Any, ...]]:
        """Acknowledged facts; those of sessions only since the store was lost."""
        for token, outcome in self.outcomes.items():
            for what, *words in outcome.facts:
                if what == kind and not (kind in _OF_STORE and token in self.lost.steps):
                    yield tuple(words)

    def tokens(self, *states: str) -> set[str]:
        return {token for token, outcome in self.outcomes.items() if outcome.state in states}


class Problems(NamedTuple):
    """What is wrong on a machine."""

    certain: list[str]
    unnamed: list[str]  # losses by people that no finding names; another machine may name them


def problems(place: Place, expected: Expected) -> Problems:
    """Everything that is wrong; for a process of its own, because it replays sessions."""
    be_impatient(place)
    with place.open() as space:
        check = _Check(place, space, expected)
        return Problems(list(check.all()), check.unnamed)


class _Check:
    def __init__(self, place: Place, space: clia.Space, expected: Expected) -> None:
        self.unnamed: list[str] = []
        self._place = place
        self._space = space
        self._expected = expected
        self._agents = sorted({*space.agents(), *space.agents(archived=True)})
        report = space.verify()
        self._findings: list[Finding] = list(report.findings)
        self._ailments: list[Ailment] = space.doctor()
        self._logged = space.trust.verify().findings

    def all(self) -> Iterator[str]:
        yield from self._unexplained()
        self._histories = {name: self._history(name) for name in self._agents}
        self._own = {name: self._messages(name) for name in self._agents}
        yield from self._commits()
        yield from self._traces()
        yield from self._edges()
        yield from self._sessions()
        yield from self._chains()
        yield from self._refused()
        yield from self._hub()

    # Findings

    def _unexplained(self) -> Iterator[str]:
        """Findings about anything that no person has moved."""
        # A commit that a person removed with its branch may still be in the commit-graph.
        stale = (
            {cid for finding in self._findings for cid in _STALE.findall(finding.message)} if self._expected.disturbed else set()
        )
        for finding in self._findings:
            of_git = finding.code == "git-fsck" and (
                "worktrees/" in finding.message or any(cid in finding.message for cid in stale)
            )
            if self._agent_of(finding.ref) not in self._expected.disturbed and not of_git:
                yield f"verify: {finding}"
        for ailment in self._ailments:
            if ailment.agent not in self._expected.disturbed:
                yield f"doctor: {ailment}"

        for entry in self._logged:
            if entry.code in _OF_LOG and self._agent_of(entry.ref) not in self._expected.disturbed:
                yield f"log: {entry}"

    def _agent_of(self, ref: str | None) -> str:
        return "" if ref is None else ref.rpartition("/")[2]

    def _names(self, agent: str, cid: str) -> bool:
        """Whether a finding names the loss of a commit."""
        findings: list[Finding | TrustFinding] = [*self._findings, *self._logged]
        lost = [finding for finding in findings if finding.code in _LOSSES]
        named = [finding.cid for finding in lost if self._agent_of(finding.ref) == agent]
        return any(tip is not None and cid in self._place.git("rev-list", tip).split() for tip in named)

    # Commits

    def _history(self, name: str) -> set[str]:
        return set(self._place.git("rev-list", str(self._space.find(name))).split())

    def _messages(self, name: str) -> Counter[str]:
        """How often each token is in the messages of an agent's own commits; one that undoes another names that one."""
        own = [commit for commit in self._space.session_log(name) if not commit.subject.startswith('Revert "')]
        return Counter(token for commit in own for token in set(_TOKEN.findall(commit.message)))

    def _commits(self) -> Iterator[str]:
        disturbed = self._expected.disturbed
        for (name,) in self._expected.facts("agent"):
            if name in self._agents or (name in disturbed and self._named(name)):
                continue
            if name in disturbed:
                self.unnamed.append(f"agent {name} is gone")
            else:
                yield f"agent {name} is gone"
        copied = {(name, token) for name, token in self._expected.facts("message") if self._own.get(name, Counter())[token] == 1}
        tokens = {cid: token for outcome in self._expected.outcomes.values() for cid, token in _marked(outcome)}
        anywhere = set().union(*self._histories.values())  # a line that a person forked has another name
        for name, cid in self._expected.facts("commit"):
            present = cid in (anywhere if name in disturbed else self._histories.get(name, ()))
            if present or (name in disturbed and ((name, tokens.get(cid)) in copied or self._names(name, cid))):
                continue
            problem = f"{name} lost the commit {cid} ({tokens.get(cid)})"
            if name in disturbed:
                self.unnamed.append(problem)
            else:
                yield problem
        for name, counts in self._own.items():
            yield from (f"{name} has {token} {count} times" for token, count in counts.items() if count > 1)
        main = set(self._place.git("rev-list", "main").split())
        landed = [(name, cid) for name, cid, machine in self._expected.facts("landed") if machine == self._place.machine]
        yield from (f"main lost the landing {cid} of {name}" for name, cid in landed if cid not in main)

    def _named(self, name: str) -> bool:
        return any(self._agent_of(finding.ref) == name for finding in self._findings)

    # Traces

    def _traces(self) -> Iterator[str]:
        counts = Counter(str(hit.entry["text"]) for hit in self._space.trace_search("<s"))
        maybe = {text for _, text in self._place.begun_with("purge")} | self._expected.lost.pending
        attached = list(self._place.begun_with("attach"))  # in a burst, the later one replaces the other
        maybe |= {text for cid, text in attached if [other for other, _ in attached].count(cid) > 1}
        purged = {text for _, text in self._expected.facts("purged")}
        for name, text in self._expected.facts("trace"):
            if name in self._agents and counts[text] != 1 and text not in maybe:
                yield f"{name} has the trace entry {text} {counts[text]} times"
        yield from (f"the purged text {text} is there" for text in purged if counts[text])
        yield from (f"the trace entry {text} is there {count} times" for text, count in counts.items() if count > 1)

    # Relations

    def _edges(self) -> Iterator[str]:
        edges: set[tuple[Any, ...]] = {edge[:3] for edge in self._space.relations()}
        removed = {tuple(words) for words in self._place.begun_with("unrelate")}
        disturbed = self._expected.disturbed
        for edge in self._expected.facts("edge"):
            if edge not in edges and edge not in removed and not {edge[0], edge[2]} & disturbed:
                yield f"the relation {edge} is gone"
        stated = (edge for edge in self._expected.facts("stated") if edge[0] not in disturbed)
        yield from (f"the relation {edge} is gone" for edge in stated if edge not in edges)
        yield from (f"the relation {gone} was retracted" for gone in self._expected.facts("no-edge") if gone in edges)

    # Sessions

    def _sessions(self) -> Iterator[str]:
        answers: dict[tuple[str, str], list[Any]] = {}
        with self._space.local.store.reading() as view:
            for stream in view.streams.names("session/"):
                agent, session = records.split(stream)
                for resume in records.read_journal(view, agent, session).resumes:
                    answers.setdefault((agent, f"{session}.{resume.call}"), []).append(resume.value)
        yield from (
            f"the request {request} of {name} has {len(values)} answers"
            for (name, request), values in answers.items()
            if len(values) > 1
        )
        for name, request, value in self._expected.facts("answer"):
            if answers.get((name, request)) != [value]:
                yield f"the request {request} of {name} has the answers {answers.get((name, request))}, not {value}"
        with self._space.local.store.reading() as view:
            rows = [row for prefix in (records.LIVE, records.ENDED) for row in view.values.scan(prefix)]
        known: dict[tuple[Any, ...], str] = {records.split(key): row["status"] for key, row in rows}
        for key in self._expected.facts("session"):
            if key not in known and key[0] in self._agents:
                yield f"the session {key} is gone"
        yield from (f"the session {key} is live" for key in self._expected.facts("over") if known.get(key) == "suspended")
        yield from self._decisions()

    def _decisions(self) -> Iterator[str]:
        for name in self._agents:
            requests = Counter(commit.request for commit in self._space.session_log(name) if commit.kind == "decision")
            yield from (f"{name} has {count} decisions on {request}" for request, count in requests.items() if count > 1)

    # Everything else

    def _chains(self) -> Iterator[str]:
        types = self._space.types()
        yield from (f"the type {name} is gone" for (name,) in self._expected.facts("type") if name not in types)
        for name, cid in self._expected.facts("version"):
            try:
                known = set(self._space.flow(name).versions) if name == "flow" else self._versions(name)
            except CliaError as err:
                known = set()
                yield f"the behaviour {name} cannot be read: {err}"
            if cid not in known:
                yield f"{name} lost the version {cid}"
        for (cid,) in self._expected.facts("object"):
            try:
                self._space.read(cid)
            except CliaError as err:
                yield f"the object {cid} cannot be read: {err}"

    def _hub(self) -> Iterator[str]:
        """After a sync, this clone and the hub have the same."""
        if not self._space.has_hub:
            return
        status = self._space.hub_status()
        differing = {*status.owed, *status.behind, *(names.head(fork.agent) for fork in status.forks)}
        yield from (
            f"{ref} differs from the hub's" for ref in sorted(differing) if self._agent_of(ref) not in self._expected.disturbed
        )
        yield from (f"the work of {work.clone} on {work.agent} is not published" for work in status.elsewhere)

    def _versions(self, name: str) -> set[str]:
        return {version.cid for version in self._space.behaviour(name).versions}

    def _refused(self) -> Iterator[str]:
        refused, core = self._expected.tokens("refused", "skipped"), components(self._space).core
        marks = Counter(token for counts in self._own.values() for token in counts.elements())
        marks.update(_TOKEN.findall(self._place.git("log", "--format=%B", "main")))
        marks.update(text for hit in self._space.trace_search("<s") for text in _TOKEN.findall(str(hit.entry["text"])))
        for name in self._agents:
            events = read_events(core, core.refs.get(names.events(name)))
            marks.update(
                f"<s{body.removeprefix('step-')}>"
                for event in events
                if str(body := event.body.get("kind", "")).startswith("step-")
            )
        yield from (f"{token} was refused, but is there" for token in sorted(refused & marks.keys()))


def _marked(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """The commits of an outcome, each with the token in its message."""
    tokens = [str(words[1]) for kind, *words in outcome.facts if kind == "message"]
    commits = [str(words[1]) for kind, *words in outcome.facts if kind == "commit"]
    return zip(commits, tokens, strict=False)


def accept_store(place: Place, differs: bool) -> list[str]:
    """Check that a lost or older store is noticed, and accept it as a person does. ``differs``: it must be noticed here."""
    be_impatient(place)
    if place.world.machines > 1 and not _is_the_store(place):
        set_hub(place.root, HubTarget(str(place.hub), new_store=not place.machine), settings=place.settings()).close()
        differs = False  # it was noticed
    with place.open() as space:
        noticed = [ailment.code for ailment in space.doctor() if ailment.code.startswith("store-")]
        space.doctor(repair=True)
        again = [ailment.code for ailment in space.doctor() if ailment.code.startswith("store-")]
    problems = ["a lost or older store was not noticed"] if differs and not noticed else []
    return [*problems, *(f"a store that was accepted is {code}" for code in again)]


def _is_the_store(place: Place) -> bool:
    """Whether the store is the one that the machines of the hub share; it is not if it was lost."""
    try:
        place.open().close()
    except Conflict as err:
        if err.code != "other-store":
            raise
        return False
    return True


_IN_STEP = ("new", "ahead", "united", "gone", "published")


def meet(place: Place, expected: Expected, last: bool) -> list[str]:
    """Sync a machine with the hub. Of agents that people moved, our line gets another name. ``last``: every machine has done it."""
    be_impatient(place)
    leave_branches(place)
    with place.open() as space:
        results = space.hub.sync()
        forks = [fork.agent for fork in space.hub_status().forks]
        own = [name for name in forks if name in expected.disturbed]
        if own:
            results = space.hub.sync(forks={name: f"fork-{place.mark}-{place.machine}-{name}"[:60] for name in own})
    left = [result for result in results if result.what not in _IN_STEP and result.ref.rpartition("/")[2] not in expected.disturbed]
    return [f"sync of machine {place.machine + 1}: {result}" for result in left if last]


def can_go_on(place: Place, expected: Expected) -> list[str]:
    """Commit with every agent at work; return why some cannot."""
    be_impatient(place)
    reasons = []
    with place.open() as space:
        for name in space.agents():
            try:
                space.trace(name, "console", f"{place.token} {name}")
                space.commit_with_trace(name, "finding", changes={"after": place.token.encode()})
            except CliaError as err:
                if name not in expected.disturbed:
                    reasons.append(f"{name} cannot continue: {err.code}: {err.message}")
    return reasons
