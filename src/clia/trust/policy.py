"""Who may do what, with how many people and how strong proofs.

A policy is a list of rules. Every rule that matches must be met: the strictest one decides. Without any rule, the built-in policy
holds: one person who may do it; and once people have enrolled keys, a proof by such a key.

Invariant: people are counted, not keys. A policy with an unknown field is refused as a whole.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.trust.statements import ATTESTED, SSH, STRENGTHS, VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

OWNER = "owner"
"""The role that may do everything."""
ROLES = (OWNER, *VERBS)
_FIELDS = {"verbs", "agents", "kinds", "threshold", "strength"}
_RULES_MAX, _PATTERNS_MAX, _THRESHOLD_MAX = 100, 100, 20


class TrustRule(NamedTuple):
    """What certain acts need. Empty patterns match everything."""

    verbs: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()  # patterns of what the act is about: an agent, a behaviour, a peer
    kinds: tuple[str, ...] = ()  # patterns of the kind of the request that a decision answers
    threshold: int = 1  # how many people
    strength: str | None = None  # the weakest proof that counts; None: as without a rule

    def matches(self, verb: str, about: str, kind: str) -> bool:
        named = all(_any_matches(patterns, text) for patterns, text in ((self.agents, about), (self.kinds, kind)))
        return named and (not self.verbs or verb in self.verbs)

    def as_json(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in self._asdict().items() if value}


class ProofRequirement(NamedTuple):
    """What one act needs."""

    threshold: int
    strength: str


class TrustPolicy(NamedTuple):
    """The rules of a space."""

    rules: tuple[TrustRule, ...] = ()

    def requirement(self, verb: str, about: str = "", kind: str = "", *, people: bool) -> ProofRequirement:
        """What an act needs. ``people``: there are enrolled keys of people."""
        rules = [rule for rule in self.rules if rule.matches(verb, about, kind)]
        stated = [rule.strength for rule in rules if rule.strength is not None]
        strength = max(stated, key=STRENGTHS.index) if stated else SSH if people else ATTESTED
        return ProofRequirement(max([1, *(rule.threshold for rule in rules)]), strength)

    def as_json(self) -> dict[str, Any]:
        return {"rules": [rule.as_json() for rule in self.rules]}


def read_policy(value: Any) -> TrustPolicy:
    """Parse a policy's JSON; ``InvalidInput`` names the rule and the field."""
    if not isinstance(value, dict) or value.keys() != {"rules"} or not isinstance(value["rules"], list):
        raise _invalid('a policy is {"rules": […]}', "rules")
    if len(value["rules"]) > _RULES_MAX:
        raise _invalid(f"a policy has at most {_RULES_MAX} rules", "rules")
    return TrustPolicy(tuple(_rule(rule, f"rules[{number}]") for number, rule in enumerate(value["rules"])))


def _rule(value: Any, field: str) -> TrustRule:
    if not isinstance(value, dict):
        raise _invalid("a rule is an object", field)
    unknown = value.keys() - _FIELDS
    if unknown:
        raise _invalid(f"unknown field {min(unknown)!r}; a rule has {', '.join(sorted(_FIELDS))}", field)
    lists = {key: _texts(value.get(key, []), f"{field}.{key}") for key in ("verbs", "agents", "kinds")}
    wrong = set(lists["verbs"]) - set(VERBS)
    if wrong:
        raise _invalid(f"unknown verb {min(wrong)!r}; the verbs are {', '.join(VERBS)}", f"{field}.verbs")
    threshold, strength = value.get("threshold", 1), value.get("strength")
    if type(threshold) is not int or not 1 <= threshold <= _THRESHOLD_MAX:
        raise _invalid(f"a threshold is a number from 1 to {_THRESHOLD_MAX}", f"{field}.threshold")
    if strength is not None and strength not in STRENGTHS:
        raise _invalid(f"unknown strength {strength!r}; one of {', '.join(STRENGTHS)}", f"{field}.strength")
    return TrustRule(lists["verbs"], lists["agents"], lists["kinds"], threshold, strength)


def _texts(value: Any, field: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _PATTERNS_MAX or not all(isinstance(text, str) and text for text in value):
        raise _invalid(f"it must be a list of at most {_PATTERNS_MAX} texts", field)
    return tuple(value)


def check_roles(roles: Iterable[str]) -> tuple[str, ...]:
    """The roles of a person, sorted; ``InvalidInput`` if one is unknown."""
    wrong = set(roles) - set(ROLES)
    if wrong:
        raise InvalidInput(f"unknown role {min(wrong)!r}; the roles are {', '.join(ROLES)}", code="invalid-role")
    return tuple(sorted(set(roles)))


def may(roles: Sequence[str], verb: str) -> bool:
    """Whether roles allow a verb."""
    return OWNER in roles or verb in roles


def _any_matches(patterns: Sequence[str], text: str) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)


def _invalid(message: str, field: str) -> InvalidInput:
    return InvalidInput(f"{field}: {message}", code="invalid-policy", fields={"field": field})
