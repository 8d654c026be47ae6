"""What a check of many agents found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from clia.identities.diagnostics import ERROR, INFO, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clia.identities.diagnostics import Diagnostic


class Agent(Protocol):
    """One agent that was looked at."""

    def to_json(self) -> dict[str, Any]: ...


AgentType = TypeVar("AgentType", bound=Agent)


class Report(NamedTuple, Generic[AgentType]):
    path: str
    agents: tuple[AgentType, ...]
    findings: tuple[Diagnostic, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "agents": [each.to_json() for each in self.agents],
            "findings": [each.to_json() for each in self.findings],
            "summary": summary(self.findings),
        }


def summary(findings: Iterable[Diagnostic]) -> dict[str, int]:
    """How many findings of each severity."""
    counts = {ERROR: 0, WARNING: 0, INFO: 0}
    for each in findings:
        counts[each.severity] += 1
    return counts
