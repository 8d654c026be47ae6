"""Sudden death at every named step of every verb of a space, and in the middle of recovering from it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia
from clia.errors import AlreadyExists, Conflict, NotFound
from clia.testing import components
from support import git
from support.crashes import FORK, CrashHook, CrashPoint, assert_killed, exit_code_of, kill_self, run_all, started
from support.space_driver import Paper, Writer, check_nothing_lost, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
BRANCH = "refs/heads/main"
ATTACHED = {"text": "attached"}
KEPT = {"type": "behaviour", "name": "kept", "kind": "prompt", "body": "Look."}


class Verb(NamedTuple):
    """A verb to die in, and how to see whether it was done."""

    agent: str
    act: Callable[[clia.Space], object]
    done: Callable[[clia.Space], bool]


class Death(NamedTuple):
    """Where a verb dies, and whether that is past the point of no return."""

    verb: Verb
    at: CrashPoint
    past: bool


class Place(NamedTuple):
    """A space, and what was acknowledged in it."""

    root: Path
    paper: Paper

    @contextmanager
    def open(self, reached: Callable[[str], None] | None = None) -> Iterator[clia.Space]:
        with clia.open(self.root, settings=settings(reached=reached)) as space:
            yield space


def resolve(space: clia.Space) -> object:
    ours, theirs = space.head("scout"), space.head("rival")
    return space.resolve("scout", "rival", changes={"README.md": b"both\n"}, ours=ours, theirs=theirs)


def tracked(space: clia.Space, ref: str) -> str:
    """What a ref holds, as stock git lists it."""
    place = components(space).options.place
    present = git("for-each-ref", ref, cwd=place)
    return git("ls-tree", "-r", "--name-only", ref, cwd=place) if present else ""


def landed(space: clia.Space) -> bool:
    """On the branch, on the agent's chain, and in the worktree that follows: all of it or nothing."""
    root = components(space).options.place
    there = "scout.txt" in tracked(space, BRANCH).split()
    assert bool(space.landings("scout")) == there
    assert os.path.exists(f"{root}/scout.txt") == there
    assert git("status", "--porcelain", cwd=root) == ""
    return there


def victims(space: clia.Space) -> bool:
    return "fresh" in space.agents() and space.briefing_of("fresh").title == "victim's"


def has_verb_file(space: clia.Space) -> bool:
    return "verb.txt" in space.files("scout")


def merged(space: clia.Space, name: str) -> bool:
    return name in space.merged_sessions("scout")


