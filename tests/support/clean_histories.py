"""Random histories without any fault or forgery, of verbs only: `verify` must find nothing in them.

A seed determines a world and its steps. In every world agents are spawned, commit, merge, land, ask, fork, are archived and have
their traces purged; keys are rotated, enrolled and revoked. A world may have two machines that meet at a hub, a peer that it
exchanges agents with, and people who prove their decisions with keys of their own. A person works on `main` with plain git.
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import clia
from clia.errors import CliaError
from clia.facade.backends import connect
from clia.trust.ssh_signatures import CLIA, signer_of
from clia.trust.statements import StatementProof
from clia.trust.verification import verify_trust
from support import git
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from clia.trust.statements import EnrolledKey, PersonalStatement

STEPS = 24
PERSON = "Tess <tess@example.org>"
_AGENTS_MAX = 9
_FLOW = """\
def main(input):
    while True:
        answer = request("human", {"question": f"Go on with {input}?"})
        if answer == "stop":
            return "done"
        request("commit", {"changes": {"flow.txt": f"{input} {answer}\\n"}, "message": f"A step: {answer}"})
"""
_GRANTS = (
    ("agent-commit", "spawn"),
    ("agent-commit", "head-move"),
    ("agent-commit", "merge"),
    ("briefing", "spawn"),
    ("console-trace", "note"),
)


class CleanHistory:
    """One history. ``play`` makes it, ``findings`` checks every repository of it, in place and in clones."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  # repeatable, not secret
        self.root = root
        self.has_hub, self.has_peer, self.has_person = (self.random.random() < share for share in (0.4, 0.35, 0.4))
        self.log: list[str] = []
        self.done = Counter[str]()
        self.number = 0
        self._person = signer_of(bytes([self.random.randrange(256) for _ in range(32)]))
        self._stack = ExitStack()

    def play(self, steps: int = STEPS) -> None:
        """Make the history. A refusal is an outcome like any other; other errors are not caught. A step that has nothing to act on
        does not count.
        """
        with self._stack:
            self._start()
            weights = {name: weight for name, (_, weight) in STEPS_OF_HISTORIES.items()}
            taken = 0
            while taken < steps:
                name = self.random.choices(list(weights), list(weights.values()))[0]
                space = self.random.choice(self.spaces)
                self.number += 1
                try:
                    STEPS_OF_HISTORIES[name][0](self, space)
                except _NothingToDo:
                    continue
                except CliaError as err:
                    self.log.append(f"{self.number} {name}: {err.code}")
                else:
                    self.done[name] += 1
                    self.log.append(f"{self.number} {name} on {self.places[self.spaces.index(space)].name}")
                taken += 1
            self._finish()

    def findings(self) -> list[str]:
        """What the checks report about the repositories and about clones of them."""
        reports: list[str] = []
        everywhere = [*self.places, *([self.root / "peer"] if self.has_peer else [])]
        for place in everywhere:
            with clia.open(place, settings=settings()) as space:
                report = space.verify()
                reports += [f"{place.name}: {finding.code}: {finding.message}" for finding in report.findings]
                trust = space.trust.verify()
                reports += [f"{place.name}: {finding.code}: {finding.message}" for finding in trust.findings]
                assert trust.commits
                assert trust.signers
        for source in (*everywhere, *([self.root / "hub.git"] if self.has_hub else [])):
            place = self.root / f"clone-of-{source.name}"
            git("clone", "-q", "--bare", str(source), str(place), cwd=self.root)
            git("fetch", "-q", "origin", "+refs/*:refs/*", cwd=place)
            archive = source / ".git" / "clia" / "archive.git"
            if archive.exists():  # refs of idle agents, which a fetch does not see; others have newer values already
                away = _refs_of(archive) - _refs_of(place)
                for ref in sorted(away):
                    git("push", "-q", str(place), f"{ref}:{ref}", cwd=archive)
            trust = verify_trust(connect(str(place), settings()))
            reports += [f"{place.name}: {finding.code}: {finding.message}" for finding in trust.findings]
        return reports

    # The world

    def _start(self) -> None:
        self.places = [self.root / "one"]
        hub = self.root / "hub.git"
        if self.has_hub:
            git("init", "-q", "--bare", str(hub), cwd=self.root)
        self.spaces = [self._new("one", str(hub) if self.has_hub else None)]
        first = self.spaces[0]
        place = self.places[0]
        (place / "file.txt").write_text("".join(f"line {number}\n" for number in range(8)))
        git("add", ".", cwd=place)
        git("commit", "-q", "-m", "Start", cwd=place)
        first.spawn_at("scout", clia.Briefing("Look around"), "HEAD")
        first.sessions.define("flow", _FLOW)
        if self.has_hub:
            first.hub.sync()
            second = self._new("two", str(hub))
            first.trust.enrol("laptop", second.trust.statements.machine.make().text, "machine")
            first.hub.sync()
            second.hub.sync()
            self.places.append(self.root / "two")
            self.spaces.append(second)
        if self.has_person:
            first.trust.enrol(PERSON, self._person.public.text)
            self._sync()
        if self.has_peer:
            self._meet_peer()

    def _new(self, name: str, hub: str | None = None) -> clia.Space:
        place = self.root / name
        git("init", "-q", "-b", "main", str(place), cwd=self.root)
        chosen = settings(prove=self._prove)
        return self._stack.enter_context(clia.init(place, settings=chosen, hub=hub))

    def _prove(self, statement: PersonalStatement, keys: Sequence[EnrolledKey]) -> Sequence[StatementProof]:
        """Prove as the person, once their key is enrolled."""
        own = self._person.public.fingerprint
        if own not in {key.fingerprint for key in keys}:
            return ()
        return [StatementProof("ssh", own, {"signature": self._person.sign(statement.data(), CLIA)})]

    def _meet_peer(self) -> None:
        first, peer = self.spaces[0], self._new("peer")
        self.peer = peer
        peer.spawn("rover", clia.Briefing("Drive"))
        for one, other, name, place in ((first, peer, "peer", self.root / "peer"), (peer, first, "us", self.places[0])):
            one.peers.add(name, other.peers.key().text, str(place))
            one.peers.share(name, agents=["*"], traces=True, behaviours=["*"])
            for type_, trigger in _GRANTS:
                one.peers.grant(name, type_, trigger)

    def _sync(self) -> None:
        for space in self.spaces if self.has_hub else ():
            space.hub.sync()

    def _finish(self) -> None:
        """Bring all machines of a hub to the same state."""
        for _ in range(2):
            self._sync()

    # What steps choose from

    @property
    def text(self) -> str:
        return f"<{self.number}>"

    def agent(self, space: clia.Space) -> str:
        return self.one_of(sorted(space.agents()))

    def one_of(self, choices: Sequence[str]) -> str:
        if not choices:
            raise _NothingToDo
        return self.random.choice(choices)

    def new_agent(self, space: clia.Space) -> str:
        if len(space.agents()) >= _AGENTS_MAX:
            raise _NothingToDo
        return f"agent-{self.number}"

    def changes(self) -> dict[str, bytes | None]:
        paths = ("file.txt", "a.txt", f"new-{self.number}.txt")
        return {self.random.choice(paths): f"{self.text}\n".encode() * self.random.randrange(1, 4)}


