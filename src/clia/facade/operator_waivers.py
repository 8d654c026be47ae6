"""An operator's decision on a waiver, outside of an agent's branch.

Invariant: the commit of the decision names the guardrail by its text, and is written before the entry that names the commit. It is
kept by a ref of the repository that the entry is written to, which need not be a space.
"""

from __future__ import annotations

import os

from clia.errors import InvalidInput, NotFound
from clia.facade.backends import connect
from clia.facade.opening import repository_at
from clia.facade.settings import Settings, clock_of, person_of
from clia.git.records import Stamp
from clia.identities.guardrails.waiver_decisions import APPROVE, DECISION, GUARDRAIL_CHANGE, WAIVED
from clia.identities.guardrails.waivers import guardrail_digest
from clia.identities.lineage import lineage
from clia.identities.merge_rules import projected_text
from clia.redaction.secrets import redact
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import compose
from clia.verbs import channel

REF = "refs/clia/waivers"
"""Keeps the decisions of operators."""


def decide_waiver(directory: str, guardrail: str, note: str, settings: Settings | None = None) -> str:
    """Write the commit of an operator's decision that a guardrail is waived; returns its id.

    ``directory``: that of the agency document; ``guardrail``: the guardrail's text.
    """
    chosen = settings or Settings()
    git = connect(repository_at(directory), chosen)
    person = person_of(chosen, git.setting)
    stamp = Stamp(person.name, person.email, int(clock_of(chosen)().timestamp()))
    text = redact(note).text
    question = {"kind": GUARDRAIL_CHANGE, "losses": [{"kind": WAIVED, "guardrail": guardrail}], "question": f"Waive {guardrail!r}?"}
    trailers = [
        ("Clia-Type", DECISION),
        ("Clia-Value", f'"{APPROVE}"'),
        ("Clia-By", f"{person.name} <{person.email}>"),
        ("Clia-Channel", channel()),
        ("Clia-Meta", canonical_bytes({"asked": question}).decode("utf-8")),
    ]
    tip = git.refs.get(REF)
    tree = git.objects.update_tree(None, {})
    commit = git.objects.write_commit(tree, [tip] if tip else [], stamp, stamp, compose(text, trailers, "waiver"))
    git.refs.move(REF, tip, commit, "clia: waiver")
    return commit


def guardrail_text(path: str, digest: str, slugs: list[str]) -> str:
    """The text of a guardrail that binds one of these identities at a path, by its hash or the hash's start."""
    if len(digest) < 6:
        raise InvalidInput("name the guardrail by six digits of its hash or more", code="invalid-hash", fields={"field": "waives"})
    texts = {
        projected_text(item)
        for slug in slugs
        for item in lineage(path, slug).profile().get("guardrails") or ()
        if guardrail_digest(item).startswith(digest)
    }
    if len(texts) != 1:
        hints = ["clia agents explain /guardrails/0 shows the hash"]
        message = f"no guardrail at {os.path.abspath(path)} has the hash {digest}"
        raise NotFound(message, code="no-such-guardrail", hints=hints, fields={"guardrail": digest})
    return texts.pop()
