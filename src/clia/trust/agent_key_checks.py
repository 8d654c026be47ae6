"""Checking commits that are signed with an agent's key: it is for this agent, machine and space, and was in force.

Invariant: such a key signs its agent's own commits only. What its machine logged after the event that ended the key does not count.
"""

from __future__ import annotations

import json

from clia.errors import BadSignature
from clia.trust.agent_keys import KEY_ENDED, key_id, principal
from clia.trust.key_chain import MACHINE_KEY
from clia.trust.machine_keys import machine_name
from clia.trust.ssh_format import read_public_key
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.trust.key_chain import KeyChain
    from clia.trust.log_checks import LogChecks
    from clia.trust.machine_log import LogEntry
    from clia.trust.raw_commits import RawCommit
    from clia.trust.ssh_signatures import SshSignature
    from clia.trust.verification import TrustChecks


class AgentKeyChecks:
    def __init__(self, checks: TrustChecks) -> None:
        self._checks = checks
        self._ends: dict[str, dict[str, str]] = {}
        self._places: dict[str, dict[int, int]] = {}

    def check(self, commit: RawCommit, signature: SshSignature, chain: KeyChain, entry: LogEntry | None, logs: LogChecks) -> str:
        """The agent whose key signed a commit; ``BadSignature`` if the key may not sign it."""
        certificate, agent = signature.certificate, commit.trailer("Clia-Agent") or ""
        assert certificate is not None  # noqa: S101  # the caller asks about certified keys only
        if certificate.principals != (principal(agent),):
            who = ", ".join(certificate.principals) or "nobody"
            raise BadSignature(f"it is of agent {agent!r}, but signed with the key of {who}", code="wrong-agent-key")
        if commit.trailer("Clia-Type") == "decision":
            raise BadSignature("it is a decision, but signed with the key of an agent", code="wrong-agent-key")
        machine = machine_name(certificate.issuer)
        if certificate.key_id != key_id(agent, machine, chain.space):
            message = f"the key of agent {agent!r} was certified for something else: {certificate.key_id[:200]}"
            raise BadSignature(message, code="wrong-machine")
        if not certificate.is_valid_at(commit.at) or (entry is not None and not certificate.is_valid_at(entry.at)):
            raise BadSignature(f"the key of agent {agent!r} was not valid at that time", code="expired-agent-key")
        end = self._ends_of(agent).get(signature.key.fingerprint)
        if end is not None and entry is not None and self._is_after(machine, entry, end, chain, logs):
            raise BadSignature(f"the key of agent {agent!r} had been ended", code="expired-agent-key")
        return agent

    def _is_after(self, machine: str, entry: LogEntry, end: str, chain: KeyChain, logs: LogChecks) -> bool:
        """Whether a machine logged something after it logged the end of a key."""
        keys = (item.key for item in chain.enrolments if item.key.kind == MACHINE_KEY and _name(item.key.public) == machine)
        key = next(keys, None)
        ended = None if key is None else logs.entry_of(key, end)
        if key is None or ended is None:
            return False
        if machine not in self._places:
            self._places[machine] = {id(item): place for place, item in enumerate(logs.entries(key))}
        places = self._places[machine]
        return places.get(id(entry), 0) > places.get(id(ended), 0)

    def _ends_of(self, agent: str) -> dict[str, str]:
        """The commits of the events that ended keys of an agent, by fingerprint; the first event counts."""
        if agent not in self._ends:
            ref = names.events(agent)
            tip, ends = self._checks.refs.get(ref), dict[str, str]()
            for commit in self._checks.walk(ref, tip, set(), quiet=True) if tip is not None else ():
                body = _event(commit.trailer("Clia-Event"))
                if body.get("event") == KEY_ENDED and isinstance(body.get("key"), str):
                    ends[str(body["key"])] = commit.cid
            self._ends[agent] = ends
        return self._ends[agent]


def _event(text: str | None) -> dict[str, object]:
    try:
        body = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        body = None
    return body if isinstance(body, dict) else {}


def _name(public: str) -> str:
    return machine_name(read_public_key(public))
