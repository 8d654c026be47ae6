"""Crashes in the verbs of a space. ``crash_at_each_point``, ``crash_each_recovery`` and ``race_twice`` fork."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import clia
from clia.errors import AlreadyExists, Conflict, NotFound
from clia.testing import components
from support import git
from support.crashes import (
    CrashCase,
    CrashHook,
    CrashPoint,
    crash,
    crash_beside,
    crash_points,
    crash_recovery,
    race_until_killed,
    run_all,
)
from support.space_driver import Paper, Writer, check_nothing_lost, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BRANCH, SIDE = "refs/heads/main", "refs/heads/side"
ATTACHED = {"text": "attached"}
KEPT = {"type": "behaviour", "name": "kept", "kind": "prompt", "body": "Look."}


class SpaceVerb(NamedTuple):
    """A verb, and how to see whether it was applied."""

    agent: str
    act: Callable[[clia.Space], object]
    done: Callable[[clia.Space], bool]


class CrashSpace(NamedTuple):
    """A space, and the paper that lists what was acknowledged in it."""

    root: Path
    paper: Paper

    @contextmanager
    def open(self, reached: Callable[[str], None] | None = None) -> Iterator[clia.Space]:
        with clia.open(self.root, settings=settings(reached=reached)) as space:
            yield space


def resolve(space: clia.Space) -> object:
    own_head, other_head = space.head("scout"), space.head("rival")
    return space.resolve("scout", "rival", changes={"README.md": b"both\n"}, ours=own_head, theirs=other_head)


def tracked(space: clia.Space, ref: str) -> str:
    """The files of a ref, as stock git lists them."""
    place = components(space).options.place
    present = git("for-each-ref", ref, cwd=place)
    return git("ls-tree", "-r", "--name-only", ref, cwd=place) if present else ""


def landed(space: clia.Space) -> bool:
    """Check that the branch, the agent's chain and the worktree are all updated or all unchanged."""
    root = components(space).options.place
    on_branch = "scout.txt" in tracked(space, BRANCH).split()
    assert bool(space.history.landings("scout")) == on_branch
    assert os.path.exists(f"{root}/scout.txt") == on_branch
    assert git("status", "--porcelain", cwd=root) == ""
    return on_branch


def is_victims(space: clia.Space) -> bool:
    return "fresh" in space.agents() and space.agents.briefing("fresh").title == "victim's"


def has_verb_file(space: clia.Space) -> bool:
    return "verb.txt" in space.files("scout")


def merged(space: clia.Space, name: str) -> bool:
    return name in space.relations.merged("scout")


def revert_landing(space: clia.Space) -> object:
    (landing,) = space.history.landings("helper")
    body = {**landing, "event": "landing-undone", "agent": "helper"}
    return components(space).reverts.revert_on_branch(SIDE, (landing["base"], landing["cid"]), body)


def landing_is_reverted(space: clia.Space) -> bool:
    """Check that the branch and the agent's chain are both updated or both unchanged."""
    is_reverted = "helper.txt" not in tracked(space, SIDE).split()
    assert (space.history.landings("helper") == []) == is_reverted
    return is_reverted


def renamed(space: clia.Space) -> bool:
    """Check that both names, the pending trace and the relations changed together."""
    is_renamed = "scout" not in space.agents()
    if is_renamed:
        assert "scout" in space.agents(archived=True)
        assert space.find("scout") == space.head("fresh")
        assert ("fresh", "advises", "helper") in [edge[:3] for edge in space.relations("fresh")]
    return is_renamed


