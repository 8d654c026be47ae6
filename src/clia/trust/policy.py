"""Who may do what, with how many people and how strong proofs.

A policy is a list of rules. Every rule that matches must be met: the strictest one decides. Without any rule, the built-in policy
holds: one person who may do it; and once people have enrolled keys, a proof by such a key.

Invariant: people are counted, not keys. A policy with an unknown field is refused as a whole.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.trust.statements import ATTESTED, DECIDE, GRANT, LAND, SSH, STRENGTHS, UNGRANT, VERBS, WAIVE
from clia.values.types import GUARDRAIL_CHANGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

OWNER = "owner"
"""The role that may do everything."""
ROLES = (OWNER, *VERBS)
_FIELDS = {"verbs", "agents", "kinds", "risks", "paths", "threshold", "strength"}
_PATTERNS = ("verbs", "agents", "kinds", "risks", "paths")
_RULES_MAX, _PATTERNS_MAX, _THRESHOLD_MAX = 100, 100, 20
_ALWAYS, _REVOKED = "always", "revoked"
FOR_CLIA = "clia"
"""The field of a question that clia reads; only its own questions have it."""
_HUMAN = "human"
POLICY_FIELDS = ("kind", "risk", "files")
"""The fields of a question that rules of a policy match."""


class PolicyAct(NamedTuple):
    """An act, as rules match it. None: it is not recorded, so every pattern matches."""

    verbs: tuple[str, ...]
    about: str = ""  # the agent, behaviour, peer or key
    kinds: tuple[str, ...] | None = ()  # of the request that a decision answers
    risks: tuple[str, ...] | None = ()  # that a question about a call names
    paths: tuple[str, ...] | None = ()  # files that it changes, or that a question names


def decided_act(agent: str, meta: Mapping[str, Any], value: Any) -> PolicyAct:
    """A decision, by the open fields of its commit and the answer."""
    question = meta.get("asked")
    if not isinstance(question, dict):
        return PolicyAct((DECIDE,), agent, None, None, None) if meta.get("asked") is None else PolicyAct((DECIDE,), agent)
    kind, risk, files = (question.get(name) for name in POLICY_FIELDS)
    verbs = [DECIDE] + ([WAIVE] if kind == GUARDRAIL_CHANGE else [])
    if FOR_CLIA in question and value in (_ALWAYS, _REVOKED):
        verbs.append(GRANT if value == _ALWAYS else UNGRANT)
    call = meta.get("kind", _HUMAN)
    kinds = tuple(text for text in (call, kind) if isinstance(text, str))
    listed = tuple(path for path in files if isinstance(path, str)) if isinstance(files, list) else ()
    paths = None if meta.get("cut") is True and not listed else listed
    return PolicyAct(tuple(verbs), agent, kinds, (risk,) if isinstance(risk, str) else (), paths)


class TrustRule(NamedTuple):
    """What certain acts need. Empty patterns match everything."""

    verbs: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()  # patterns of what the act is about: an agent, a behaviour, a peer
    kinds: tuple[str, ...] = ()  # patterns of the kind of the request that a decision answers
    risks: tuple[str, ...] = ()  # patterns of the risk that a question about a call names
    paths: tuple[str, ...] = ()  # patterns of files that a landing changes, or a question names
    threshold: int = 1  # how many people
    strength: str | None = None  # the weakest proof that counts; None: as without a rule

    def matches(self, act: PolicyAct) -> bool:
        listed = ((self.agents, (act.about,)), (self.kinds, act.kinds), (self.risks, act.risks), (self.paths, act.paths))
        return all(_any_matches(*pair) for pair in listed) and (not self.verbs or bool({*self.verbs} & {*act.verbs}))

    def as_json(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in self._asdict().items() if value}


class ProofRequirement(NamedTuple):
    """What one act needs."""

    threshold: int
    strength: str


class TrustPolicy(NamedTuple):
    """The rules of a space."""

    rules: tuple[TrustRule, ...] = ()

    def requirement(self, act: PolicyAct, *, people: bool) -> ProofRequirement:
        """What an act needs. ``people``: there are enrolled keys of people.

        Agents land their own work too, so a landing needs a proof only if a rule names a strength or more than one person.
        """
        rules = [rule for rule in self.rules if rule.matches(act)]
        threshold = max([1, *(rule.threshold for rule in rules)])
        default = SSH if people and (LAND not in act.verbs or threshold > 1) else ATTESTED
        strength = max([rule.strength for rule in rules if rule.strength is not None], key=STRENGTHS.index, default=default)
        return ProofRequirement(threshold, strength)

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
    lists = {key: _texts(value.get(key, []), f"{field}.{key}") for key in _PATTERNS}
    wrong = set(lists["verbs"]) - set(VERBS)
    if wrong:
        raise _invalid(f"unknown verb {min(wrong)!r}; the verbs are {', '.join(VERBS)}", f"{field}.verbs")
    threshold, strength = value.get("threshold", 1), value.get("strength")
    if type(threshold) is not int or not 1 <= threshold <= _THRESHOLD_MAX:
        raise _invalid(f"a threshold is a number from 1 to {_THRESHOLD_MAX}", f"{field}.threshold")
    if strength is not None and strength not in STRENGTHS:
        raise _invalid(f"unknown strength {strength!r}; one of {', '.join(STRENGTHS)}", f"{field}.strength")
    return TrustRule(**lists, threshold=threshold, strength=strength)


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


def _any_matches(patterns: Sequence[str], texts: Sequence[str] | None) -> bool:
    return not patterns or texts is None or any(fnmatchcase(text, pattern) for text in texts for pattern in patterns)


def _invalid(message: str, field: str) -> InvalidInput:
    return InvalidInput(f"{field}: {message}", code="invalid-policy", fields={"field": field})