def _refs_of(repository: Path) -> set[str]:
    return set(git("for-each-ref", "--format=%(refname)", cwd=repository).split())


class _NothingToDo(Exception):
    """The history has nothing that a step could act on."""


def _spawn(history: CleanHistory, space: clia.Space) -> None:
    name, briefing, way = history.new_agent(space), clia.Briefing(history.text), history.random.randrange(3)
    if way == 0:
        space.spawn(name, briefing)
    elif way == 1:
        space.spawn_at(name, briefing, "main")
    else:
        space.spawn_from(name, briefing, history.agent(space))


def _commit(history: CleanHistory, space: clia.Space) -> None:
    name = history.agent(space)
    if history.random.random() < 0.6:
        space.trace(name, "console", f"{history.text} the secret of {name}")
        space.commit_with_trace(name, "finding", changes=history.changes(), message=history.text)
    else:
        space.commit(name, "test", changes=history.changes(), message=history.text)


def _trace(history: CleanHistory, space: clia.Space) -> None:
    space.trace(history.agent(space), "note", f"{history.text} the secret of somebody")


def _attach(history: CleanHistory, space: clia.Space) -> None:
    name = history.agent(space)
    commits = [commit.cid for commit in space.history.own(name) if commit.kind not in (None, "spawn")]
    space.traces.attach(history.one_of(commits), [{"kind": "note", "text": history.text}])