VICTIMS, CHANGES = clia.Briefing(title="victim's"), {"verb.txt": b"verb\n"}
VERBS = {
    "spawn": SpaceVerb("fresh", lambda s: s.spawn("fresh", VICTIMS), is_victims),
    "spawn from": SpaceVerb(
        "fresh",
        lambda s: s.spawn_from("fresh", VICTIMS, "scout"),
        lambda s: is_victims(s) and s.relations.parent("fresh") == "scout",
    ),
    "commit": SpaceVerb("scout", lambda s: s.commit("scout", "finding", changes=CHANGES), has_verb_file),
    "commit with trace": SpaceVerb("scout", lambda s: s.commit_with_trace("scout", "finding", changes=CHANGES), has_verb_file),
    "merge": SpaceVerb("scout", lambda s: s.merge("scout", "helper"), lambda s: merged(s, "helper")),
    "merge with conflicts": SpaceVerb(
        "scout", lambda s: s.merge("scout", "rival"), lambda s: s.history.last_refused("scout", "rival") is not None
    ),
    "resolve": SpaceVerb("scout", resolve, lambda s: merged(s, "rival")),
    "relate": SpaceVerb(
        "scout", lambda s: s.relations.add_review("scout", "rival"), lambda s: s.relations.reviewing("scout") == ["rival"]
    ),
    "unrelate": SpaceVerb(
        "scout",
        lambda s: s.relations.retract("scout", "advises", "helper"),
        lambda s: not [edge for edge in s.relations("scout") if edge.kind == "advises"],
    ),
    "land by fast-forward": SpaceVerb("scout", lambda s: s.land("scout", "main"), landed),
    "land by merge": SpaceVerb("scout", lambda s: s.land("scout", "main", no_ff=True), landed),
    "land by squash": SpaceVerb("scout", lambda s: s.land("scout", "main", squash=True), landed),
    "archive": SpaceVerb("scout", lambda s: s.agents.archive("scout"), lambda s: "scout" not in s.agents()),
    "restore": SpaceVerb("old", lambda s: s.agents.restore("old"), lambda s: "old" not in s.agents(archived=True)),
    "rename": SpaceVerb("fresh", lambda s: s.agents.rename("scout", "fresh"), renamed),
    "delete": SpaceVerb("idle", lambda s: s.agents.delete("idle"), lambda s: "idle" not in s.agents()),
    "undo a commit": SpaceVerb("scout", lambda s: s.undoing.undo(), lambda s: "before.txt" not in s.files("scout")),
    "undo a landing": SpaceVerb("helper", revert_landing, landing_is_reverted),
    "attach trace": SpaceVerb(
        "scout",
        lambda s: s.traces.attach(s.agents.genesis("scout"), [ATTACHED]),
        lambda s: s.traces.of(s.agents.genesis("scout")) is not None,
    ),
    "register type": SpaceVerb("scout", lambda s: s.types.register("review", "agent-commit"), lambda s: "review" in s.types()),
    "write": SpaceVerb("scout", lambda s: s.types.write(KEPT), lambda s: tracked(s, "refs/clia/objects") != ""),
}
INTENT, COMMITTED, LOGGING = (CrashPoint(step, 1) for step in ("intent-recorded", "committed", "log-locked"))
MOST_STEPS = 3  # of a recovery: inside a ref's lock, notes bound, finished
MOST_RACE_STEPS = 120
MOVES_ASIDE = (VERBS["archive"], VERBS["restore"], VERBS["delete"], VERBS["undo a commit"])
ALONE = (VERBS["delete"],)
"""Verbs that are refused once a second process works on the agent."""
WITH_INTENT = ("spawn", "commit with trace", "land by merge", "rename", "delete", "undo a landing")


def make_template(home: str) -> None:
    """A space with some of everything, as a template."""
    root = Path(home, "space")
    root.mkdir(parents=True)
    git("init", "--quiet", "--initial-branch=main", "--template=", cwd=root)
    (root / "README.md").write_text("people\n")
    git("add", ".", cwd=root)
    git("commit", "--quiet", "--message=first", cwd=root)
    with clia.init(root, settings=settings()) as space:
        writer = Writer(space, Paper(f"{home}/paper"))
        for name, path in (("scout", "scout.txt"), ("helper", "helper.txt"), ("rival", "README.md"), ("old", "old.txt")):
            space.spawn_at(name, clia.Briefing(title=name), "main")
            writer.trace(name, f"template {name} bound")
            writer.commit(name, path, f"{name}\n", with_trace=True)
        git("branch", "side", cwd=root)
        space.land("helper", "side")
        space.spawn("idle", clia.Briefing(title="idle"))
        writer.commit("scout", "README.md", "scout\n")
        writer.relate("scout", "advises", "helper")
        writer.trace("scout", "template scout pending")
        space.agents.archive("old")