VICTIMS, CHANGES = clia.Briefing(title="victim's"), {"verb.txt": b"verb\n"}
VERBS = {
    "spawn": Verb("fresh", lambda s: s.spawn("fresh", VICTIMS), victims),
    "spawn from": Verb(
        "fresh", lambda s: s.spawn_from("fresh", VICTIMS, "scout"), lambda s: victims(s) and s.parent_agent("fresh") == "scout"
    ),
    "commit": Verb("scout", lambda s: s.commit("scout", "finding", changes=CHANGES), has_verb_file),
    "commit with trace": Verb("scout", lambda s: s.commit_with_trace("scout", "finding", changes=CHANGES), has_verb_file),
    "merge": Verb("scout", lambda s: s.merge("scout", "helper"), lambda s: merged(s, "helper")),
    "merge with conflicts": Verb(
        "scout", lambda s: s.merge("scout", "rival"), lambda s: s.last_refused("scout", "rival") is not None
    ),
    "resolve": Verb("scout", resolve, lambda s: merged(s, "rival")),
    "relate": Verb("scout", lambda s: s.reviews("scout", "rival"), lambda s: s.reviewing("scout") == ["rival"]),
    "unrelate": Verb(
        "scout",
        lambda s: s.unrelate("scout", "advises", "helper"),
        lambda s: not [each for each in s.relations("scout") if each.kind == "advises"],
    ),
    "land by fast-forward": Verb("scout", lambda s: s.land("scout", "main"), landed),
    "land by merge": Verb("scout", lambda s: s.land("scout", "main", no_ff=True), landed),
    "land by squash": Verb("scout", lambda s: s.land("scout", "main", squash=True), landed),
    "archive": Verb("scout", lambda s: s.archive("scout"), lambda s: "scout" not in s.agents()),
    "restore": Verb("old", lambda s: s.restore("old"), lambda s: "old" not in s.agents(archived=True)),
    "attach trace": Verb(
        "scout",
        lambda s: s.attach_trace(s.genesis("scout"), [ATTACHED]),
        lambda s: s.trace_for(s.genesis("scout")) is not None,
    ),
    "register type": Verb("scout", lambda s: s.register_type("review", "agent-commit"), lambda s: "review" in s.types()),
    "write": Verb("scout", lambda s: s.write(KEPT), lambda s: tracked(s, "refs/clia/objects") != ""),
}
RECORDED, TURN = CrashPoint("intent-recorded", 1), CrashPoint("committed", 1)
MOST_STEPS = 3  # of a recovery: inside a ref's lock, notes bound, finished
MOVES_ASIDE = (VERBS["archive"], VERBS["restore"])
WITH_INTENT = ("spawn", "commit with trace", "land by merge")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A space with a little of everything, to be copied."""
    home = tmp_path_factory.mktemp("template")
    root = home / "space"
    root.mkdir()
    git("init", "--quiet", "--initial-branch=main", "--template=", cwd=root)
    (root / "README.md").write_text("people\n")
    git("add", ".", cwd=root)
    git("commit", "--quiet", "--message=first", cwd=root)
    with clia.init(root, settings=settings()) as space:
        writer = Writer(space, Paper(str(home / "paper")))
        for name, path in (("scout", "scout.txt"), ("helper", "helper.txt"), ("rival", "README.md"), ("old", "old.txt")):
            space.spawn_at(name, clia.Briefing(title=name), "main")
            writer.trace(name, f"template {name} bound")
            writer.commit(name, path, f"{name}\n", with_trace=True)
        writer.commit("scout", "README.md", "scout\n")
        writer.relate("scout", "advises", "helper")
        writer.trace("scout", "template scout pending")
        space.archive("old")
    return home


def copied(template: Path, to: Path) -> Place:
    shutil.copytree(template, to, symlinks=True)
    return Place(to / "space", Paper(str(to / "paper")))


def do_and_die(place: Place, verb: Verb, hook: CrashHook) -> None:
    """Something that is acknowledged, then the verb."""
    with place.open(hook) as space:
        writer = Writer(space, place.paper)
        writer.trace("scout", "victim before")
        writer.commit("scout", "before.txt", "before\n")
        hook.armed = True
        verb.act(space)


def steps_of(place: Place, verb: Verb) -> list[CrashPoint]:
    """Every step of the verb, from a run that lives."""
    ours, theirs = FORK.Pipe(duplex=False)

    def run() -> None:
        hook = CrashHook()
        do_and_die(place, verb, hook)
        theirs.send(hook.passed)

    assert exit_code_of(run) == 0
    with place.open() as space:
        assert verb.done(space)
        check_nothing_lost(place.root, place.paper, space)
    found: list[CrashPoint] = ours.recv()
    return found


def carry_on(place: Place, verb: Verb, ready: int, go: int) -> None:
    """The second process: open before the first dies, at work on the same agent right after."""
    with place.open() as space:
        writer = Writer(space, place.paper)
        os.write(ready, b"x")
        assert os.read(go, 1) == b"x"
        for number in range(2):
            revive(writer, verb.agent)
            writer.trace(verb.agent, f"second {number}")
            writer.commit(verb.agent, "second.txt", f"second {number}\n", with_trace=True)


def revive(writer: Writer, name: str) -> None:
    """The name can be used, whatever was left of the agent."""
    if name in writer.space.agents(archived=True) and name not in writer.space.agents():
        writer.space.restore(name)
    elif name not in writer.space.agents():
        with suppress(AlreadyExists):  # it has just been finished; half-made it would have no head
            writer.spawn(name)


def deaths_of(verb: Verb, steps: list[CrashPoint]) -> list[Death]:
    turn = steps.index(TURN) if TURN in steps else len(steps)
    return [Death(verb, at, number >= turn) for number, at in enumerate(steps)]


def die(place: Place, death: Death, hook: CrashHook) -> None:
    assert_killed(lambda: do_and_die(place, death.verb, hook))


def die_beside_another(place: Place, death: Death) -> None:
    """The victim holds the agent's lock when the second process sets to work on the same agent."""
    ready, go = os.pipe(), os.pipe()
    second, said = started(lambda: carry_on(place, death.verb, ready[1], go[0]))
    assert os.read(ready[0], 1) == b"x"
    die(place, death, CrashHook(death.at, actions={1: lambda: os.write(go[1], b"x")}))
    assert said.recv() == ""
    second.join()
    with place.open() as space:
        assert space.files(death.verb.agent)["second.txt"] == b"second 1\n"
        if death.verb not in MOVES_ASIDE:  # the second process has undone those, to go on
            check_settled(place, death, space)


