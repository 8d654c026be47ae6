"""Federation verbs killed at every named step, and run by two processes at once."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest

import clia
from clia.errors import CliaError
from support import git
from support.crashes import CrashHook, CrashPoint, crash, crash_points, run_all
from support.federation import USUAL
from support.space_driver import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


class FederationVerb(NamedTuple):
    """A verb to kill, its side, and steps that it must reach."""

    side: str
    act: Callable[[clia.Space], object]
    steps: tuple[str, ...]


VERBS = {
    "rotate": FederationVerb("owner", lambda s: s.peers.rotate_key(), ("key-made", "committed", "objects-written")),
    "announce": FederationVerb("owner", lambda s: s.peers.announce("bee"), ("objects-written", "committed")),
    "sync": FederationVerb("hearer", lambda s: s.peers.sync("ay"), ("accepted", "transferred", "tracked")),
    "grant": FederationVerb("hearer", lambda s: s.peers.grant("ay", "session", "note"), ("objects-written", "committed")),
    "revoke": FederationVerb(
        "hearer", lambda s: s.peers.revoke("ay", "agent-commit", "head-move"), ("objects-written", "committed")
    ),
    "remove": FederationVerb("hearer", lambda s: s.peers.remove("ay"), ("secondary-refs", "tracked", "committed")),
    "add": FederationVerb("hearer", lambda s: s.peers.add("new", OTHER), ("ref-locked",)),
}
OTHER = "clia:33333333-0000-4000-8000-000000000000:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"


class SpacePair(NamedTuple):
    """Two spaces: ``owner`` has unannounced work, ``hearer`` tracks its earlier announcements."""

    root: Path

    def open(self, side: str, reached: Callable[[str], None] | None = None) -> clia.Space:
        return clia.open(self.root / side, settings=settings(reached=reached))

    def copied(self, to: Path) -> SpacePair:
        shutil.copytree(self.root, to, symlinks=True)
        with clia.open(to / "hearer", settings=settings()) as space:
            space.peers.change("ay", url=str(to / "owner"))
        return SpacePair(to)

    def refs(self, side: str, under: str) -> dict[str, str]:
        lines = git("for-each-ref", "--format=%(refname) %(objectname)", under, cwd=self.root / side).splitlines()
        return {name.removeprefix(under): cid for name, cid in map(str.split, lines)}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> SpacePair:
    place = SpacePair(tmp_path_factory.mktemp("federation"))
    with (
        clia.init(place.root / "owner", settings=settings()) as owner,
        clia.init(place.root / "hearer", settings=settings()) as hearer,
    ):
        hearer.peers.add("ay", owner.peers.key().text, str(place.root / "owner"))
        owner.peers.add("bee", hearer.peers.key().text)
        owner.peers.share("bee", agents=["*"], traces=True)
        for name in ("scout", "helper"):
            owner.spawn(name, BRIEFING)
        owner.peers.announce("bee")
        for kind, trigger in USUAL:
            hearer.peers.grant("ay", kind, trigger)
        hearer.peers.sync("ay")
        owner.trace("scout", "console", "seen")
        owner.commit_with_trace("scout", "finding", changes={"a.txt": b"1"})
        owner.peers.announce("bee")  # for the next sync
        owner.commit("helper", "finding", changes={"b.txt": b"2"})  # not announced yet
    return place


def run_verb(place: SpacePair, verb: FederationVerb, hook: CrashHook) -> None:
    """Run a verb with a crash hook."""
    with place.open(verb.side, hook) as space:
        hook.armed = True
        verb.act(space)


def crash_and_continue(place: SpacePair, name: str, point: CrashPoint) -> None:
    """Kill a verb; then both sides are sound, the verb can be repeated, and both sides converge."""
    verb = VERBS[name]
    crash(partial(run_verb, place, verb), point)
    check_sound(place)
    with place.open(verb.side) as space:
        again(space, name)
    check_sound(place)
    converge(place, name)


def again(space: clia.Space, name: str) -> None:
    """Repeat a verb that may have been applied."""
    if name == "rotate" and len(space.peers.key().chain) > 1:
        return  # and it was not announced to the peers
    if name == "remove" and not any(peer.name == "ay" for peer in space.peers()):
        return
    if name == "add" and any(peer.name == "new" for peer in space.peers()):
        return
    if name == "revoke" and not space.peers.allowed("ay", "agent-commit", "head-move"):
        return
    VERBS[name].act(space)


def check_sound(place: SpacePair) -> None:
    for side in ("owner", "hearer"):
        with place.open(side) as space:
            report = space.verify()
            assert report.clean, report.findings
            assert space.peers.key().mine


def converge(place: SpacePair, name: str) -> None:
    """The owner continues; the hearer follows as far as its grants allow, and accepts nothing twice."""
    with place.open("owner") as owner:
        owner.commit("scout", "finding", changes={"after.txt": b"after"})
        owner.peers.announce("bee")
        key = owner.peers.key()
    with place.open("hearer") as hearer:
        if name == "remove":
            assert (hearer.peers(), place.refs("hearer", "refs/clia/remotes/"), hearer.peers.grants()) == ([], {}, [])
            hearer.peers.add("ay", key.text, str(place.root / "owner"))
            for kind, trigger in USUAL:
                hearer.peers.grant("ay", kind, trigger)
        sync = hearer.peers.sync("ay")[0]
        assert {refusal.code for refusal in sync.refused} <= {"capability-denied", "revoked-key", "gap"}
        assert hearer.peers.get("ay").keys[-1] == key.key
        following = place.refs("hearer", "refs/clia/remotes/ay/agents/") == place.refs("owner", "refs/heads/agents/")
        assert following == (name != "revoke")
        assert (nothing := hearer.peers.sync("ay")[0]).accepted == 0
        assert not nothing.moves
        announced = place.refs("owner", "refs/clia/announce/").values()
        assert [*place.refs("hearer", "refs/clia/remotes/ay/announce").values()] == [*announced]
    check_sound(place)
    quarantine = place.root / "hearer/.git/clia/quarantine"
    assert not [path for path in quarantine.iterdir() if path.is_dir()]


@pytest.mark.parametrize("name", VERBS)
def test_verb_killed_at_any_step_leaves_both_spaces_sound_and_can_be_repeated(
    template: SpacePair, tmp_path: Path, name: str, soak: bool
) -> None:
    points = crash_points(partial(run_verb, template.copied(tmp_path / "alive"), VERBS[name]))
    assert {*VERBS[name].steps} <= {point.step for point in points}
    chosen = points if soak else [point for point in points if point.number == 1]
    copies = [template.copied(tmp_path / f"dead{number}") for number in range(len(chosen))]
    run_all([partial(crash_and_continue, copy, name, point) for copy, point in zip(copies, chosen, strict=True)], at_once=4)


def repeatedly(place: SpacePair, side: str, act: Callable[[clia.Space], object]) -> None:
    """Repeat a verb while another process runs it too; only clean refusals are allowed."""
    with place.open(side) as space:
        for _ in range(5):
            try:
                act(space)
            except CliaError as err:
                if err.code not in REFUSALS:
                    raise


REFUSALS = ("no-such-peer", "no-such-grant", "peer-changed")


def grant(space: clia.Space) -> None:
    space.peers.grant("ay", "session", "note")


def revoke(space: clia.Space) -> None:
    space.peers.revoke("ay", "session", "note")


def removed(space: clia.Space) -> None:
    space.peers.remove("ay")


RACES: dict[str, tuple[tuple[str, Callable[[clia.Space], object]], ...]] = {
    "two syncs": (("hearer", lambda s: s.peers.sync("ay")), ("hearer", lambda s: s.sync("ay"))),
    "sync and removal": (("hearer", lambda s: s.peers.sync("ay")), ("hearer", removed)),
    "two announcements": (("owner", lambda s: s.peers.announce("bee", snapshot=True)), ("owner", lambda s: s.announce("bee"))),
    "announcement and rotation": (
        ("owner", lambda s: s.peers.announce("bee", snapshot=True)),
        ("owner", lambda s: s.peers.rotate_key()),
    ),
    "grant and revocation": (("hearer", grant), ("hearer", revoke)),
}


@pytest.mark.parametrize("name", RACES)
def test_two_processes_at_once_end_in_a_sound_state(template: SpacePair, tmp_path: Path, name: str) -> None:
    place = template.copied(tmp_path / "race")
    run_all([partial(repeatedly, place, side, act) for side, act in RACES[name]])
    check_sound(place)
    converge(place, "remove" if name == "sync and removal" else name)
