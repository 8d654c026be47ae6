"""Attestations about commits, for programs that do not know clia: in-toto Statements in DSSE envelopes.

Invariant: an attestation says what was checked here, and that the check passed. A commit that does not verify, or of a space that
is not signed, is refused unless the attestation may say so.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

from clia.errors import Conflict, InvalidInput
from clia.provenance.model import FAILED, LANDING, REVIEW, UNSIGNED, VERIFIED
from clia.space.traces import trace_in
from clia.trust.commit_checks import SIGNED
from clia.values import refs as names
from clia.values.canonical import canonical_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clia.provenance.model import LineApproval
    from clia.provenance.stories import CommitStories
    from clia.space.core import Core
    from clia.space.history import History
    from clia.space.model import AgentCommit
    from clia.space.traces import Traces

STATEMENT = "https://in-toto.io/Statement/v1"
COMMIT_PREDICATE = "tag:clia.invalid,2026:attestation/commit/v1"
"""The type of our predicate: a name that leads nowhere."""
SUMMARY_PREDICATE = "https://slsa.dev/verification_summary/v1"
TRACE_PREDICATE = "https://agent-trace.dev/schemas/v1/trace-record.json"
VERIFIER, POLICY = "tag:clia.invalid,2026:verifier", "tag:clia.invalid,2026:policy"
COMMITS_MAX, _REFS_MAX = 10_000, 50
_SLSA_VERSION, _SLSA_LEVEL = "1.2", "SLSA_SOURCE_LEVEL_1"
_SCP = re.compile(r"([\w.-]+@)?([\w.-]+):(?!//)(.+)")


class CommitVerdict(NamedTuple):
    """Whether a commit, and what stands behind it, verifies."""

    result: str  # verified, unsigned or failed
    findings: tuple[tuple[str, str], ...]  # code and message


class Attestations:
    """Makes statements about commits. ``setting`` reads git's configuration."""

    def __init__(
        self, core: Core, history: History, traces: Traces, stories: CommitStories, setting: Callable[[str], str | None]
    ) -> None:
        self._core = core
        self._history = history
        self._traces = traces
        self.stories = stories
        self._setting = setting

    def commits(self, text: str) -> list[str]:
        """The commits that a text names, newest first: one, or those of a range ``A..B``."""
        start, dots, end = text.partition("..")
        if not dots:
            return [self._history.find(text)]
        if end.startswith("."):
            raise InvalidInput(f"{text!r} is not a range: write A..B with two dots", code="invalid-range", fields={"text": text})
        find = self._history.find
        listed = [
            commit.cid for commit in islice(self._core.graph.walk([find(end or "HEAD")], [find(start or "HEAD")]), COMMITS_MAX)
        ]
        if not listed:
            raise InvalidInput(f"no commits in {text!r}", code="empty-range", fields={"text": text})
        return listed

    def require_sound(self, cid: str, *, allow_unsigned: bool) -> CommitVerdict:
        """What the checks of a commit found; ``does-not-verify`` or ``unsigned`` unless an attestation may say so."""
        verdict = self.verdict(cid)
        if verdict.result == VERIFIED or allow_unsigned:
            return verdict
        fields = {"commit": cid, "findings": [code for code, _ in verdict.findings]}
        hints = ["see: clia verify", "to attest it with these findings: --allow-unsigned"]
        if verdict.result == FAILED:
            problems = "; ".join(message for _, message in verdict.findings)
            raise Conflict(f"{cid[:10]} does not verify: {problems}", code="does-not-verify", hints=hints, fields=fields)
        if self.stories.checks.root is None:
            message, hints = (
                "this space is not signed, so there is nothing to attest",
                ["sign from now on: clia key init", *hints[1:]],
            )
        else:
            message = f"{cid[:10]} is not signed by clia: {self._core.read(cid).subject[:60]!r}"
        raise Conflict(message, code="unsigned", hints=hints, fields=fields)

    def verdict(self, cid: str) -> CommitVerdict:
        """Whether a commit and what stands behind it verify."""
        check, approvals = self.stories.check(cid), self._approvals(cid)
        findings = [*check.findings, *(finding for approval in approvals for finding in approval.findings)]
        codes = tuple(dict.fromkeys((finding.code, finding.message) for finding in findings))
        return CommitVerdict(FAILED if codes else VERIFIED if check.state == SIGNED else UNSIGNED, codes)

    # Statements

    def in_toto(self, cid: str, verdict: CommitVerdict, version: str) -> dict[str, Any]:
        """The statement with our predicate: all that the record shows about a commit."""
        core, checks = self._core, self.stories.checks
        commit, story = core.read(cid), self.stories.of(cid)
        agent = commit.agent or commit.landed
        predicate: dict[str, Any] = {
            "space": checks.space_id,
            "root": checks.root,
            "commit": _without_nothing(
                subject=commit.subject,
                kind=commit.kind,
                tree={"gitTree": commit.tree},
                parents=[{"gitCommit": parent} for parent in commit.parents],
                time=_time(commit.committer.at),
                accountable=story.accountable,
            ),
            "signature": _without_nothing(state=story.state, signer=story.signer, key=story.key),
            "approvals": [_approval(approval) for approval in self._approvals(cid)],
            "verification": {
                "result": verdict.result,
                "findings": [{"code": code, "message": message} for code, message in verdict.findings],
                "tool": {"name": "clia", "version": version},
            },
        }
        if agent is not None:
            worked = self.stories.agent_of(commit, agent)
            predicate["agent"] = _without_nothing(
                name=agent,
                identity=worked.identity,
                profile=_blob(worked.profile),
                program=worked.program,
                model=worked.model,
                behaviour=worked.behaviour,
                briefing=_without_nothing(title=worked.title, **(_blob(worked.briefing) or {})) or None,
            )
        trace = self._trace(commit)
        return self._statement(cid, COMMIT_PREDICATE, predicate | ({"trace": trace} if trace else {}))

    def slsa_source(self, cid: str, verdict: CommitVerdict, version: str, resource: str | None) -> dict[str, Any]:
        """The statement with a verification summary, as the source track of SLSA asks for."""
        chain = self.stories.checks.chain
        policy = canonical_bytes(chain.policy_at(chain.position).as_json())
        passed = verdict.result == VERIFIED
        predicate = {
            "verifier": {"id": f"{VERIFIER}/{self.stories.checks.space_id}", "version": {"clia": version}},
            "timeVerified": _time(int(self._core.clock().timestamp())),
            "resourceUri": resource_uri(resource or self._setting("remote.origin.url") or "", given=resource is not None),
            "policy": {"uri": POLICY, "digest": {"sha256": hashlib.sha256(policy).hexdigest()}},
            "verificationResult": "PASSED" if passed else "FAILED",
            "verifiedLevels": [_SLSA_LEVEL, *self._properties(cid)] if passed else ["FAILED"],
            "slsaVersion": _SLSA_VERSION,
        }
        return self._statement(cid, SUMMARY_PREDICATE, predicate)

    def agent_trace(self, cid: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """The statement with a record of Agent Trace."""
        return self._statement(cid, TRACE_PREDICATE, record)

    def _statement(self, cid: str, predicate_type: str, predicate: Mapping[str, Any]) -> dict[str, Any]:
        subject: dict[str, Any] = {"name": f"git:{cid}", "digest": {"gitCommit": cid}}
        if predicate_type == SUMMARY_PREDICATE:
            subject["annotations"] = {"source_refs": self._branches(cid)}
        return {"_type": STATEMENT, "subject": [subject], "predicateType": predicate_type, "predicate": dict(predicate)}

    def _properties(self, cid: str) -> list[str]:
        """Properties beyond the levels of SLSA: what clia verified."""
        approvals = self._approvals(cid)
        strengths = {approval.strength for approval in approvals if approval.strength not in (None, "unsigned", "attested")}
        decided = any(approval.kind not in (LANDING, REVIEW) and approval.covers for approval in approvals)
        properties = {
            "CLIA_SIGNED_AND_LOGGED": True,
            "CLIA_TRACED": self._trace(self._core.read(cid)) is not None,
            "CLIA_DECIDED": decided,
            "CLIA_PROVED_BY_PERSON": decided and bool(strengths),
        }
        return [name for name, holds in properties.items() if holds]

    def _trace(self, commit: AgentCommit) -> dict[str, Any] | None:
        cid = self._traces.cid_for(commit.cid)
        trace = None if cid is None else self._traces.read(cid)
        if cid is None or trace is None:
            return None
        digest = trace_in(self._core.objects.commit(commit.cid).message)
        return _without_nothing(digest=digest, gitBlob=cid, entries=len(trace.entries))

    def _approvals(self, cid: str) -> tuple[LineApproval, ...]:
        commit = self._core.read(cid)
        agent = commit.agent or commit.landed
        head = self._core.objects.expand("HEAD")
        if commit.landed is not None and commit.agent is None:
            self.stories.note_landing(commit.landed, cid)
        return () if agent is None else self.stories.approvals(commit, agent, None, [cid, *filter(None, [head])])

    def decision_of(self, cid: str) -> AgentCommit:
        """The commit of a decision."""
        return self._core.read(cid)

    def _branches(self, cid: str) -> list[str]:
        """The branches that have a commit."""
        heads = self._core.refs.under(names.BRANCHES)
        return list(islice((ref for ref, tip in heads if self._core.contains(tip, cid)), _REFS_MAX))


def resource_uri(url: str, *, given: bool) -> str:
    """The URI of a repository, as verification summaries name it: ``git+https://…``."""
    if given and re.fullmatch(r"[a-z][a-z0-9+.-]*:\S+", url):
        return url
    scp = _SCP.fullmatch(url)
    if url.startswith(("https://", "ssh://")):
        parts = re.fullmatch(r"(https|ssh)://(?:([^@/]*)@)?(\S+)", url)
        if parts is not None:  # a password in the address stays out
            user = f"{parts[2].partition(':')[0]}@" if parts[2] and parts[1] == "ssh" else ""
            return f"git+{parts[1]}://{user}{parts[3]}"
    if scp is not None and not given and "/" not in scp[2]:
        return f"git+ssh://{scp[1] or ''}{scp[2]}/{scp[3].lstrip('/')}"
    message = "the address of the repository is unknown" if not given else f"{url!r} is not a URI"
    hints = ["name it: --resource git+https://forge.example.org/shop"]
    raise InvalidInput(message, code="no-resource", hints=hints, fields={"option": "--resource"})


def _approval(approval: LineApproval) -> dict[str, Any]:
    return _without_nothing(
        kind=approval.kind,
        by=approval.by,
        time=None if approval.at is None else _time(approval.at),
        commit=None if approval.commit is None else {"gitCommit": approval.commit},
        answer=approval.answer,
        question=approval.question,
        reason=approval.reason,
        onto=approval.onto,
        strength=approval.strength,
    )


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _blob(cid: str | None) -> dict[str, str] | None:
    return None if cid is None else {"gitBlob": cid}


def _without_nothing(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def lines_of_document(documents: Sequence[Mapping[str, Any]]) -> str:
    """Documents as JSON Lines."""
    import json

    return "".join(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n" for document in documents)
