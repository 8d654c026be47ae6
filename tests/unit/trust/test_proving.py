"""Acts of people: each is stated and proved, and one that needs several people waits for them."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import AwaitsOthers, CliaError, Conflict, Denied, InvalidInput, StaleRef
from clia.facade.backends import connect
from clia.testing import Crash, components, crash_at
from clia.trust.proving import preview, supplied
from clia.trust.statements import read_statement
from clia.trust.verification import verify_trust
from clia.values.commit_messages import STATEMENT, parse
from support.people import ADA, BOB, key_of, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROLES = ["decide", "adopt", "retire", "land", "purge", "grant", "ungrant"]
PROMPT = "Answer politely."


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A space with a branch, an agent with a trace, and two people with keys; Ada is the owner."""
    path = tmp_path / "project"
    with clia.init(path, settings=settings(tmp_path / "ada")) as space:
        for words in (["commit", "-q", "--allow-empty", "-m", "start"], ["branch", "-M", "main"]):
            subprocess.run(["git", "-c", "user.name=Ada", "-c", "user.email=a@x", *words], cwd=path, check=True)
        space.spawn("scout", clia.Briefing("look"))
        space.trace("scout", "note", "the leaked word is swordfish")
        space.commit_with_trace("scout", "finding", changes={"src/a.txt": b"a\n"})
        space.trust.enrol("Ada", key_of(tmp_path / "ada"))
        space.trust.enrol("Bob", key_of(tmp_path / "bob"), roles=ROLES)
    return path


@contextmanager
def opened_by(root: Path, who: tuple[str, str], **changes: object) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings(root.parent / who[0].lower(), who, **changes)) as space:
        yield space


def ask(space: clia.Space, **fields: object) -> None:
    space.ask("scout", {"question": "go?", "choices": ["yes", "no"], **fields})


def statement_at(space: clia.Space, ref: str) -> dict[str, Any]:
    commit = components(space).core.objects.commit(components(space).core.refs.get(ref) or "")
    texts = [value for key, value in parse(commit.message)[1] if key == STATEMENT]
    return read_statement(texts[0]).as_json()


def codes(space: clia.Space, *, strict: bool = True) -> set[str]:
    """The findings, without the one that no witness has seen the record."""
    return {finding.code for finding in space.trust.verify(strict=strict).findings} - {"no-cosigned-checkpoint"}


def adopt(space: clia.Space) -> None:
    space.behaviours.add("polite", PROMPT, "prompt", why="for people")


def retire(space: clia.Space) -> None:
    space.behaviours.retire("polite", why="too polite")


def purge(space: clia.Space) -> None:
    space.traces.purge("scout", "swordfish")


def land(space: clia.Space) -> None:
    space.land("scout", "main")


ACTS: list[tuple[str, Callable[[clia.Space], None], str]] = [
    ("adopt", adopt, "refs/clia/behaviours/polite"),
    ("purge", purge, "refs/clia/events/scout"),
    ("land", land, "refs/clia/events/scout"),
]


@pytest.mark.parametrize(("verb", "act", "ref"), ACTS)
def test_an_act_is_stated_by_the_person_and_verifies(root: Path, verb: str, act: Callable[[clia.Space], None], ref: str) -> None:
    with opened_by(root, ADA) as space:
        act(space)
        statement = statement_at(space, ref)
        assert (statement["verb"], statement["person"]) == (verb, "Ada <ada@example.org>")
        assert (codes(space), space.trust.verify().acts) == (set(), {"ssh": 1})


@pytest.mark.parametrize(("act", "ref"), [(adopt, "refs/clia/behaviours/polite"), (purge, "refs/clia/events/scout")])
def test_an_act_without_a_proof_is_refused_and_records_nothing(root: Path, act: Callable[[clia.Space], None], ref: str) -> None:
    with opened_by(root, ADA, prove=None) as space:
        before = components(space).core.refs.get(ref)
        with pytest.raises(Denied) as refused:
            act(space)
        assert refused.value.code == "proof-required"
        assert components(space).core.refs.get(ref) == before
        assert codes(space) == set()


