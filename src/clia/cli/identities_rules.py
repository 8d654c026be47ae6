"""``clia agents``, rules: what guardrails enforce, and what they say about an action."""

from __future__ import annotations

from clia.cli.command import LINEAGE, WHY, Answer, command, many, opt
from clia.cli.inputs import message_text
from clia.cli.output import plain
from clia.cli.rendering import show_line
from clia.rules.model import KEYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.approvals.accepted_guardrails import AcceptedLoss
    from clia.facade.space import Space
    from clia.identities.guardrails.rules import RuleExplanation
    from clia.identities.lineage import Lineage
    from clia.rules.evaluation import MatchedRule
    from clia.rules.model import GuardrailRule

_STYLES = {"deny": "bold red", "ask": "yellow", "require": "yellow", "allow": "green"}


@command("agents rules")
def agents_rules(lineage: Lineage = LINEAGE) -> Answer[list[GuardrailRule]]:
    """List the rules of an identity's guardrails.

    Exit code 1 if a rule does not parse.
    """
    from clia.identities.guardrails.rules import rules_of

    rules = list(rules_of(lineage.profile()))

    def show() -> None:
        if not rules:
            show_line("no rules: a guardrail has effect if it states some")
            return
        for rule in rules:
            show_line((rule.do, _STYLES[rule.do]), f" on {', '.join(rule.on)}: {plain(_about(rule))}")
            _show_place(rule)

    return Answer(rules, show, 1 if any(rule.problem for rule in rules) else 0, lineage.profile().diagnostics)


def _about(rule: GuardrailRule) -> str:
    if rule.problem:
        return f"does not parse: {rule.problem}"
    parts = [f"{key} {', '.join(patterns)}" for key, patterns in rule.match._asdict().items() if patterns]
    return "; ".join([*parts, *([f"needs {', '.join(rule.need)}"] if rule.need else [])]) or "everything"


@command("agents explain-rule")
def agents_explain_rule(  # the parts of an action
    on: str = opt(None, "action", choices=tuple(KEYS), required=True),
    tool: str = opt("NAME", "name of the tool", default=""),
    line: str = opt("LINE", "shell command line", "--command", default=""),
    paths: list[str] = many("FILE", "file, relative to the repository (repeatable)", "--file"),
    program: str = opt("NAME", "program in the worker's list", default=""),
    effect: str = opt("KIND", "kind of the request to a worker", default=""),
    branch: str = opt("NAME", "target branch", default=""),
    kind: str = opt("KIND", "kind of the commit", "-k --kind", default=""),
    lineage: Lineage = LINEAGE,
) -> Answer[RuleExplanation]:
    """Show what the rules say about an action, and which rule decides."""
    from clia.identities.guardrails.rules import explain_rule, rules_of
    from clia.rules.evaluation import RuledAction

    kinds = (kind,) if kind else ()
    action = RuledAction(on, tool, line or None, tuple(paths), program, effect, branch, kinds)
    explanation = explain_rule(lineage.slug or "", rules_of(lineage.profile()), action)
    return Answer(explanation, lambda: show_explanation(explanation), diagnostics=lineage.profile().diagnostics)


@command("agents accept-loss")
def agents_accept_loss(space: Space, message: str = WHY) -> Answer[AcceptedLoss]:
    """Accept, as a person, that guardrails which earlier agents had are lost.

    The decision is recorded as a commit that names them. Until then, `spawn` and `run` are refused.
    """
    accepted = space.identities.accept_loss(message_text(message))

    def show() -> None:
        for loss in accepted.lost:
            show_line("lost ", plain(str(loss)))
        if accepted.decision is None:
            show_line("no guardrails are lost")
        else:
            show_line(f"decision {accepted.decision[:10]} by {plain(accepted.by)}")

    return Answer(accepted, show)


def show_explanation(explanation: RuleExplanation) -> None:
    """Print a verdict, the rules behind it, and those that it overrules."""
    if not explanation.do:
        show_line("no rule applies")
        return
    needs = f" {', '.join(explanation.need)}" if explanation.need else ""
    risk = f"  (risk: {explanation.risk})" if explanation.risk else ""
    show_line((explanation.do, _STYLES[explanation.do]), f"{needs}{risk}")
    for match in explanation.matches:
        _show_match(match)
    if explanation.overruled:
        show_line("Overruled, because the stricter rule applies")
        for match in explanation.overruled:
            _show_match(match)


def _show_match(match: MatchedRule) -> None:
    may = "" if match.is_certain else "  (may match)"
    show_line("  ", (match.rule.do, _STYLES[match.rule.do]), f"  {plain(match.what)}{may}")
    _show_place(match.rule, "    ")


def _show_place(rule: GuardrailRule, indent: str = "  ") -> None:
    from clia.cli.identities_cards import shorten

    if rule.text:
        show_line(indent, plain(rule.text))
    show_line(indent, (shorten(rule.path), "cyan"), f" {plain(rule.pointer)}")