def die_alone(place: Place, death: Death) -> None:
    die(place, death, CrashHook(death.at))
    with place.open() as space:
        if death.verb is VERBS["commit with trace"]:
            assert bool(space.trace_pending("scout")) != death.past
        check_settled(place, death, space)


def check_settled(place: Place, death: Death, space: clia.Space) -> None:
    """Done or not begun, as the point of death says; and what was not done can be done now."""
    verb = death.verb
    check_nothing_lost(place.root, place.paper, space)
    assert verb.done(space) == death.past
    if not death.past and not (verb.agent == "fresh" and "fresh" in space.agents()):  # the second process had use for the name
        verb.act(space)
        assert verb.done(space)
        check_nothing_lost(place.root, place.paper, space)
        assert not list((place.root / ".git/refs").rglob("*.lock"))


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_killed_at_any_step_is_done_or_was_never_begun(template: Path, tmp_path: Path, name: str, soak: bool) -> None:
    verb = VERBS[name]
    steps = steps_of(copied(template, tmp_path / "alive"), verb)
    assert CrashPoint("ref-locked", 1) in steps
    ends = {"beside": die_beside_another, "alone": die_alone}
    run_all(
        [
            partial(end, copied(template, tmp_path / f"{how}{number}"), death)
            for number, death in enumerate(deaths_of(verb, steps))
            for how, end in ends.items()
            if soak or how == "beside" or verb in MOVES_ASIDE
        ],
        at_once=16,  # they mostly wait for a dead one's lock to turn out stale
    )


def recover(place: Place, hook: CrashHook) -> None:
    with place.open(hook):
        pass


def die_recovering(place: Place, death: Death, number: int, killed: Any) -> None:
    """Dies in the verb; then, twice, at a step of the recovery, where it has that many."""
    die(place, death, CrashHook(death.at))
    for _ in range(2):
        code = exit_code_of(lambda: recover(place, CrashHook(number, armed=True)))
        assert code in (-signal.SIGKILL, 0)
        with killed.get_lock():
            killed.value += code != 0
    with place.open() as space:
        check_settled(place, death, space)


@pytest.mark.parametrize("name", WITH_INTENT)
def test_a_process_killed_while_it_recovers_leaves_the_rest_to_the_next(template: Path, tmp_path: Path, name: str) -> None:
    verb = VERBS[name]
    steps = steps_of(copied(template, tmp_path / "alive"), verb)
    begun = [death for death in deaths_of(verb, steps) if steps.index(death.at) >= steps.index(RECORDED)]
    killed = FORK.Value("i", 0)
    jobs = [
        partial(die_recovering, copied(template, tmp_path / f"{'-'.join(map(str, death.at))}-{number}"), death, number, killed)
        for death in begun
        for number in range(1, MOST_STEPS + 1)
    ]
    run_all(jobs, at_once=16)
    assert killed.value >= len(begun)


class Racer:
    """Does whatever comes to its mind in a space, until it dies."""

    def __init__(self, writer: Writer, name: str, order: random.Random) -> None:
        self._writer = writer
        self._space = writer.space
        self._name = name
        self._order = order
        self._count = 0

    def live(self) -> None:
        verbs = (self._trace, self._commit, self._full, self._spawn, self._merge, self._relate, self._land, self._shelve)
        while True:
            self._count += 1
            with suppress(Conflict, NotFound):  # another was quicker
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
        verb = self._order.choice((self._space.relate, self._space.unrelate))
        verb(self._agent(), "reviews", "rival")

    def _land(self) -> None:
        self._space.land("scout", "main", squash=self._order.random() < 0.5)

    def _shelve(self) -> None:
        self._order.choice((self._space.archive, self._space.restore))("old")


def race(place: Place, name: str) -> None:
    order = random.Random(name)  # noqa: S311  # a moment to die, not a secret
    steps = order.randrange(1, 120)

    def reached(step: str) -> None:
        nonlocal steps
        steps -= 1
        if not steps:
            kill_self()

    with place.open(reached) as space:
        Racer(Writer(space, place.paper), name, order).live()


