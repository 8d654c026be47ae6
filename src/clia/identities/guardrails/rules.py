"""The rules of an identity's guardrails, with the files that state them, and what they say about an action.

Invariant: rules are merged like guardrails, by union, so an inner document adds rules and cannot remove one. The rules of a
guardrail that an operator waived do not apply.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clia.errors import AgentNotFound, CliaError, InvalidInput
from clia.identities.diagnostics import ERROR, Diagnostic, diagnostic
from clia.identities.guardrails.waivers import guardrail_digest
from clia.identities.lineage import Lineage
from clia.identities.merge import MergedItems
from clia.identities.merge_rules import MARKS
from clia.rules.evaluation import MatchedRule, RuledAction, evaluate, reason
from clia.rules.model import ALLOW, ASK, COMMAND, EFFECT, KEYS, TOOL, GuardrailRule, RuleMatch, rules_of_guardrail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from clia.files import LocalFiles
    from clia.identities.lineage import MergedDocument
    from clia.identities.working_path import WorkingPath

FROZEN = "profile of"
"""How the path of a rule begins that comes from an agent's record: ``profile of scout``."""


class RuleExplanation(NamedTuple):
    """What the rules of an identity say about an action, and why."""

    slug: str  # the identity
    on: str  # the action: `tool`, `command`, `effect`, `commit`, `land` or `push`
    do: str  # `deny`, `ask`, `require` or `allow`; empty: no rule applies
    need: tuple[str, ...]  # of `require`: `decision`, `tests`, `trace`, `signature`
    risk: str | None  # highest risk of the rules that apply
    reason: str  # the deciding guardrail and where its rule is written
    matches: tuple[MatchedRule, ...]  # rules that apply
    overruled: tuple[MatchedRule, ...]  # rules that match, and that a stricter one overrules


def rules_of(profile: MergedDocument) -> tuple[GuardrailRule, ...]:
    """The rules of a merged profile, outermost first; those of waived guardrails are left out."""
    waived = {mark["guardrail"] for mark in profile.get(MARKS) or ()}
    return tuple(
        rule for item, path, pointer in _items(profile) if not _is(item, waived) for rule in rules_of_guardrail(item, path, pointer)
    )


def rules_of_record(agent: str, profile: Mapping[str, Any]) -> tuple[GuardrailRule, ...]:
    """The rules of the profile that an agent was spawned with. ``profile``: its ``profile.json``."""
    document = profile.get("document")
    guardrails = document.get("guardrails") if isinstance(document, dict) else None
    marks = (document.get(MARKS) if isinstance(document, dict) else None) or ()
    waived = {mark.get("guardrail") for mark in marks if isinstance(mark, dict)}
    return tuple(
        rule
        for at, item in enumerate(guardrails if isinstance(guardrails, list) else ())
        if not _is(item, waived)
        for rule in rules_of_guardrail(item, f"{FROZEN} {agent}", f"/guardrails/{at}")
    )


def rules_in_force(current: Iterable[GuardrailRule], recorded: Iterable[GuardrailRule] | None) -> tuple[GuardrailRule, ...]:
    """The rules of an agent: those at its place now, and those that it was spawned with, each once.

    ``recorded`` is None without a record. An ``allow`` counts only if the record has it: an agent may edit documents.
    """
    if recorded is None:
        return tuple(current)
    frozen = {_content(rule): rule for rule in recorded}
    now = {_content(rule): rule for rule in current if rule.do != ALLOW or rule.problem or _content(rule) in frozen}
    return tuple({**frozen, **now}.values())


def _content(rule: GuardrailRule) -> GuardrailRule:
    """A rule without its place."""
    return rule._replace(path="", pointer="" if not rule.problem else rule.pointer)


def rules_at(files: LocalFiles, place: WorkingPath, slug: str | None) -> tuple[GuardrailRule, ...]:
    """The rules of an identity at a place, with those of the root directives, which hold for all agents.

    Documents that cannot be read could state rules: then a person is asked.
    """
    try:
        try:
            profile = Lineage(files, place, slug).profile()
        except AgentNotFound:
            profile = Lineage(files, place, None).profile()
    except CliaError as error:
        return (_unreadable(str(error.fields.get("path") or place.path), error.message),)
    wrong = [item for item in profile.diagnostics if item.severity == ERROR and item.code != "invalid-rule"]
    return (*rules_of(profile), *(_unreadable(item.path or place.path, item.message) for item in wrong))


def _unreadable(path: str, problem: str) -> GuardrailRule:
    text = "A document of the identity cannot be read, so rules could be missing."
    return GuardrailRule((TOOL, COMMAND, EFFECT), ASK, RuleMatch(), (), None, text, path, "", problem)


def explain_rule(slug: str, rules: Sequence[GuardrailRule], action: RuledAction) -> RuleExplanation:
    """What rules say about an action."""
    if action.on not in KEYS:
        hints, fields = [f"one of {', '.join(KEYS)}"], {"field": "on", "on": action.on}
        raise InvalidInput(f"unknown action {action.on!r}", code="unknown-action", hints=hints, fields=fields)
    verdict = evaluate(rules, action)
    why = reason(verdict)
    return RuleExplanation(slug, action.on, verdict.do, verdict.need, verdict.risk, why, verdict.matches, verdict.overruled)


def rule_diagnostics(profile: MergedDocument) -> Iterator[Diagnostic]:
    """A finding for each rule that does not parse."""
    for item, path, pointer in _items(profile):
        for rule in rules_of_guardrail(item, path, pointer):
            if rule.problem:
                yield diagnostic("invalid-rule", rule.path, f"{rule.path}: {rule.pointer} {rule.problem}", rule.pointer)


def _is(item: Any, waived: set[Any]) -> bool:
    return bool(waived) and guardrail_digest(item) in waived


def _items(profile: MergedDocument) -> Iterator[tuple[Any, str, str]]:
    """Each guardrail with its file and the JSON pointer there."""
    provenance = profile.provenance.get("guardrails")
    if not isinstance(provenance, MergedItems):
        return
    for item, taken in zip(profile["guardrails"], provenance.items, strict=True):
        layer, pointer = taken.source
        yield item, profile.layers[layer].path, pointer