def test_a_retirement_is_stated_too(root: Path) -> None:
    with opened_by(root, ADA) as space:
        adopt(space)
        retire(space)
        assert statement_at(space, "refs/clia/behaviours/polite")["reason"] == "too polite"
        assert (codes(space), space.trust.verify().acts) == (set(), {"ssh": 2})


def test_a_landing_by_an_agent_needs_no_person_unless_the_policy_names_it(root: Path) -> None:
    with opened_by(root, ADA, agent="scout") as space:
        land(space)
        assert (codes(space), space.trust.verify().acts) == (set(), {"attested": 1})
    with opened_by(root, ADA) as space:
        space.trust.set_policy({"rules": [{"verbs": ["land"], "paths": ["src/*"], "strength": "ssh"}]})
        space.commit("scout", "finding", changes={"docs/b.txt": b"b\n"})
    with opened_by(root, ADA, agent="scout") as space:
        land(space)  # of other paths
        space.commit("scout", "finding", changes={"src/a.txt": b"c\n"})
        with pytest.raises(Denied):
            land(space)
    with opened_by(root, BOB) as space:
        land(space)
        assert (codes(space), space.trust.verify().acts) == (set(), {"attested": 2, "ssh": 1})


def test_a_clone_without_the_branch_of_people_has_landings_that_are_proved(root: Path, tmp_path: Path) -> None:
    """Such a clone cannot see which files a landing changed, so rules about files are checked where the branch is."""
    with opened_by(root, ADA) as space:
        space.trust.set_policy({"rules": [{"verbs": ["land"], "paths": ["docs/*"], "strength": "ssh", "threshold": 2}]})
        land(space)
        landed = components(space).core.refs.get("refs/heads/main")
    place = tmp_path / "clone"
    subprocess.run(["git", "init", "-q", "--bare", str(place)], check=True)
    refs = ["+refs/heads/agents/*:refs/heads/agents/*", "+refs/clia/*:refs/clia/*", "+refs/notes/*:refs/notes/*"]
    subprocess.run(["git", "fetch", "-q", str(root), *refs], cwd=place, check=True)
    assert subprocess.run(["git", "cat-file", "-e", str(landed)], cwd=place, check=False).returncode != 0
    report = verify_trust(connect(str(place), settings(tmp_path / "ada")))
    assert (report.findings, report.acts) == ((), {"ssh": 1})


def test_an_answer_may_be_empty_or_null_and_its_statement_says_which(root: Path) -> None:
    with opened_by(root, ADA) as space:
        for answer in ("", None, 0, False, True, 1):
            space.ask("scout", {"question": "what?"})
            space.decide("scout", answer)
            statement = statement_at(space, "refs/heads/agents/scout")
            assert statement.get("value") is answer
            assert ("value" in statement) == (answer is not None)
        assert codes(space) == set()


# Several people


@pytest.fixture
def two(root: Path) -> Path:
    """Decisions and adoptions need two people."""
    with opened_by(root, ADA) as space:
        space.trust.set_policy({"rules": [{"verbs": ["decide", "adopt", "policy", "enrol"], "threshold": 2}]})
    return root


def test_a_second_person_completes_a_decision(two: Path) -> None:
    with opened_by(two, ADA) as space:
        ask(space)
        with pytest.raises(AwaitsOthers) as waits:
            space.decide("scout", "yes", "it is safe")
        assert (waits.value.fields["people"], waits.value.fields["threshold"]) == (["Ada"], 2)
        assert [item.people for item in space.trust.waiting()] == [("Ada",)]
        with pytest.raises(AwaitsOthers):
            space.decide("scout", "yes", "once more")  # people are counted, not answers
    with opened_by(two, BOB) as space:
        decision = space.decide("scout", "yes")
        assert decision.by == "Bob <bob@example.org>"
        commit = space.show(decision.cid)
        assert (len(commit.proofs), commit.message.strip()) == (2, "it is safe")
        assert (codes(space), space.trust.verify().strengths) == (set(), {"ssh": 1})
        assert space.trust.waiting() == []