def test_racing_processes_killed_at_random_lose_and_double_nothing(template: Path, tmp_path: Path, life: int) -> None:
    """The number in the test's name is the seed."""
    place = copied(template, tmp_path / "race")
    for generation in range(2):
        racers = [FORK.Process(target=race, args=(place, f"s{life}-g{generation}-r{number}")) for number in range(4)]
        for each in racers:
            each.start()
        for each in racers:
            each.join()
        assert [each.exitcode for each in racers] == [-signal.SIGKILL] * len(racers)
        with place.open() as space:
            check_nothing_lost(place.root, place.paper, space)
            assert git("status", "--porcelain", cwd=place.root) == ""
    run_all([partial(everyone_goes_on, place)])


def everyone_goes_on(place: Place) -> None:
    with place.open() as space:
        for name in space.agents():
            space.commit_with_trace(name, "finding", changes={"after.txt": b"after\n"})
        check_nothing_lost(place.root, place.paper, space)


KINDS = ("openat", "write", "pwrite64", "fsync", "fdatasync", "rename", "link", "unlink", "ftruncate", "mkdir")
BEGIN = "/the-verb-begins"
STRACED = f"""
import os, sys
import clia
from support.space_driver import settings
space = clia.open(sys.argv[1], settings=settings(durable=True))
try:
    os.unlink("{BEGIN}")
except FileNotFoundError:
    pass
space.commit_with_trace("scout", "finding", changes={{"verb.txt": b"verb"}})
"""


def strace(place: Place, *words: str) -> int:
    """How a process ends that commits with its trace, its system calls watched."""
    environment = os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(__file__)), "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["strace", "-f", *words, sys.executable, "-c", STRACED, str(place.root)]
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode


def calls_of(place: Place, out: Path) -> dict[str, tuple[int, int]]:
    """By kind: how many calls come before the verb, and how many in all."""
    assert strace(place, "-o", str(out), "-e", f"trace={','.join(KINDS)}") == 0
    lines = out.read_text(errors="replace").splitlines()
    calls = [line.split(maxsplit=1)[1] for line in lines if "(" in line]
    begin = next(number for number, call in enumerate(calls) if BEGIN in call)
    before, whole = (Counter(call.partition("(")[0] for call in each) for each in (calls[: begin + 1], calls))
    return {kind: (before[kind], whole[kind]) for kind in KINDS if whole[kind] > before[kind]}


def die_in_call(place: Place, kind: str, number: int, killed: Any) -> None:
    code = strace(place, "-o", os.devnull, "-e", f"trace={kind}", "-e", f"inject={kind}:signal=KILL:when={number}")
    assert code in (-signal.SIGKILL, 0)
    with killed.get_lock():
        killed.value += code != 0
    verb = VERBS["commit with trace"]
    with place.open() as space:
        check_nothing_lost(place.root, place.paper, space)
        assert bool(space.trace_pending("scout")) != verb.done(space)
        space.trace("scout", "console", "after")
        space.commit_with_trace("scout", "finding", changes={"after.txt": b"after"})
        assert space.trace_pending("scout") == []
        check_nothing_lost(place.root, place.paper, space)


def test_a_commit_killed_in_any_system_call_is_done_or_was_never_begun(template: Path, tmp_path: Path, soak: bool) -> None:
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    if strace(copied(template, tmp_path / "can"), "-o", os.devnull, "-e", "inject=unlink:signal=KILL:when=1") != -signal.SIGKILL:
        pytest.skip("strace may not kill here")
    found = calls_of(copied(template, tmp_path / "alive"), tmp_path / "calls")
    assert {"openat", "rename", "fsync"} <= found.keys()
    chosen = [
        (kind, number)
        for kind, (before, whole) in found.items()
        for number in range(before + 1, whole + 1)
        if soak or number in (before + 1, (before + whole) // 2 + 1, whole)
    ]
    killed = FORK.Value("i", 0)
    places = [copied(template, tmp_path / f"{kind}{number}") for kind, number in chosen]
    run_all([partial(die_in_call, place, *call, killed) for place, call in zip(places, chosen, strict=True)])
    assert killed.value >= 0.9 * len(chosen), "calls before the verb differ a little from run to run, and no more"
