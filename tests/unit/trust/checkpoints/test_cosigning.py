"""Witnesses of a space: in a clone, over a remote, and at a hub that goes back to an older copy."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import Conflict, NotFound
from clia.facade.backends import connect
from clia.testing import Crash, Settings, crash_at
from clia.trust.checkpoints import cosigning, exchange, witnesses
from clia.trust.verification import verify_trust
from support.witnesses import SETTINGS, WitnessForTests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clia.trust.verification import TrustReport


def git(directory: Path, *words: str, data: str | None = None) -> str:
    done = subprocess.run(["git", *words], cwd=directory, input=data, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def checked(place: Path, *, strict: bool = True, since: str | None = None, keys: tuple[str, ...] = ()) -> TrustReport:
    return verify_trust(connect(str(place), SETTINGS), strict=strict, since=since, witnesses=keys, now=2_000_000_000)


def codes(report: TrustReport) -> set[str]:
    return {finding.code for finding in report.findings}


def stranger(source: Path, name: str) -> Path:
    place = source.parent / name
    git(source.parent, "clone", "-q", "--bare", str(source), str(place))
    git(place, "fetch", "-q", "origin", "+refs/*:refs/*")
    return place


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "--bare", str(tmp_path / "remote.git"))
    return tmp_path / "remote.git"


@pytest.fixture
def space(tmp_path: Path, remote: Path) -> Iterator[clia.Space]:
    with clia.init(tmp_path / "project", settings=SETTINGS) as opened:
        git(tmp_path / "project", "remote", "add", "origin", str(remote))
        opened.spawn("scout", clia.Briefing("look"))
        yield opened


def test_a_stranger_sees_who_cosigned_and_how_old_it_is(space: clia.Space, tmp_path: Path, remote: Path) -> None:
    witness = WitnessForTests.created(tmp_path / "witness").trusted_by(space)
    space.publish(["scout"])
    ci = stranger(remote, "ci")
    assert codes(checked(ci)) == {"no-cosigned-checkpoint"}
    cosigned = witness.cosign(ci, root=space.trust.keys().root, push="origin")
    assert [(item.state, item.size) for item in cosigned.checkpoints] == [("cosigned", 1)]
    report = checked(stranger(remote, "later"))
    assert report.findings == ()
    state = report.checkpoints
    assert (state.cosigned, state.witnesses, state.machines) == (cosigned.checkpoints[0].checkpoint, ("w.example",), 1)
    assert state.age == 2_000_000_000 - (state.cosigned_at or 0)
    space.publish(["scout"])
    assert space.witnesses.list().checkpoints[0].witnesses == ("w.example",)


def test_only_trusted_witnesses_count(space: clia.Space, tmp_path: Path) -> None:
    place = tmp_path / "project"
    witness = WitnessForTests.created(tmp_path / "witness")
    space.witnesses.checkpoint()
    witness.cosign(place)
    assert codes(checked(place)) == {"no-cosigned-checkpoint"}
    assert codes(checked(place, keys=(witness.key.text,))) == set()
    witness.trusted_by(space).cosign(place)
    fingerprint = space.witnesses.list().witnesses[0].fingerprint
    assert codes(checked(place)) == set()
    space.trust.revoke(fingerprint)
    assert codes(checked(place)) == {"no-cosigned-checkpoint"}


def test_a_forged_cosignature_is_a_finding(space: clia.Space, tmp_path: Path) -> None:
    place = tmp_path / "project"
    WitnessForTests.created(tmp_path / "witness").trusted_by(space).cosign(place)
    space.witnesses.checkpoint()
    witness = WitnessForTests.created(tmp_path / "witness")
    witness.cosign(place)
    ref = git(place, "for-each-ref", "--format=%(refname)", "refs/clia/cosignatures/")
    name = git(place, "ls-tree", "--name-only", ref)
    text = git(place, "show", f"{ref}:{name}") + "\n"
    forged = text.replace(text[-10:-3], "AAAAAAA")
    blob = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], cwd=place, input=forged, capture_output=True, text=True, check=True
    )
    line = f"100644 blob {blob.stdout.strip()}\t{name}\n"
    tree = subprocess.run(["git", "mktree"], cwd=place, input=line, capture_output=True, text=True, check=True).stdout.strip()
    git(place, "update-ref", ref, git(place, "commit-tree", "-m", "x", tree))
    assert "forged-cosignature" in codes(checked(place))


def test_a_witness_refuses_an_older_or_another_history(space: clia.Space, tmp_path: Path) -> None:
    place, old = tmp_path / "project", tmp_path / "old"
    witness = WitnessForTests.created(tmp_path / "witness").trusted_by(space)
    space.witnesses.checkpoint()
    shutil.copytree(place, old, symlinks=True)
    space.commit("scout", "finding", {"a": b"1"})
    space.witnesses.checkpoint()
    assert witness.cosign(place).checkpoints[0].state == "cosigned"
    refused = witness.cosign(old).checkpoints[0]
    assert (refused.state, refused.reason) == ("refused", "it is older than checkpoint 2, which this witness cosigned")
    with clia.open(old, settings=SETTINGS) as copy:
        copy.commit("scout", "finding", {"b": b"1"})
        copy.witnesses.checkpoint()
    refused = witness.cosign(old).checkpoints[0]
    assert refused.state == "refused"
    assert "there are two histories" in refused.reason
    git(old, "update-ref", "-d", git(old, "for-each-ref", "--format=%(refname)", "refs/clia/cosignatures/"))
    assert "does not extend" in witness.cosign(old).checkpoints[0].reason
    assert witness.cosign(place).checkpoints[0].state == "cosigned"


def test_a_witness_without_its_state_remembers_from_its_ref(space: clia.Space, tmp_path: Path) -> None:
    place, old = tmp_path / "project", tmp_path / "old"
    witness = WitnessForTests.created(tmp_path / "witness").trusted_by(space)
    space.witnesses.checkpoint()
    shutil.copytree(place, old, symlinks=True)
    space.commit("scout", "finding", {"a": b"1"})
    space.witnesses.checkpoint()
    witness.cosign(place)
    shutil.rmtree(tmp_path / "witness" / "logs")
    git(old, "fetch", "-q", str(place), "+refs/clia/cosignatures/*:refs/clia/cosignatures/*")
    assert witness.cosign(old).checkpoints[0].state == "refused"


def test_a_witness_refuses_another_space_and_checkpoints_that_do_not_verify(space: clia.Space, tmp_path: Path) -> None:
    place = tmp_path / "project"
    witness = WitnessForTests.created(tmp_path / "witness")
    log = git(place, "for-each-ref", "--format=%(refname)", "refs/clia/log/")
    before = git(place, "rev-parse", log)
    space.commit("scout", "finding", {"a": b"1"})
    space.witnesses.checkpoint()
    with pytest.raises(Conflict) as caught:
        witness.cosign(place, root="SHA256:other")
    assert caught.value.code == "wrong-root"
    git(place, "update-ref", log, before)
    assert witness.cosign(place).checkpoints[0].state == "refused"
    git(tmp_path, "init", "-q", "empty")
    with pytest.raises(NotFound):
        witness.cosign(tmp_path / "empty")


@pytest.mark.parametrize("step", [*witnesses.STEPS, *cosigning.STEPS])
def test_a_witness_that_died_while_it_cosigned_a_clone_continues(space: clia.Space, tmp_path: Path, step: str) -> None:
    place = tmp_path / "project"
    witness = WitnessForTests.created(tmp_path / "witness").trusted_by(space)
    space.witnesses.checkpoint()
    with pytest.raises(Crash):
        witness._replace(settings=SETTINGS._replace(reached=crash_at(step))).cosign(place)
    assert witness.cosign(place).checkpoints[0].state == "cosigned"
    assert checked(place).findings == ()


def test_a_witness_over_http_cosigns_and_refuses_a_copy_that_went_back(space: clia.Space, tmp_path: Path) -> None:
    place, old = tmp_path / "project", tmp_path / "old"
    witness = WitnessForTests.created(tmp_path / "witness")
    with witness.serving(place) as url:
        with pytest.raises(NotFound) as caught:
            space.witnesses.request(url)
        assert caught.value.code == "no-witness"
        witness.trusted_by(space)
        shutil.copytree(place, old, symlinks=True)
        assert space.witnesses.request(url) == ["w.example"]
        space.commit("scout", "finding", {"a": b"1"})
        assert space.witnesses.request(url) == ["w.example"]
        assert checked(place).findings == ()
        with clia.open(old, settings=SETTINGS) as copy, pytest.raises(Conflict) as behind:
            copy.witnesses.request(url)
        assert (behind.value.code, behind.value.fields) == ("ahead-of-us", {"size": 2})


def yesterday(hub: Path) -> Path:
    return shutil.copytree(hub, hub.parent / "yesterday.git")


def roll_back(hub: Path) -> None:
    """Replace a hub by its copy of yesterday."""
    shutil.rmtree(hub)
    shutil.copytree(hub.parent / "yesterday.git", hub)


def far_apart() -> Settings:
    """Settings with a clock that advances by two minutes at each look, so that each sync makes a checkpoint."""
    from datetime import UTC, datetime, timedelta

    now = [datetime(2026, 1, 1, tzinfo=UTC)]

    def clock() -> datetime:
        now[0] += timedelta(minutes=2)
        return now[0]

    return SETTINGS._replace(clock=clock)


def test_a_hub_rolled_back_to_yesterday_is_found_by_a_clone_that_saw_a_newer_checkpoint(tmp_path: Path, remote: Path) -> None:
    one, two, settings = tmp_path / "one", tmp_path / "two", far_apart()
    with clia.init(one, settings=settings, hub=str(remote)) as first, clia.init(two, settings=settings, hub=str(remote)) as second:
        witness = WitnessForTests.created(tmp_path / "witness").trusted_by(first)
        first.trust.enrol("laptop", second.trust.statements.machine.make().text, "machine")
        first.spawn("scout", clia.Briefing("look"))
        first.hub.sync()
        yesterday(remote)
        first.commit("scout", "finding", {"a": b"1"})
        first.hub.sync()
        ci = stranger(remote, "ci")
        seen = witness.cosign(ci, push="origin").checkpoints[0].checkpoint
        second.hub.sync()
        second.register_type("sketch", "agent-commit")
        second.hub.sync()
        assert second.witnesses.list().cosigned == seen
        roll_back(remote)
        second.hub.sync()
        report = second.trust.verify()
        assert codes(report) == {"remote-rolled-back"}
        assert any("cosigned by w.example" in finding.message for finding in report.findings)
        assert codes(checked(stranger(remote, "later"), since=seen, strict=False)) == set(), "the sync brought it back"
        for finding in report.findings:
            first.trust.accept("remote-rolled-back", finding.cid or "", "the server was restored from a backup")
        first.hub.sync()
        second.hub.sync()
        assert second.trust.verify().findings == ()
    roll_back(remote)
    assert codes(checked(stranger(remote, "fresh"), since=seen, strict=False)) == {"rolled-back"}


def test_a_remote_without_its_checkpoints_is_found_by_a_fetch_only(space: clia.Space, tmp_path: Path, remote: Path) -> None:
    """Adoption leaves no tracking refs, so without a fetch nothing is known about the remote."""
    space.publish(["scout"])
    space.adopt()
    assert git(tmp_path / "project", "for-each-ref", "refs/clia-tracking") == ""
    (ref,) = git(remote, "for-each-ref", "--format=%(refname)", "refs/clia/checkpoints").split()
    git(remote, "update-ref", "-d", ref)
    space.adopt(fetch=False)
    assert space.trust.verify().findings == ()
    space.adopt()
    assert codes(space.trust.verify()) == {"remote-rolled-back"}


def test_what_was_pushed_elsewhere_is_not_expected_where_fetches_come_from(space: clia.Space, tmp_path: Path, remote: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "fork.git")
    git(tmp_path / "project", "config", "remote.origin.pushurl", str(tmp_path / "fork.git"))
    for number in range(2):
        space.commit("scout", "finding", {"a": b"%d" % number})
        assert {pushed.state for pushed in space.publish(["scout"])} <= {"new", "moved", "same"}
        assert space.adopt() == []
    assert git(remote, "for-each-ref") == ""
    assert space.trust.verify().findings == ()
    assert git(tmp_path / "project", "for-each-ref", "refs/clia-tracking") == ""
    (ref,) = git(tmp_path / "fork.git", "for-each-ref", "--format=%(refname)", "refs/clia/checkpoints").split()
    git(tmp_path / "fork.git", "update-ref", "-d", ref)
    space.publish(["scout"])
    assert codes(space.trust.verify()) == {"remote-rolled-back"}


@pytest.mark.parametrize("step", exchange.STEPS)
def test_a_process_that_dies_while_it_notices_a_rollback_has_noted_it(tmp_path: Path, remote: Path, step: str) -> None:
    one, settings = tmp_path / "one", far_apart()
    with clia.init(one, settings=settings, hub=str(remote)) as space:
        space.spawn("scout", clia.Briefing("look"))
        space.hub.sync()
        yesterday(remote)
        space.commit("scout", "finding", {"a": b"1"})
        space.hub.sync()
        roll_back(remote)
    with pytest.raises(Crash), clia.open(one, settings=settings._replace(reached=crash_at(step))) as space:
        space.hub.sync()
    with clia.open(one, settings=settings) as space:
        space.hub.sync()
        assert codes(space.trust.verify()) == {"remote-rolled-back"}


def test_machines_of_a_hub_exchange_their_checkpoints_and_the_cosignatures(tmp_path: Path, remote: Path) -> None:
    one, two, settings = tmp_path / "one", tmp_path / "two", far_apart()
    with clia.init(one, settings=settings, hub=str(remote)) as first, clia.init(two, settings=settings, hub=str(remote)) as second:
        first.spawn("scout", clia.Briefing("look"))
        witness = WitnessForTests.created(tmp_path / "witness").trusted_by(first)
        first.trust.enrol("laptop", second.trust.statements.machine.make().text, "machine")
        first.hub.sync()
        second.hub.sync()
        second.spawn("rover", clia.Briefing("drive"))
        second.hub.sync()
        ci = stranger(remote, "ci")
        assert {item.state for item in witness.cosign(ci, push="origin").checkpoints} == {"cosigned"}
        assert len(witness.cosign(ci).checkpoints) == 2
        first.hub.sync()
        assert first.trust.verify().findings == ()
        assert len(first.witnesses.list().checkpoints) == 2
        assert first.witnesses.list().cosigned is not None
    assert codes(checked(stranger(remote, "later"))) == set()


def test_a_hub_with_a_forged_checkpoint_does_not_replace_ours(tmp_path: Path, remote: Path) -> None:
    one, settings = tmp_path / "one", far_apart()
    with clia.init(one, settings=settings, hub=str(remote)) as space:
        space.spawn("scout", clia.Briefing("look"))
        space.hub.sync()
        ref = git(one, "for-each-ref", "--format=%(refname)", "refs/clia/checkpoints/")
        mine = git(one, "rev-parse", ref)
        tree = git(remote, "mktree")
        git(remote, "update-ref", ref, git(remote, "-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", "-m", "x", tree))
        space.hub.sync()
        assert git(one, "rev-parse", ref) == mine
        assert space.trust.verify().findings == ()
    assert "malformed-checkpoint" in codes(checked(stranger(remote, "later")))