def test_different_answers_wait_apart(two: Path) -> None:
    with opened_by(two, ADA) as space:
        ask(space)
        with pytest.raises(AwaitsOthers):
            space.decide("scout", "yes")
    with opened_by(two, BOB) as space:
        with pytest.raises(AwaitsOthers) as waits:
            space.decide("scout", "no")
        assert waits.value.fields["people"] == ["Bob"]
    with opened_by(two, ADA) as space:
        assert space.decide("scout", "no").value == "no"
        assert codes(space) == set()


def test_a_statement_about_an_older_head_does_not_count(two: Path) -> None:
    with opened_by(two, ADA) as space:
        ask(space)
        with pytest.raises(AwaitsOthers):
            space.decide("scout", "yes")
        space.commit("scout", "finding", changes={"b.txt": b"b\n"})
    with opened_by(two, BOB) as space, pytest.raises(AwaitsOthers) as waits:
        space.decide("scout", "yes")
    assert waits.value.fields["people"] == ["Bob"]


def test_the_statement_of_a_key_that_was_revoked_meanwhile_does_not_count(two: Path) -> None:
    with opened_by(two, BOB) as space:
        ask(space)
        with pytest.raises(AwaitsOthers):
            space.decide("scout", "yes")
        own = next(key for key in space.trust.keys().keys if key.owner == "Bob")
        space.trust.revoke(own.fingerprint, "lost")
    with opened_by(two, ADA) as space, pytest.raises(AwaitsOthers) as waits:
        space.decide("scout", "yes")
    assert waits.value.fields["people"] == ["Ada"]


def test_a_second_person_completes_an_adoption(two: Path) -> None:
    with opened_by(two, BOB) as space, pytest.raises(AwaitsOthers):
        adopt(space)
    with opened_by(two, ADA) as space:
        adopt(space)
        assert (codes(space), space.behaviours.version("polite").body) == (set(), PROMPT)


def test_a_policy_is_replaced_by_as_many_as_the_one_in_force_asks(two: Path) -> None:
    with opened_by(two, ADA) as space:
        with pytest.raises(AwaitsOthers):
            space.trust.set_policy({"rules": []})
        assert space.trust.policy()["rules"]
    with opened_by(two, BOB) as space, pytest.raises(CliaError) as refused:
        space.trust.set_policy({"rules": []})
    assert refused.value.code == "not-allowed"


def test_two_owners_enrol_and_change_the_policy(root: Path) -> None:
    with opened_by(root, ADA) as space:
        space.trust.enrol("Cid", key_of(root.parent / "cid"), roles=["owner"])
        space.trust.set_policy({"rules": [{"verbs": ["enrol", "policy"], "threshold": 2}]})
        public = key_of(root.parent / "dan")
        with pytest.raises(AwaitsOthers):
            space.trust.enrol("Dan", public)
        assert "Dan" not in {key.owner for key in space.trust.keys().keys}
    with opened_by(root, ("Cid", "cid@example.org")) as space:
        space.trust.enrol("Dan", public)
        assert "Dan" in {key.owner for key in space.trust.keys().keys}
        with pytest.raises(AwaitsOthers):
            space.trust.set_policy({"rules": []})
    with opened_by(root, ADA) as space:
        assert space.trust.set_policy({"rules": []}) == {"rules": []}
        assert codes(space, strict=False) == set()


def test_a_person_enrolled_by_name_and_by_address_is_one_person(root: Path) -> None:
    with opened_by(root, ADA) as space:
        space.trust.enrol("ada@example.org", key_of(root.parent / "ada", "ecdsa"), roles=["owner"])
        space.trust.set_policy({"rules": [{"verbs": ["decide"], "threshold": 2}]})
        ask(space)
        with pytest.raises(AwaitsOthers):
            space.decide("scout", "yes")
    shutil.rmtree(root.parent / "ada" / ".ssh")
    key_of(root.parent / "ada", "rsa")
    with opened_by(root, ADA) as space, pytest.raises(AwaitsOthers):
        space.decide("scout", "yes")


