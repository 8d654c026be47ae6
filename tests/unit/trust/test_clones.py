"""Several machines: their logs together account for every ref, at a hub and in what is published."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import clia
from clia.facade.backends import connect
from clia.testing import Settings
from clia.trust.verification import TrustReport, verify_trust
from support.machine_logs import log_at, log_refs, superseded_commits

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = Settings(person=("Ada", "ada@example.org"), durable=False)


def git(directory: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


def checked(tmp_path: Path, source: Path, name: str) -> TrustReport:
    """Check a plain clone, as a stranger gets it."""
    place = tmp_path / name
    git(tmp_path, "clone", "-q", "--bare", str(source), str(place))
    git(place, "fetch", "-q", "origin", "+refs/*:refs/*")
    return verify_trust(connect(str(place), SETTINGS))


def test_two_machines_with_a_hub_leave_one_record(tmp_path: Path) -> None:
    hub, one, two = tmp_path / "hub.git", tmp_path / "one", tmp_path / "two"
    git(tmp_path, "init", "-q", "--bare", str(hub))
    with clia.init(one, settings=SETTINGS, hub=str(hub)) as first:
        first.spawn("scout", clia.Briefing("look"))
        first.trace("scout", "note", "one")
        first.commit_with_trace("scout", "finding", changes={"a.txt": b"1\n"})
        first.hub.sync()
        with clia.init(two, settings=SETTINGS, hub=str(hub)) as second:
            first.trust.enrol("laptop", second.trust.statements.machine.make().text, "machine")
            first.hub.sync()
            second.hub.sync()
            assert second.trust.keys().enrolled
            second.spawn("rover", clia.Briefing("drive"))
            second.merge("rover", "scout")
            first.commit("scout", "finding", changes={"a.txt": b"3\n"})
            for space in (first, second):
                space.register_type("sketch" if space is first else "drawing", "agent-commit")
                space.hub.sync()
            first.hub.sync()
    report = checked(tmp_path, hub, "stranger")
    assert report.findings == ()
    assert len({signer.key for signer in report.signers}) == 2
    assert report.root == first.trust.keys().root


def test_a_machine_that_has_moved_nothing_gets_the_logs_of_others(tmp_path: Path) -> None:
    hub = tmp_path / "hub.git"
    git(tmp_path, "init", "-q", "--bare", str(hub))
    with clia.init(tmp_path / "one", settings=SETTINGS, hub=str(hub)) as first:
        first.spawn("scout", clia.Briefing("look"))
        first.hub.sync()
        with clia.init(tmp_path / "two", settings=SETTINGS, hub=str(hub)) as second:
            second.hub.sync()
            assert second.trust.verify().findings == ()


def test_a_log_that_grew_is_published_and_adopted_again(tmp_path: Path) -> None:
    """A newer log is no descendant of an older one: plain git would refuse it."""
    remote, one, two = tmp_path / "remote.git", tmp_path / "one", tmp_path / "two"
    git(tmp_path, "init", "-q", "--bare", str(remote))
    with clia.init(one, settings=SETTINGS) as space:
        git(one, "remote", "add", "origin", str(remote))
        space.spawn("scout", clia.Briefing("look"))
        space.publish(["scout"])
        git(tmp_path, "clone", "-q", str(remote), str(two))
        clia.init(two, settings=SETTINGS).close()
        for number in range(20):
            space.commit("scout", "finding", changes={"a.txt": b"%d" % number})
        states = {pushed.ref: pushed.state for pushed in space.publish(["scout"])}
        (ref,) = log_refs(one)
        assert states[ref] == "moved"
        assert checked(tmp_path, remote, "stranger").findings == ()
        with clia.open(two, settings=SETTINGS) as other:
            other.adopt()
            assert other.trust.verify().findings == ()
        assert log_at(two, ref).end == log_at(one).end
        older = superseded_commits(one)[3]
        git(remote, "fetch", "-q", str(one), f"+{older}:{ref}")
        assert {pushed.ref: pushed.state for pushed in space.publish(["scout"])}[ref] == "moved"


def test_a_log_at_a_remote_that_ours_does_not_continue_is_not_replaced(tmp_path: Path) -> None:
    remote, one, copy = tmp_path / "remote.git", tmp_path / "one", tmp_path / "copy"
    git(tmp_path, "init", "-q", "--bare", str(remote))
    with clia.init(one, settings=SETTINGS) as space:
        git(one, "remote", "add", "origin", str(remote))
        space.spawn("scout", clia.Briefing("look"))
    shutil.copytree(one, copy, symlinks=True)
    with clia.open(copy, settings=SETTINGS) as other:
        other.spawn("rover", clia.Briefing("drive"))
        other.publish(["rover"])
    (ref,) = log_refs(copy)
    before = git(remote, "rev-parse", ref)
    with clia.open(one, settings=SETTINGS) as space:
        space.commit("scout", "finding", changes={"a.txt": b"1"})
        states = {pushed.ref: pushed.state for pushed in space.publish(["scout"])}
    assert states[ref] == "refused"
    assert git(remote, "rev-parse", ref) == before


def test_what_is_published_verifies(tmp_path: Path) -> None:
    remote, one = tmp_path / "remote.git", tmp_path / "one"
    git(tmp_path, "init", "-q", "--bare", str(remote))
    with clia.init(one, settings=SETTINGS) as space:
        git(one, "remote", "add", "origin", str(remote))
        space.spawn("scout", clia.Briefing("look"))
        space.trace("scout", "note", "one")
        space.commit_with_trace("scout", "finding", changes={"a.txt": b"1\n"})
        space.ask("scout", {"question": "go?"})
        space.decide("scout", "yes")
        space.publish(["scout"])
    assert checked(tmp_path, remote, "stranger").findings == ()


def test_a_machine_that_did_nothing_yet_has_the_logs_of_the_others(tmp_path: Path) -> None:
    hub, one, two = tmp_path / "hub.git", tmp_path / "one", tmp_path / "two"
    git(tmp_path, "init", "-q", "--bare", str(hub))
    with clia.init(one, settings=SETTINGS, hub=str(hub)) as first:
        first.spawn("scout", clia.Briefing("look"))
        first.hub.sync()
        with clia.init(two, settings=SETTINGS, hub=str(hub)) as second:
            second.hub.sync()
            assert second.trust.verify().findings == ()
