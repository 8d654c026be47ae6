"""Endorsing the history from before a space was signed, and trusting witnesses."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import CliaError, Conflict, Denied, InvalidInput, NotFound
from clia.testing import Crash, Settings, crash_at
from clia.trust.ssh_agent import SshProver
from support.witnesses import WitnessForTests

if TYPE_CHECKING:
    from pathlib import Path

ADA = ("Ada", "ada@example.org")


def git(directory: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


def settings(home: Path) -> Settings:
    environment = {key: value for key, value in os.environ.items() if key != "SSH_AUTH_SOCK"}
    return Settings(person=ADA, durable=False, prove=SshProver(environment, str(home)))


def key_of(home: Path) -> str:
    (home / ".ssh").mkdir(parents=True, exist_ok=True)
    path = home / ".ssh" / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def old_space(tmp_path: Path, home: Path) -> Path:
    """A space of an earlier version, with an agent, that has just started to sign."""
    root = tmp_path / "project"
    with clia.init(root, settings=settings(home)) as space:
        space.spawn("old", clia.Briefing("look"))
        for ref in git(root, "for-each-ref", "--format=%(refname)", "refs/clia/keys", "refs/clia/log/").split():
            git(root, "update-ref", "-d", ref)
    shutil.rmtree(root / ".git/clia/signing", ignore_errors=True)
    for prefix in ("refs/heads/agents/old", "refs/clia/agents/old", "refs/clia/space"):
        unsign(root, prefix)
    with clia.open(root, settings=settings(home)) as space:
        space.trust.init()
    return root


def unsign(root: Path, ref: str) -> None:
    """Rewrite a history without signatures, as earlier versions wrote it."""
    parents: list[str] = []
    for cid in git(root, "rev-list", "--reverse", ref).split():
        tree, message = git(root, "rev-parse", f"{cid}^{{tree}}"), git(root, "log", "-1", "--format=%B", cid)
        words = [word for parent in parents for word in ("-p", parent)]
        parents = [git(root, "-c", "user.name=Ada", "-c", "user.email=ada@x", "commit-tree", tree, *words, "-m", message)]
    git(root, "update-ref", ref, parents[0])


def test_a_person_endorses_the_history_before_the_keys(old_space: Path, home: Path) -> None:
    with clia.open(old_space, settings=settings(home)) as space:
        before = space.trust.verify(strict=True)
        assert before.unsigned > 0
        assert "unsigned-history" in {finding.code for finding in before.findings}
        space.trust.enrol("Ada", key_of(home))
        with pytest.raises(InvalidInput):
            space.witnesses.endorse(" ")
        endorsed = space.witnesses.endorse("compared with the backup of May")
        assert (endorsed.by, endorsed.strength) == ("Ada", "ssh")
        report = space.trust.verify(strict=True)
        assert report.endorsed == (endorsed,)
        assert report.unsigned == before.unsigned
        assert "unsigned-history" not in {finding.code for finding in report.findings}


def test_an_endorsement_needs_the_key_of_a_person_to_count_strictly(old_space: Path, home: Path) -> None:
    with clia.open(old_space, settings=settings(home)) as space:
        assert space.witnesses.endorse("as far as I know").strength == "attested"
        report = space.trust.verify(strict=True)
        assert len(report.endorsed) == 1
        assert "unsigned-history" in {finding.code for finding in report.findings}
        space.trust.enrol("Ada", key_of(home))
        shutil.rmtree(home)
        with pytest.raises(Denied):
            space.witnesses.endorse("without the key")
        assert len(space.trust.verify().endorsed) == 1


def test_an_endorsement_of_a_checkpoint_that_is_gone_is_a_finding(old_space: Path, home: Path) -> None:
    with clia.open(old_space, settings=settings(home)) as space:
        space.witnesses.endorse("as far as I know")
        git(old_space, "update-ref", "-d", git(old_space, "for-each-ref", "--format=%(refname)", "refs/clia/checkpoints/"))
        report = space.trust.verify()
        assert report.endorsed == ()
        assert "unknown-checkpoint" in {finding.code for finding in report.findings}


@pytest.mark.parametrize("step", ["checkpoint-written", "checkpoint-made", "entry-written", "committed"])
def test_a_process_that_dies_while_it_endorses_leaves_the_space_whole(old_space: Path, home: Path, step: str) -> None:
    chosen = settings(home)._replace(reached=crash_at(step))
    with pytest.raises(Crash), clia.open(old_space, settings=chosen) as space:
        space.witnesses.endorse("as far as I know")
    with clia.open(old_space, settings=settings(home)) as space:
        if not space.trust.verify().endorsed:
            space.witnesses.endorse("again")
        report = space.trust.verify()
        assert len(report.endorsed) == 1
        assert report.findings == ()


def test_a_space_without_older_history_has_nothing_to_endorse(tmp_path: Path, home: Path) -> None:
    with clia.init(tmp_path / "new", settings=settings(home)) as space, pytest.raises(NotFound) as caught:
        space.witnesses.endorse("why not")
    assert caught.value.code == "no-older-history"


def test_a_witness_is_trusted_by_its_key_and_once(tmp_path: Path, home: Path) -> None:
    witness = WitnessForTests.created(tmp_path / "witness", "ci.example.org/shop")
    with clia.init(tmp_path / "new", settings=settings(home)) as space:
        listed = space.witnesses.trust(witness.key.text)
        assert [(item.name, item.key) for item in listed.witnesses] == [("ci.example.org/shop", witness.key.text)]
        with pytest.raises(Denied) as caught:
            space.witnesses.trust(witness.key.text)
        assert caught.value.code == "key-reused"
        for key in ("ci.example.org", witness.key.text.replace("+", "-"), ""):
            with pytest.raises(InvalidInput):
                space.witnesses.trust(key)
        with pytest.raises(InvalidInput):
            space.trust.enrol("a witness", "ssh-ed25519 AAAA", "witness")


def test_a_checkpoint_needs_a_key_that_is_enrolled_and_at_hand(tmp_path: Path, home: Path) -> None:
    root, clone = tmp_path / "new", tmp_path / "clone"
    with clia.init(root, settings=settings(home)) as space:
        space.spawn("scout", clia.Briefing("look"))
        git(root, "config", "clia.signingCommand", "true")
        with pytest.raises(CliaError):
            space.witnesses.checkpoint()
        git(root, "config", "--unset", "clia.signingCommand")
        git(tmp_path, "clone", "-q", "--bare", str(root), str(tmp_path / "hub"))
        git(root, "push", "-q", str(tmp_path / "hub"), "+refs/clia/*:refs/clia/*")
        git(tmp_path, "clone", "-q", str(tmp_path / "hub"), str(clone))
    with clia.init(clone, settings=settings(home)) as copy:
        copy.spawn("rover", clia.Briefing("look"))
        with pytest.raises(Conflict) as caught:
            copy.witnesses.checkpoint()
        assert caught.value.code == "not-enrolled"
