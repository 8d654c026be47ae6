"""The matrix of rules and identities: which identity is bound by which rule, and the file that states it.

Invariant: an identity that cannot be resolved is listed with its problem and hides no other.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CliaError
from clia.forge.pages.common import page, render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.routing import Route

    from clia.forge.pages.common import Visit
    from clia.rules.model import GuardrailRule

IDENTITIES, RULES = 40, 500
"""Maximum columns and rows of the matrix."""


class MatrixRow(NamedTuple):
    """A rule, and the identities that it binds."""

    rule: GuardrailRule
    identities: frozenset[str]

    @property
    def about(self) -> str:
        """What the rule is about, in one line."""
        return about(self.rule)


def about(rule: GuardrailRule) -> str:
    """What a rule is about, in one line."""
    if rule.problem:
        return f"does not parse: {rule.problem}"
    parts = [f"{key} {', '.join(patterns)}" for key, patterns in rule.match._asdict().items() if patterns]
    return "; ".join([*parts, *([f"needs {', '.join(rule.need)}"] if rule.need else [])]) or "everything"


def routes() -> list[Route]:
    return [page("/rules", "rules", _matrix)]


def _matrix(visit: Visit) -> Response:
    listed = [identity.slug for identity in visit.space.identities().agents]
    problems: dict[str, str] = {}
    bound: dict[GuardrailRule, set[str]] = {}
    for slug in listed[:IDENTITIES]:
        try:
            rules = visit.space.identities.rules(slug)
        except CliaError as err:
            problems[slug] = err.message
            continue
        for rule in rules:
            bound.setdefault(rule, set()).add(slug)
    rows = [MatrixRow(rule, frozenset(slugs)) for rule, slugs in bound.items()]
    more = max(0, len(listed) - IDENTITIES), max(0, len(rows) - RULES)
    return render(visit, "rules.html", identities=listed[:IDENTITIES], rows=rows[:RULES], problems=problems, more=more)
