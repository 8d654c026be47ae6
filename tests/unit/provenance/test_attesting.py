"""Attestations: independent libraries read and verify them, and what does not hold is refused."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]  # it has no type information
from in_toto_attestation.predicates.vsa.v1 import vsa_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

import clia
from clia.provenance.attesting import COMMIT_PREDICATE, SUMMARY_PREDICATE, lines_of_document, resource_uri
from clia.provenance.dsse import signed_envelope
from clia.provenance.verifying import check_document
from clia.trust.ssh_format import read_public_key
from clia.trust.ssh_signatures import signer_of
from support import git
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clia.provenance.verifying import CheckedAttestation

OTHER = signer_of(b"\5" * 32)


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    """A space with a commit of `scout` with a trace, that a person approved."""
    with clia.init(tmp_path / "shop", settings=settings()) as opened:
        opened.spawn("scout", BRIEFING._replace(meta={"tool": "claude-code", "model": "claude-opus-4-5"}))
        opened.trace("scout", "said", "I count")
        opened.commit_with_trace("scout", "finding", changes={"stock.txt": b"apples 4\n"}, message="One more apple")
        opened.ask("scout", {"question": "Is 4 right?"})
        opened.decide("scout", "yes")
        yield opened


@pytest.fixture
def commit(space: clia.Space) -> str:
    return space.log("scout", own=True)[1].cid


def in_toto(space: clia.Space, commit: str) -> dict[str, Any]:
    """A signed in-toto attestation about a commit."""
    attestations = space.provenance.attestations
    statement = attestations.in_toto(commit, attestations.require_sound(commit, allow_unsigned=False), "1.0")
    return signed_envelope(statement, space.provenance.signer())


def slsa(space: clia.Space, commit: str, *, allow_unsigned: bool = False) -> dict[str, Any]:
    attestations = space.provenance.attestations
    verdict = attestations.require_sound(commit, allow_unsigned=allow_unsigned)
    statement = attestations.slsa_source(commit, verdict, "1.0", "git+https://forge.example.org/shop")
    return signed_envelope(statement, space.provenance.signer() if not allow_unsigned else OTHER)


def statement_of(envelope: dict[str, Any]) -> dict[str, Any]:
    statement: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))
    return statement


def checked(space: clia.Space, *envelopes: dict[str, Any], key: str | None = None) -> list[CheckedAttestation]:
    given = None if key is None else read_public_key(key)
    return check_document(lines_of_document(envelopes), space.provenance.attestations, given)


def key_of(space: clia.Space) -> SSlibKey:
    """The key of the clone, as securesystemslib takes it."""
    key = space.trust.keys().keys[0]
    public = load_ssh_public_key(key.public.encode())
    return SSlibKey.from_crypto(public, key.fingerprint, "ed25519")


@pytest.mark.parametrize("make", [in_toto, slsa])
def test_an_independent_verifier_accepts_the_envelope(space: clia.Space, commit: str, make: Any) -> None:
    envelope = make(space, commit)
    assert list(Envelope.from_dict(json.loads(json.dumps(envelope))).verify([key_of(space)], 1)) == [key_of(space).keyid]
    changed = json.loads(json.dumps(envelope | {"payload": base64.b64encode(b"{}").decode()}))
    with pytest.raises(VerificationError):
        Envelope.from_dict(changed).verify([key_of(space)], 1)


@pytest.mark.parametrize("make", [in_toto, slsa])
def test_the_in_toto_library_reads_the_statement(space: clia.Space, commit: str, make: Any) -> None:
    body = statement_of(make(space, commit))
    statement = Statement.copy_from_pb(ParseDict(body, statement_pb2.Statement()))
    statement.validate()
    [subject] = statement.pb.subject
    assert dict(subject.digest) == {"gitCommit": commit}
    assert statement.pb.predicate_type in (COMMIT_PREDICATE, SUMMARY_PREDICATE)


def test_the_predicate_says_who_wrote_the_commit_for_what_and_who_approved_it(space: clia.Space, commit: str) -> None:
    predicate = statement_of(in_toto(space, commit))["predicate"]
    key = space.trust.keys().keys[0]
    assert (predicate["space"], predicate["root"]) == (space.id, space.trust.keys().root)
    assert predicate["commit"]["subject"] == "One more apple"
    agent = predicate["agent"]
    assert (agent["name"], agent["program"], agent["model"]) == ("scout", "claude-code", "claude-opus-4-5")
    assert agent["briefing"]["title"] == BRIEFING.title
    assert predicate["signature"] == {"state": "signed", "signer": key.owner, "key": key.fingerprint}
    trace = git("log", "-1", "--format=%(trailers:key=Clia-Trace,valueonly)", commit, cwd=space.home).strip()
    assert (predicate["trace"]["digest"], predicate["trace"]["entries"]) == (trace, 1)
    [decision] = predicate["approvals"]
    assert (decision["kind"], decision["answer"], decision["strength"]) == ("decision", "yes", "attested")
    assert predicate["verification"]["result"] == "verified"


def test_the_summary_follows_the_schema_of_slsa(space: clia.Space, commit: str) -> None:
    statement = statement_of(slsa(space, commit))
    # The library's schema is of SLSA 1.0 and takes the list of levels for a text; consumers must ignore newer fields.
    levels = statement["predicate"].pop("verifiedLevels")
    summary = ParseDict(statement["predicate"], vsa_pb2.VerificationSummary(), ignore_unknown_fields=True)
    assert (summary.verification_result, summary.resource_uri) == ("PASSED", "git+https://forge.example.org/shop")
    assert levels == ["SLSA_SOURCE_LEVEL_1", "CLIA_SIGNED_AND_LOGGED", "CLIA_TRACED", "CLIA_DECIDED"]
    assert statement["subject"][0]["annotations"] == {"source_refs": ["refs/heads/agents/scout"]}


def test_an_attestation_holds_in_a_clone_and_after_more_approvals(space: clia.Space, commit: str, tmp_path: Path) -> None:
    from clia.facade.clones import provenance_of_clone

    envelope = in_toto(space, commit)
    space.ask("scout", {"question": "Really?"})
    space.decide("scout", "yes")
    [attestation] = checked(space, envelope)
    assert (attestation.holds, attestation.commits, attestation.format, attestation.trusted) == (
        True,
        (commit,),
        "in-toto",
        "enrolled",
    )
    place = tmp_path / "clone"
    git("clone", "-q", "--bare", str(tmp_path / "shop"), str(place), cwd=tmp_path)
    git("fetch", "-q", "origin", "+refs/clia/*:refs/clia/*", "+refs/notes/clia/*:refs/notes/clia/*", cwd=place)
    with provenance_of_clone(str(place), settings()) as service:
        assert check_document(lines_of_document([envelope]), service.attestations)[0].problems == ()


def test_a_key_that_is_not_enrolled_counts_only_if_it_is_given(space: clia.Space, commit: str) -> None:
    statement = statement_of(in_toto(space, commit))
    envelope = signed_envelope(statement, OTHER)
    assert "not enrolled" in checked(space, envelope)[0].problems[0]
    assert checked(space, envelope, key=OTHER.public.text)[0].trusted == "given"
    own = in_toto(space, commit)
    assert checked(space, own, key=OTHER.public.text)[0].problems


def test_a_revoked_key_is_a_problem(space: clia.Space, commit: str) -> None:
    envelope = in_toto(space, commit)
    space.trust.rotate_machine()
    assert "revoked or replaced" in checked(space, envelope)[0].problems[0]
    assert checked(space, in_toto(space, commit))[0].holds


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda body: body["predicate"]["trace"].update(digest="sha256:00"), "another trace"),
        (lambda body: body["predicate"]["commit"].update(subject="No apples"), "another commit"),
        (lambda body: body["predicate"]["signature"].update(key="SHA256:x"), "another key"),
        (lambda body: body["predicate"]["approvals"][0].update(answer="no"), "another person"),
        (lambda body: body["predicate"]["approvals"][0].update(commit={"gitCommit": "0" * 40}), "not in this clone"),
        (lambda body: body["predicate"].update(approvals=3), "cannot be read"),
        (lambda body: body["predicate"]["verification"].update(result="unsigned"), "was not verified"),
        (lambda body: body["subject"][0]["digest"].update(gitCommit="1" * 40), "not in this clone"),
    ],
)
def test_an_attestation_that_differs_from_the_record_has_a_problem(
    space: clia.Space, commit: str, change: Any, problem: str
) -> None:
    statement = statement_of(in_toto(space, commit))
    change(statement)
    [attestation] = checked(space, signed_envelope(statement, space.provenance.signer()))
    assert problem in " ".join(attestation.problems), attestation.problems


def test_a_change_after_signing_breaks_the_signature(space: clia.Space, commit: str) -> None:
    envelope = in_toto(space, commit)
    statement = statement_of(envelope)
    statement["predicate"]["agent"]["name"] = "rover"
    envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    [attestation] = checked(space, envelope)
    assert "invalid" in attestation.problems[0]
    assert attestation.key is None


def test_what_does_not_verify_is_refused_unless_the_attestation_may_state_it(
    space: clia.Space, commit: str, tmp_path: Path
) -> None:
    git("notes", "--ref", "clia/trace/scout", "add", "-f", "-m", "{}", commit, cwd=tmp_path / "shop")
    attestations = space.provenance.attestations
    error = refused("does-not-verify", lambda: attestations.require_sound(commit, allow_unsigned=False))
    assert error.fields["findings"] == ["changed-trace"]
    verdict = attestations.require_sound(commit, allow_unsigned=True)
    predicate = attestations.in_toto(commit, verdict, "1.0")["predicate"]
    assert predicate["verification"]["result"] == "failed"
    assert [finding["code"] for finding in predicate["verification"]["findings"]] == ["changed-trace"]
    summary = statement_of(slsa(space, commit, allow_unsigned=True))["predicate"]
    assert (summary["verificationResult"], summary["verifiedLevels"]) == ("FAILED", ["FAILED"])


def test_an_unsigned_space_is_refused(space: clia.Space, commit: str, tmp_path: Path) -> None:
    for ref in git("for-each-ref", "--format=%(refname)", "refs/clia/keys", "refs/clia/log", cwd=tmp_path / "shop").split():
        git("update-ref", "-d", ref, cwd=tmp_path / "shop")
    with clia.open(tmp_path / "shop", settings=settings()) as opened:
        error = refused("unsigned", lambda: opened.provenance.attestations.require_sound(commit, allow_unsigned=False))
        assert "clia key init" in error.hints[0]
        assert opened.provenance.attestations.require_sound(commit, allow_unsigned=True).result == "unsigned"
        refused("key-not-enrolled", opened.provenance.signer)


def test_a_range_names_its_commits_newest_first(space: clia.Space) -> None:
    attestations = space.provenance.attestations
    own = [entry.cid for entry in space.log("scout", own=True)]
    assert attestations.commits(f"{own[-1]}..scout") == own[:-1]
    assert attestations.commits("scout") == own[:1]
    refused("empty-range", lambda: attestations.commits("scout..scout"))
    refused("invalid-range", lambda: attestations.commits("scout~1...scout"))
    refused("no-such-object", lambda: attestations.commits("nowhere"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"payloadType": "application/vnd.in-toto+json", "payload": "e30=", "signatures": []}',
        '{"payloadType": "application/vnd.in-toto+json", "payload": "e30=", "signatures": [{"keyid": "k", "sig": "AA=="}]}',
        '{"payloadType": "application/vnd.in-toto+json", "payload": "!", "signatures": [{"keyid": "k", "sig": "AA=="}]}',
        '{"payloadType": "text/plain", "payload": "e30=", "signatures": [{"keyid": "k", "sig": "AA=="}]}',
        '{"payloadType": "a", "payload": "e30=", "signatures": [{"keyid": "k", "sig": ""}, {"keyid": "k", "sig": ""}]}',
        '{"version": "0.1.0", "files": []}',
    ],
)
def test_what_is_no_attestation_is_refused(space: clia.Space, text: str) -> None:
    refused("invalid-attestation", lambda: check_document(text, space.provenance.attestations))


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("https://example.org/shop.git", "git+https://example.org/shop.git"),
        ("https://me:secret@example.org/shop", "git+https://example.org/shop"),
        ("ssh://git@example.org/shop", "git+ssh://git@example.org/shop"),
        ("git@example.org:team/shop.git", "git+ssh://git@example.org/team/shop.git"),
    ],
)
def test_the_resource_is_the_address_of_the_remote_without_secrets(url: str, uri: str) -> None:
    assert resource_uri(url, given=False) == uri


@pytest.mark.parametrize("url", ["", "/work/shop", "../shop"])
def test_a_path_is_no_resource(url: str) -> None:
    refused("no-resource", lambda: resource_uri(url, given=False))