@pytest.mark.parametrize(
    ("rule", "question"),
    [
        ({"kinds": ["deploy"]}, {"kind": "deploy"}),
        ({"risks": ["high"]}, {"risk": "high"}),
        ({"paths": ["secrets/*"]}, {"files": ["README.md", "secrets/key"]}),
        ({"agents": ["sc*"]}, {}),
        ({"paths": ["secrets/*"]}, {"diff": "x" * 20_000}),  # cut: whether it names files is not recorded
        ({"kinds": ["deploy"]}, {**{f"a{number}": "x" for number in range(40)}, "kind": "deploy", "diff": "x" * 20_000}),
    ],
)
def test_a_rule_asks_for_two_people_by_agent_kind_risk_or_path(root: Path, rule: dict[str, Any], question: dict[str, Any]) -> None:
    with opened_by(root, ADA) as space:
        space.trust.set_policy({"rules": [{"verbs": ["decide"], "threshold": 2, **rule}]})
        ask(space, **question)
        with pytest.raises(AwaitsOthers):
            space.decide("scout", "yes")
    with opened_by(root, BOB) as space:
        space.decide("scout", "yes")
        if rule.keys() != {"agents"}:
            ask(space, kind="talk", risk="low", files=["README.md"])
            space.decide("scout", "no")
        assert codes(space) == set()


@pytest.mark.parametrize("step", ["event-written", "moves-logged"])
def test_a_process_that_dies_while_it_keeps_a_statement_loses_at_most_that(two: Path, step: str) -> None:
    with opened_by(two, ADA) as space:
        ask(space)
    with opened_by(two, ADA, reached=crash_at(step)) as dying, pytest.raises((Crash, AwaitsOthers)):
        dying.decide("scout", "yes")
    with opened_by(two, ADA) as space, pytest.raises(AwaitsOthers):
        space.decide("scout", "yes")
    with opened_by(two, BOB) as space:
        space.decide("scout", "yes")
        assert codes(space) == set()


# Statements that are signed elsewhere


def test_a_statement_is_made_first_and_recorded_with_its_proofs(root: Path) -> None:
    with opened_by(root, ADA, prove=None) as space, opened_by(root, BOB) as at_bobs:
        who, prover = "Bob <bob@example.org>", components(at_bobs).trust_keys.prover
        statement = preview(who, lambda: space.behaviours.add("polite", PROMPT, "prompt", by=who))
        assert statement is not None
        assert space.behaviours() == []
        proofs = prover.proofs_of(statement, who)
        with supplied(who, statement, proofs), pytest.raises(Conflict) as other:
            space.behaviours.add("polite", "Answer rudely.", "prompt", by=who)
        assert other.value.code == "other-statement"
        with supplied(who, statement, proofs):
            space.behaviours.add("polite", PROMPT, "prompt", by=who)
        assert (codes(space), space.trust.verify().acts) == (set(), {"ssh": 1})
        with supplied(who, statement, proofs), pytest.raises(StaleRef):
            space.behaviours.retire("polite", by=who)


def test_programs_sign_answers_for_two_people(two: Path) -> None:
    texts = []
    with opened_by(two, ADA, prove=None) as space, opened_by(two, ADA) as adas, opened_by(two, BOB) as bobs:
        ask(space)
        for name, own in (("Ada <ada@example.org>", adas), ("Bob <bob@example.org>", bobs)):
            texts.append(space.sessions.statement("scout", "yes", by=name))
            proofs = components(own).trust_keys.prover.proofs_of(read_statement(texts[-1]), name)
            with pytest.raises(InvalidInput):
                space.sessions.decide_with_proofs("rover", texts[-1], [proof.text() for proof in proofs], by=name)
            with suppress(AwaitsOthers):
                space.sessions.decide_with_proofs("scout", texts[-1], [proof.text() for proof in proofs], by=name)
        assert texts[0] == texts[1]
        assert (codes(space), space.trust.verify().strengths) == (set(), {"ssh": 1})


def test_a_clone_without_the_store_checks_acts(root: Path, tmp_path: Path) -> None:
    with opened_by(root, ADA) as space:
        for _, act, _ in ACTS:
            act(space)
    subprocess.run(["git", "clone", "-q", "--bare", str(root), str(tmp_path / "clone")], check=True)
    subprocess.run(["git", "fetch", "-q", "origin", "+refs/*:refs/*"], cwd=tmp_path / "clone", check=True)
    from clia.facade.backends import connect

    report = verify_trust(connect(str(tmp_path / "clone"), settings(tmp_path)))
    assert (report.findings, report.acts) == ((), {"ssh": 3})
