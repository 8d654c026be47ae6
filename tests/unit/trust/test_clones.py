"""Several machines: their logs together account for every ref, at a hub and in what is published."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import clia
from clia.facade.backends import connect
from clia.testing import Settings
from clia.trust.verification import TrustReport, verify_trust

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