def copied(template: str, to: Path) -> CrashSpace:
    shutil.copytree(template, to, symlinks=True)
    return CrashSpace(to / "space", Paper(str(to / "paper")))


def run_verb(place: CrashSpace, verb: SpaceVerb, hook: CrashHook) -> None:
    """The driver: acknowledged work first, then the verb."""
    with place.open(hook) as space:
        writer = Writer(space, place.paper)
        writer.trace("scout", "victim before")
        writer.commit("scout", "before.txt", "before\n")
        hook.armed = True
        verb.act(space)


def points_of(place: CrashSpace, verb: SpaceVerb) -> list[CrashPoint]:
    """The crash points of a verb, from a run to its end, which is checked."""
    points = crash_points(partial(run_verb, place, verb))
    with place.open() as space:
        assert verb.done(space)
        check_nothing_lost(place.root, place.paper, space)
    return points


def crashes_of(verb: SpaceVerb, points: list[CrashPoint]) -> list[CrashCase[SpaceVerb]]:
    turn = next((points.index(point) for point in (COMMITTED, LOGGING) if point in points), len(points))
    return [CrashCase(verb, point, number >= turn) for number, point in enumerate(points)]


def run_second(place: CrashSpace, verb: SpaceVerb, wait: Callable[[], None]) -> None:
    """The second process: opens the space before the first is killed, and uses the same agent right after."""
    with place.open() as space:
        writer = Writer(space, place.paper)
        wait()
        for number in range(2):
            revive(writer, verb.agent)
            writer.trace(verb.agent, f"second {number}")
            writer.commit(verb.agent, "second.txt", f"second {number}\n", with_trace=True)


def revive(writer: Writer, name: str) -> None:
    """Make the name usable again after any crash."""
    if name in writer.space.agents(archived=True) and name not in writer.space.agents():
        writer.space.agents.restore(name)
    elif name not in writer.space.agents():
        with suppress(AlreadyExists):  # it is complete; an incomplete agent would have no head
            writer.spawn(name)


def crash_beside_another(place: CrashSpace, case: CrashCase[SpaceVerb]) -> None:
    """The victim holds the agent's lock when the second process starts to work on the same agent."""
    crash_beside(partial(run_verb, place, case.verb), case.at, partial(run_second, place, case.verb), 1)
    with place.open() as space:
        assert space.files(case.verb.agent)["second.txt"] == b"second 1\n"
        if case.verb not in MOVES_ASIDE:  # the second process had to undo those, or did something later
            check_settled(place, case, space)


def crash_alone(place: CrashSpace, case: CrashCase[SpaceVerb]) -> None:
    crash(partial(run_verb, place, case.verb), case.at)
    with place.open() as space:
        if case.verb is VERBS["commit with trace"]:
            assert bool(space.traces.pending("scout")) != case.past
        check_settled(place, case, space)


def check_settled(place: CrashSpace, case: CrashCase[SpaceVerb], space: clia.Space) -> None:
    """Check that the verb was applied or not, depending on the crash point, and can be applied now otherwise."""
    verb = case.verb
    check_nothing_lost(place.root, place.paper, space)
    assert verb.done(space) == case.past
    if not case.past and not (verb.agent == "fresh" and "fresh" in space.agents()):  # the second process used the name
        verb.act(space)
        assert verb.done(space)
        check_nothing_lost(place.root, place.paper, space)
        assert not list((place.root / ".git/refs").rglob("*.lock"))
    findings = space.trust.verify().findings
    assert findings == (), f"each move that happened has one entry in the log: {findings}"


def crash_at_each_point(template: str, to: str, name: str, everything: bool) -> None:
    """Kill a verb at each of its crash points, each time in a copy of the space, while another process waits.

    ``everything``: also without another process, and not only the first time that a step is reached.
    """
    verb = VERBS[name]
    points = points_of(copied(template, Path(to, "alive")), verb)
    assert CrashPoint("ref-locked", 1) in points
    ways = {"beside": crash_beside_another, "alone": crash_alone}
    jobs = [
        partial(way, copied(template, Path(to, f"{way_name}{number}")), case)
        for number, case in enumerate(crashes_of(verb, points))
        for way_name, way in ways.items()
        if everything or (case.at.number == 1 and (way_name == "beside" or verb in MOVES_ASIDE))
        # The second process would look for an agent that the first one has just put aside.
        if not (way_name == "beside" and ((verb in MOVES_ASIDE and case.past) or verb in ALONE))
    ]
    run_all(jobs, at_once=16)  # most of them wait until the lock of a killed process is stale


