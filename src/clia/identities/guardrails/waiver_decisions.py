"""The decisions behind waivers: commits that name the guardrail and approve that it is waived.

Invariant: an entry in an agency document approves nothing by itself, because anybody can write one. It names a commit that is in
the repository of the document, records a person's approval, and lists the guardrail. In a repository with enrolled keys, the commit
is signed with one of them.
"""

from __future__ import annotations

from typing import Any

from clia.errors import CliaError
from clia.git.ref_contents import commits_in
from clia.trust.acts import meta_of
from clia.trust.key_chain import signer_fingerprint
from clia.trust.raw_commits import raw_commit
from clia.values.canonical import text_digest
from clia.values.people import AGENT_DOMAIN, name_and_email, names_agent
from clia.values.refs import KEYS, is_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.git.ref_contents import CommitReader
    from clia.trust.raw_commits import RawCommit

_PLACES_LISTED = 10  # a question names no more
DECISION, APPROVE, GUARDRAIL_CHANGE, WAIVED = "decision", "approve", "guardrail-change", "waived"


def is_decided(repository: str, decision: str, guardrail: str, directory: str | None) -> bool:
    """Whether a commit approves that a guardrail is waived.

    ``guardrail``: the hash of its text; ``directory``: where the waiver is, in the repository; None: in another repository.
    """
    if not is_id(decision):
        return False
    try:
        reader = commits_in(repository)
        data = reader.read(decision)
        if data is None:
            return False
        commit = raw_commit(decision, data)
        return _approves(commit, guardrail, directory) and _is_signed(reader, commit)
    except (CliaError, ValueError):
        return False


def _approves(commit: RawCommit, guardrail: str, directory: str | None) -> bool:
    agent, by = commit.trailer("Clia-Agent"), commit.trailer("Clia-By") or ""
    question = meta_of(commit).get("asked")
    if commit.trailer("Clia-Type") != DECISION or commit.trailer("Clia-Value") != f'"{APPROVE}"' or not isinstance(question, dict):
        return False
    name, _ = name_and_email(by)
    if not name or (agent is not None and names_agent(by, agent)) or commit.email.casefold().endswith(AGENT_DOMAIN):
        return False
    if question.get("kind") != GUARDRAIL_CHANGE:
        return False
    return any(
        text_digest(str(loss.get("guardrail"))) == guardrail and _is_at(loss, directory) for loss in _waived(question.get("losses"))
    )


def _waived(losses: Any) -> Iterator[dict[str, Any]]:
    for loss in losses if isinstance(losses, list) else ():
        if isinstance(loss, dict) and loss.get("kind") == WAIVED:
            yield loss


def _is_at(loss: dict[str, Any], directory: str | None) -> bool:
    """Whether a loss is at a directory. Questions list the first places only; then the rest is not compared."""
    places = loss.get("places")
    if directory is None or not isinstance(places, list) or not places:
        return True
    directories = [str(place).partition(" in ")[2] for place in places]
    inside = (directory in (".", place) or place.startswith(f"{directory}/") for place in directories)
    return len(places) >= _PLACES_LISTED or any(inside)


def _is_signed(reader: CommitReader, commit: RawCommit) -> bool:
    """Whether an enrolled key signed a commit, where keys are enrolled."""
    tip = reader.tip(KEYS)
    if tip is None:
        return True
    from clia.trust.key_chain import chain_of

    def read(cid: str) -> RawCommit:
        return raw_commit(cid, reader.read(cid) or b"")

    chain = chain_of(read, tip)
    return chain.root is None or chain.enrolment_of(signer_fingerprint(commit)) is not None