def _purge(history: CleanHistory, space: clia.Space) -> None:
    hits = sorted({hit.agent for hit in space.traces.search("secret")})
    space.traces.purge(history.one_of(hits), "the secret")


def _merge(history: CleanHistory, space: clia.Space) -> None:
    into, other = history.agent(space), history.agent(space)
    if history.has_peer and history.random.random() < 0.4:
        other = history.one_of([f"{remote.peer}/{remote.agent}" for remote in space.peers.remotes()])
    outcome = space.merge(into, other, message=history.text)
    if isinstance(outcome, clia.Conflicts):
        changes: dict[str, bytes | None] = {path.path: f"{history.text}\n".encode() for path in outcome.paths}
        space.resolve(into, other, changes=changes, ours=outcome.ours, theirs=outcome.theirs, message=history.text)


def _land(history: CleanHistory, space: clia.Space) -> None:
    form = history.random.choice(("squash", "merge", "rebase", "ff"))
    space.land(history.agent(space), "main", how=form if form in ("squash", "merge") else None)


def _work_of_a_person(history: CleanHistory, space: clia.Space) -> None:
    place = history.places[history.spaces.index(space)]
    git("reset", "-q", "--hard", cwd=place)
    (place / "people.txt").write_text(f"{history.text}\n")
    git("add", ".", cwd=place)
    git("commit", "-q", "-m", f"By hand {history.text}", cwd=place)


def _ask(history: CleanHistory, space: clia.Space) -> None:
    space.sessions.ask(history.agent(space), {"question": f"{history.text}?"})


def _start(history: CleanHistory, space: clia.Space) -> None:
    space.sessions.start(history.agent(space), "flow", history.text)


def _answer(history: CleanHistory, space: clia.Space) -> None:
    requests = {f"{request.agent} {request.id}": request for request in space.sessions.pending()}
    request = requests[history.one_of(sorted(requests))]
    if request.kind == "human":
        value = history.random.choice(("stop", "go", {"text": history.text}, "", 3))
        space.sessions.decide(request.agent, value, history.text, request_id=request.id)
    else:
        space.sessions.resume(request.agent, space.commit(request.agent, "finding", changes=history.changes()), request.id)


def _fork(history: CleanHistory, space: clia.Space) -> None:
    live = [session.agent for session in space.sessions(live=True) if not session.id.startswith("ask")]
    space.sessions.fork(history.one_of(sorted(live)), history.new_agent(space))


def _cancel(history: CleanHistory, space: clia.Space) -> None:
    live = sorted((session.agent, session.id) for session in space.sessions(live=True))
    agent, _, session = history.one_of([f"{agent} {session}" for agent, session in live]).partition(" ")
    space.sessions.cancel(agent, session_id=session)


def _archive(history: CleanHistory, space: clia.Space) -> None:
    space.agents.archive(history.agent(space))


def _restore(history: CleanHistory, space: clia.Space) -> None:
    space.agents.restore(history.one_of(sorted(space.agents(archived=True))))


def _relate(history: CleanHistory, space: clia.Space) -> None:
    edges = sorted(edge[:3] for edge in space.relations() if edge.kind.startswith("step-"))
    if edges and history.random.random() < 0.4:
        space.relations.retract(*history.random.choice(edges))
    else:
        space.relations.add(history.agent(space), f"step-{history.random.randrange(3)}", history.agent(space))


def _behave(history: CleanHistory, space: clia.Space) -> None:
    way = history.random.randrange(4)
    if way == 0:
        space.behaviours.add("prompt", f"Look at {history.text}.", "prompt")
    elif way == 1:
        space.behaviours.propose("prompt", f"Look again at {history.text}.", "prompt")
    elif way == 2:
        space.behaviours.adopt(
            "prompt", history.one_of(sorted(version.cid for version in space.behaviours.get("prompt").versions)), why=history.text
        )
    else:
        space.behaviours.retire("prompt", why=history.text)


def _register(history: CleanHistory, space: clia.Space) -> None:
    space.types.register(f"kind-{history.number}", "agent-commit")