def recover(place: CrashSpace, hook: CrashHook) -> None:
    with place.open(hook):
        pass


def crash_recovering(place: CrashSpace, case: CrashCase[SpaceVerb], number: int) -> int:
    """Kill the verb, then its recovery at the nth crash point, if it has that many; return how many recoveries were killed."""
    killed = crash_recovery(partial(run_verb, place, case.verb), case.at, partial(recover, place), number)
    with place.open() as space:
        check_settled(place, case, space)
    return killed


def crash_each_recovery(template: str, to: str, name: str, everything: bool) -> None:
    """Kill a verb at each crash point from its intent on, and then its recovery at each crash point."""
    verb = VERBS[name]
    points = points_of(copied(template, Path(to, "alive")), verb)
    cases = [case for case in crashes_of(verb, points) if points.index(case.at) >= points.index(INTENT)]
    cases = [case for case in cases if everything or case.at.number == 1]
    jobs = [
        partial(crash_recovering, copied(template, Path(to, f"{'-'.join(map(str, case.at))}-{number}")), case, number)
        for case in cases
        for number in range(1, MOST_STEPS + 1)
    ]
    assert sum(run_all(jobs, at_once=16)) >= len(cases)


class VerbRacer:
    """Runs random verbs until its process is killed."""

    def __init__(self, writer: Writer, name: str, order: random.Random) -> None:
        self._writer = writer
        self._space = writer.space
        self._name = name
        self._order = order
        self._count = 0

    def run(self) -> None:
        verbs = (self._trace, self._commit, self._full, self._spawn, self._merge, self._relate, self._land, self._shelve)
        while True:
            self._count += 1
            with suppress(Conflict, NotFound):  # another process was first
                self._order.choice(verbs)()

    def _agent(self) -> str:
        return self._order.choice(("scout", "helper"))

    def _text(self) -> str:
        return f"{self._name} {self._count}"

    def _trace(self) -> None:
        self._writer.trace(self._agent(), self._text())

    def _commit(self) -> None:
        self._writer.commit(self._agent(), f"{self._name}.txt", self._text(), with_trace=self._order.random() < 0.7)

    def _full(self) -> None:
        name = self._agent()
        self._writer.commit(name, f"{self._name}.txt", self._text(), base=self._space.head(name))

    def _spawn(self) -> None:
        self._writer.spawn(f"{self._name}-{self._count}", self._order.choice(("scout", None)))

    def _merge(self) -> None:
        self._writer.merge(*self._order.choice((("scout", "helper"), ("helper", "scout"))))

    def _relate(self) -> None:
        verb = self._order.choice((self._space.relate, self._space.relations.retract))
        verb(self._agent(), "reviews", "rival")

    def _land(self) -> None:
        self._space.land("scout", "main", squash=self._order.random() < 0.5)

    def _shelve(self) -> None:
        self._order.choice((self._space.agents.archive, self._space.agents.restore))("old")


def race(place: CrashSpace, name: str, hook: CrashHook) -> None:
    with place.open(hook) as space:
        VerbRacer(Writer(space, place.paper), name, random.Random(name)).run()  # noqa: S311  # not a secret


def race_twice(template: str, to: str, seed: int) -> None:
    """Two generations of racers; after each, nothing is lost or duplicated, and in the end every agent can continue."""
    place = copied(template, Path(to))
    for generation in range(2):
        names = [f"s{seed}-g{generation}-r{number}" for number in range(4)]
        race_until_killed(partial(race, place), names, MOST_RACE_STEPS)
        with place.open() as space:
            check_nothing_lost(place.root, place.paper, space)
            assert git("status", "--porcelain", cwd=place.root) == ""
    with place.open() as space:
        for name in space.agents():
            space.commit_with_trace(name, "finding", changes={"after.txt": b"after\n"})
        check_nothing_lost(place.root, place.paper, space)
