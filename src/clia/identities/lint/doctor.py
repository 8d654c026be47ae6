"""Doctor: for each agent seen from a place its chain, what it inherits from where, and every finding.

Invariant: it tells, and changes nothing. Inactive agents are told about too; only lint leaves them alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clia.identities.contexts import KINDS
from clia.identities.diagnostics import in_order
from clia.identities.layers import INHERITED
from clia.identities.lint import Checker, history
from clia.identities.lint.report import summary
from clia.identities.lint.subject import Subject, look
from clia.identities.roster import is_reserved

if TYPE_CHECKING:
    from typing import Any

    from clia.identities.contexts import Context
    from clia.identities.diagnostics import Diagnostic
    from clia.identities.file_interface import Files
    from clia.identities.history_interface import History
    from clia.identities.roster import AgentTree


class Inherited(NamedTuple):
    document: str  # its kind
    path: str
    by: str

    def to_json(self) -> dict[str, str]:
        return {"document": self.document, "path": self.path, "inheritedBy": self.by}


class Examined(NamedTuple):
    slug: str
    title: str | None
    status: str | None
    active: bool
    mode: str | None  # None: its root chain cannot be used
    chain: tuple[Context, ...]
    inherits: tuple[Inherited, ...]
    findings: tuple[Diagnostic, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "slug": self.slug,
            "title": self.title,
            "status": self.status,
            "active": self.active,
            "mode": self.mode,
            "chain": [each.to_json() for each in self.chain],
            "inherits": [each.to_json() for each in self.inherits],
            "findings": [each.to_json() for each in self.findings],
        }


class DoctorReport(NamedTuple):
    path: str
    repository: str | None  # the innermost one that holds the path
    agents: tuple[Examined, ...]
    findings: tuple[Diagnostic, ...]  # those that belong to no one agent

    def all_findings(self) -> list[Diagnostic]:
        return in_order([*self.findings, *(item for each in self.agents for item in each.findings)])

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "repository": self.repository,
            "agents": [each.to_json() for each in self.agents],
            "findings": [each.to_json() for each in self.findings],
            "summary": summary(self.all_findings()),
        }


def examine(files: Files, past: History, seen: AgentTree) -> DoctorReport:
    """Looks at the agents of ``seen``; root directives show where they are inherited."""
    checker = Checker()
    general = list(seen.diagnostics)
    agents = []
    for target in seen.targets:
        subject = look(files, target)
        if not isinstance(subject, Subject):
            general += subject
        elif is_reserved(subject.slug):
            general += checker.findings(subject)
        else:
            agents.append(_examined(subject, checker))
    general += history.removed(files, past, seen)
    repository = next(reversed(seen.top.repositories), None)
    return DoctorReport(seen.top.path, repository, tuple(agents), tuple(in_order(general)))


def _examined(subject: Subject, checker: Checker) -> Examined:
    report = subject.lineage.context() if subject.lineage else None
    profile = subject.lineage.profile() if subject.lineage else None
    inherits = [
        Inherited(kind, layer.path, layer.inherited_by or "")
        for kind in KINDS
        for layer in subject.layers[kind]
        if layer.origin == INHERITED
    ]
    return Examined(
        subject.slug,
        profile.get("title") if profile else None,
        subject.status if isinstance(subject.status, str) else None,
        subject.is_active(),
        report.mode if report else None,
        report.chain if report else subject.contexts,
        tuple(inherits),
        tuple(checker.findings(subject)),
    )