def _rotate_machine(history: CleanHistory, space: clia.Space) -> None:
    space.trust.rotate_machine()


def _rotate_space(history: CleanHistory, space: clia.Space) -> None:
    space.peers.rotate_key()


def _enrol(history: CleanHistory, space: clia.Space) -> None:
    """Enrol a witness or another machine; sometimes revoke one that did nothing."""
    idle = [key.fingerprint for key in space.trust.keys().keys if key.current and key.owner.startswith("idle")]
    if idle and history.random.random() < 0.5:
        space.trust.revoke(history.random.choice(idle), history.text)
        return
    key = signer_of(bytes([history.random.randrange(256) for _ in range(32)])).public.text
    space.trust.enrol(f"idle-{history.number}", key, history.random.choice(("machine", "witness")))


def _maintain(history: CleanHistory, space: clia.Space) -> None:
    space.maintain(archive_idle_days=history.random.choice((None, None, 0)))


def _put_away(history: CleanHistory, space: clia.Space) -> None:
    if history.random.random() < 0.5:
        space.local.put_away([history.agent(space)])
    else:
        space.local.upkeep()


def _relink(history: CleanHistory, space: clia.Space) -> None:
    space.traces.relink()


def _rebuild(history: CleanHistory, space: clia.Space) -> None:
    space.rebuild()


def _hub(history: CleanHistory, space: clia.Space) -> None:
    if not history.has_hub:
        raise _NothingToDo
    space.hub.sync()


def _claim(history: CleanHistory, space: clia.Space) -> None:
    """Claim an agent that no session runs: its sessions would go on at the other machine, too."""
    name = history.agent(space)
    if any(machine.sessions(name) for machine in history.spaces if name in machine.agents()):
        raise _NothingToDo
    space.agents.claim(name)


def _federate(history: CleanHistory, space: clia.Space) -> None:
    if not history.has_peer:
        raise _NothingToDo
    first, peer, way = history.spaces[0], history.peer, history.random.randrange(4)
    if way == 0:
        peer.commit("rover", "finding", changes=history.changes(), message=history.text)
    elif way == 1:
        peer.peers.announce()
        first.peers.sync("peer")
    elif way == 2:
        first.peers.announce()
        peer.peers.sync("us")
    else:
        peer.merge("rover", history.one_of([f"{remote.peer}/{remote.agent}" for remote in peer.peers.remotes()]))


STEPS_OF_HISTORIES: dict[str, tuple[Callable[[CleanHistory, clia.Space], None], int]] = {
    "commit": (_commit, 12),
    "spawn": (_spawn, 5),
    "merge": (_merge, 5),
    "land": (_land, 5),
    "work of a person": (_work_of_a_person, 3),
    "trace": (_trace, 2),
    "attach": (_attach, 1),
    "purge": (_purge, 3),
    "ask": (_ask, 3),
    "start": (_start, 3),
    "answer": (_answer, 8),
    "fork": (_fork, 3),
    "cancel": (_cancel, 1),
    "archive": (_archive, 2),
    "restore": (_restore, 2),
    "relate": (_relate, 2),
    "behave": (_behave, 3),
    "register": (_register, 1),
    "rotate machine": (_rotate_machine, 3),
    "rotate space": (_rotate_space, 2),
    "enrol": (_enrol, 3),
    "maintain": (_maintain, 1),
    "put away": (_put_away, 2),
    "relink": (_relink, 1),
    "rebuild": (_rebuild, 1),
    "hub": (_hub, 6),
    "claim": (_claim, 1),
    "federate": (_federate, 5),
}
"""The steps, and how often each comes."""


class PlayedHistories(NamedTuple):
    """The outcome of several histories."""

    findings: list[str]
    done: Counter[str]


def play_histories(root: Path, seeds: Sequence[int]) -> PlayedHistories:
    """Play and check histories; each finding names its seed and the last steps before it."""
    findings: list[str] = []
    done = Counter[str]()
    for seed in seeds:
        place = root / str(seed)
        place.mkdir()
        history = CleanHistory(place, seed)
        history.play()
        findings += [f"seed {seed}: {finding}\n  " + "\n  ".join(history.log) for finding in history.findings()]
        done += history.done
        shutil.rmtree(place)
    return PlayedHistories(findings, done)
