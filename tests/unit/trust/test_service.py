"""Keys and statements of people: enrolment, proofs by ssh keys, revocation, rotation, thresholds."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import AwaitsOthers, CliaError, Denied, InvalidInput, NotFound
from clia.testing import Crash, crash_at
from clia.trust.ssh_agent import SshProver
from support.people import BOB, key_of, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from clia.trust.statements import EnrolledKey, PersonalStatement, StatementProof


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def space(tmp_path: Path, home: Path) -> Iterator[clia.Space]:
    with clia.init(tmp_path / "project", settings=settings(home)) as opened:
        opened.spawn("scout", clia.Briefing("look"))
        yield opened


def ask(space: clia.Space) -> None:
    space.ask("scout", {"question": "go?", "choices": ["yes", "no"]})


def codes(space: clia.Space, *, strict: bool = False) -> set[str]:
    return {finding.code for finding in space.trust.verify(strict=strict).findings}


def test_a_decision_is_proved_by_the_enrolled_key_of_the_person(space: clia.Space, home: Path) -> None:
    space.trust.enrol("Ada", key_of(home))
    ask(space)
    space.decide("scout", "yes", "because")
    assert codes(space, strict=True) == {"no-cosigned-checkpoint"}
    assert space.trust.verify(strict=True).strengths == {"ssh": 1}


def test_the_agent_of_the_account_signs_with_a_key_whose_file_is_elsewhere(space: clia.Space, home: Path) -> None:
    public = key_of(home)
    space.trust.enrol("ada@example.org", public)
    agent = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    variables = dict(line.split(";")[0].split("=") for line in agent.splitlines() if "=" in line)
    environment = os.environ | variables
    try:
        subprocess.run(["ssh-add", "-q", str(home / ".ssh/id_ed25519")], env=environment, check=True, capture_output=True)
        shutil.rmtree(home)
        chosen = settings(home, prove=SshProver(dict(environment), str(home)))
        with clia.open(space.local.root if hasattr(space.local, "root") else space.home, settings=chosen) as opened:
            ask(opened)
            opened.decide("scout", "yes")
            assert opened.trust.verify(strict=True).strengths == {"ssh": 1}
    finally:
        subprocess.run(["ssh-agent", "-k"], env=environment, capture_output=True, check=False)


def test_without_the_key_nothing_is_recorded(space: clia.Space, home: Path) -> None:
    space.trust.enrol("Ada", key_of(home))
    ask(space)
    head = space.head("scout")
    shutil.rmtree(home)
    with pytest.raises(Denied) as refused:
        space.decide("scout", "yes")
    assert refused.value.code == "proof-required"
    assert space.head("scout") == head
    assert len(space.pending("scout")) == 1


def test_a_person_without_a_key_cannot_decide_once_people_are_enrolled(space: clia.Space, home: Path) -> None:
    space.trust.enrol("Ada", key_of(home))
    ask(space)
    with pytest.raises(Denied):
        space.decide("scout", "yes", by="Mallory <m@example.org>")


def test_a_proof_by_another_person_does_not_count(space: clia.Space, tmp_path: Path, home: Path) -> None:
    bob = tmp_path / "bob"
    space.trust.enrol("Ada", key_of(home))
    space.trust.enrol("Bob", key_of(bob))

    def as_bob(statement: PersonalStatement, keys: Sequence[EnrolledKey]) -> list[StatementProof]:
        enrolled = space.trust.statements.chain().people_at(9)[1:]
        return SshProver(dict(os.environ), str(bob))(statement, enrolled)

    with clia.open(tmp_path / "project", settings=settings(home, prove=as_bob)) as opened:
        ask(opened)
        with pytest.raises(CliaError) as refused:
            opened.decide("scout", "yes", by="Ada")
    assert refused.value.code == "wrong-person"


def test_a_role_and_a_threshold_are_needed(space: clia.Space, tmp_path: Path, home: Path) -> None:
    bob = tmp_path / "bob"
    space.trust.enrol("Ada", key_of(home))
    space.trust.enrol("Bob", key_of(bob), roles=["land"])
    ask(space)
    with (
        clia.open(tmp_path / "project", settings=settings(bob, BOB)) as opened,
        pytest.raises(CliaError) as refused,
    ):
        opened.decide("scout", "yes")
    assert refused.value.code == "not-allowed"
    space.trust.set_policy({"rules": [{"verbs": ["decide"], "agents": ["scout"], "threshold": 2}]})
    with pytest.raises(AwaitsOthers) as alone:
        space.decide("scout", "yes")
    assert "1 of 2" in alone.value.message


def test_two_keys_of_one_person_are_one_person(space: clia.Space, tmp_path: Path, home: Path) -> None:
    space.trust.enrol("Ada", key_of(home))
    space.trust.enrol("Ada", key_of(home, "ecdsa"), roles=["owner"])
    space.trust.set_policy({"rules": [{"verbs": ["decide"], "threshold": 2}]})

    def with_both(statement: PersonalStatement, keys: Sequence[EnrolledKey]) -> list[StatementProof]:
        prover = SshProver(dict(os.environ), str(home))
        return [proof for key in keys for proof in prover(statement, [key])]

    with clia.open(tmp_path / "project", settings=settings(home, prove=with_both)) as opened:
        ask(opened)
        with pytest.raises(AwaitsOthers) as refused:
            opened.decide("scout", "yes")
    assert refused.value.fields["people"] == ["Ada"]


def test_a_statement_that_was_signed_before_is_recorded_with_its_proofs(space: clia.Space, home: Path) -> None:
    keys = space.trust.enrol("Ada", key_of(home))
    ask(space)
    statement = space.sessions.state("scout", "yes", person="Ada")
    proofs = SshProver(dict(os.environ), str(home))(statement, space.trust.statements.chain().people_at(9))
    assert proofs[0].key == keys.keys[-1].fingerprint
    with pytest.raises(Denied) as refused:
        space.sessions.decide_signed(statement, ())
    assert refused.value.code == "proof-required"
    space.sessions.decide_signed(statement, proofs)
    assert (codes(space, strict=True), space.trust.verify().strengths) == ({"no-cosigned-checkpoint"}, {"ssh": 1})


def test_the_owner_revokes_a_lost_key_and_what_it_signed_before_stays_valid(space: clia.Space, tmp_path: Path, home: Path) -> None:
    bob = tmp_path / "bob"
    space.trust.enrol("Ada", key_of(home))
    keys = space.trust.enrol("Bob", key_of(bob))
    with clia.open(tmp_path / "project", settings=settings(bob, BOB)) as opened:
        ask(opened)
        opened.decide("scout", "yes")
    space.trust.revoke(keys.keys[-1].fingerprint, "lost")
    assert codes(space, strict=True) == {"no-cosigned-checkpoint"}
    with clia.open(tmp_path / "project", settings=settings(bob, BOB)) as opened:
        ask(opened)
        with pytest.raises(Denied):
            opened.decide("scout", "yes")
    with pytest.raises(NotFound):
        space.trust.revoke(keys.keys[-1].fingerprint, "again")


def test_only_an_owner_enrols_once_there_is_one(space: clia.Space, tmp_path: Path, home: Path) -> None:
    bob = tmp_path / "bob"
    space.trust.enrol("Ada", key_of(home))
    space.trust.enrol("Bob", key_of(bob))
    with clia.open(tmp_path / "project", settings=settings(bob, BOB)) as opened:
        for act in (
            lambda: opened.trust.enrol("Eve", key_of(tmp_path / "eve")),
            lambda: opened.trust.set_policy({"rules": []}),
            lambda: opened.trust.accept("rewound-ref", "refs/heads/agents/scout", "fine"),
        ):
            with pytest.raises(CliaError) as refused:
                act()
            assert refused.value.code == "not-allowed"
    assert codes(space) == set()


def test_the_key_of_the_machine_is_replaced_and_old_commits_stay_valid(space: clia.Space) -> None:
    before = space.trust.keys()
    after = space.trust.rotate_machine()
    space.commit("scout", "finding", changes={"a.txt": b"a\n"})
    assert (after.machine != before.machine, after.root == before.root, after.enrolled) == (True, True, True)
    assert codes(space) == set()


@pytest.mark.parametrize("step", ["entry-written", "committed", "moves-logged"])
def test_a_rotation_that_dies_is_finished_or_has_not_happened(tmp_path: Path, home: Path, step: str) -> None:
    root = tmp_path / "project"
    with clia.init(root, settings=settings(home)) as space:
        space.spawn("scout", clia.Briefing("look"))
    with clia.open(root, settings=settings(home, reached=crash_at(step))) as dying, pytest.raises(Crash):
        dying.trust.rotate_machine()
    with clia.open(root, settings=settings(home)) as space:
        assert space.trust.keys().enrolled
        space.commit("scout", "finding", changes={"a.txt": b"a\n"})
        assert codes(space) == set()


def test_an_older_space_starts_to_sign_and_its_history_is_called_unsigned(tmp_path: Path, home: Path) -> None:
    root = tmp_path / "project"
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for key, value in (("commit.gpgsign", "true"), ("gpg.program", "false")):
        subprocess.run(["git", "config", key, value], cwd=root, check=True)
    subprocess.run(["git", "config", "--unset", "commit.gpgsign"], cwd=root, check=True)
    with clia.init(root, settings=settings(home)) as space:
        space.spawn("old", clia.Briefing("look"))
        refs = subprocess.run(["git", "for-each-ref", "--format=%(refname)"], cwd=root, capture_output=True, text=True, check=True)
        for ref in refs.stdout.split():
            if ref == "refs/clia/keys" or ref.startswith("refs/clia/log/"):
                subprocess.run(["git", "update-ref", "-d", ref], cwd=root, check=True)
    shutil.rmtree(root / ".git/clia/signing")
    with clia.open(root, settings=settings(home)) as space:
        space.spawn("scout", clia.Briefing("look"))
        assert space.trust.verify().state == "unsigned"
        assert not space.trust.keys().signing
        with pytest.raises(NotFound) as refused:
            space.trust.enrol("Ada", key_of(home))
        assert refused.value.code == "not-signing"
        space.trust.init()
        space.commit("scout", "finding", changes={"a.txt": b"a\n"})
        report = space.trust.verify()
        assert (report.state, {finding.code for finding in report.findings} <= {"unlogged-commit", "unknown-key"}) == (
            "partly signed",
            True,
        )
        assert report.unsigned >= 2
        assert "unsigned-history" in codes(space, strict=True)


def test_another_clone_is_enrolled_by_one_that_is(tmp_path: Path, home: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with clia.init(one, settings=settings(home)) as space:
        space.spawn("scout", clia.Briefing("look"))
        subprocess.run(["git", "clone", "-q", "--bare", str(one), str(tmp_path / "hub")], check=True)
        subprocess.run(["git", "push", "-q", str(tmp_path / "hub"), "+refs/clia/*:refs/clia/*"], cwd=one, check=True)
        subprocess.run(["git", "clone", "-q", str(tmp_path / "hub"), str(two)], check=True)
        with clia.init(two, settings=settings(home)) as clone:
            clone.spawn("rover", clia.Briefing("look"))
            keys = clone.trust.keys()
            assert (keys.enrolled, keys.root) == (False, space.trust.keys().root)
            assert {"unknown-machine", "unknown-key"} <= codes(clone)
            public = clone.trust.statements.machine.public().text
        listed = space.trust.enrol("laptop", public, "machine")
        assert [key.owner for key in listed.keys][1:] == ["laptop"]


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ([], "rules"),
        ({"rules": [{"verb": []}]}, "rules[0]"),
        ({"rules": [{"verbs": ["dance"]}]}, "rules[0].verbs"),
        ({"rules": [{"threshold": 0}]}, "rules[0]"),
        ({"rules": [{"threshold": True}]}, "rules[0]"),
        ({"rules": [{"strength": "blood"}]}, "rules[0]"),
        ({"rules": [{"agents": "scout"}]}, "rules[0].agents"),
    ],
)
def test_a_wrong_policy_changes_nothing_and_names_the_field(space: clia.Space, policy: object, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        space.trust.set_policy(policy)  # type: ignore[arg-type]
    assert refused.value.fields["field"].startswith(field)
    assert space.trust.policy() == {"rules": []}


def test_a_finding_is_accepted_by_a_person_with_a_reason(space: clia.Space, tmp_path: Path) -> None:
    root = tmp_path / "project"
    space.commit("scout", "finding", changes={"a.txt": b"a\n"})
    lost = space.head("scout")
    subprocess.run(["git", "update-ref", "refs/heads/agents/scout", f"{lost}~1"], cwd=root, check=True)
    finding = next(finding for finding in space.trust.verify().findings if finding.code == "rewound-ref")
    with pytest.raises(InvalidInput):
        space.trust.accept(finding.code, str(finding.cid), " ")
    space.trust.accept(finding.code, str(finding.cid), "dropped on purpose")
    report = space.trust.verify()
    assert report.findings == ()
    assert [(item.by, item.reason, item.strength) for item in report.accepted] == [("Ada", "dropped on purpose", "attested")]
