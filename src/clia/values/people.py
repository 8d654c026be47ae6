"""People and agents as decisions name them: ``Name``, or ``Name <address>``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

AGENT_DOMAIN = "@agents.clia.invalid"
"""The domain of agents' addresses. No person has one there."""


def names_agent(by: str, agent: str) -> bool:
    """Whether a text names the agent instead of a person."""
    name, email = name_and_email(by)
    return name.casefold() == agent.casefold() or email.casefold().endswith(AGENT_DOMAIN)


def is_listed(by: str, people: Iterable[str]) -> bool:
    """Whether a person is in a list of names and addresses; an empty list names everyone."""
    listed = {text.strip().casefold() for text in people}
    parts = {by.strip().casefold(), *(part.casefold() for part in name_and_email(by) if part)}
    return not listed or bool(parts & listed)


def name_and_email(by: str) -> tuple[str, str]:
    """The parts of ``Name <address>``; the address may be missing."""
    name, _, rest = by.strip().partition("<")
    return name.strip(), rest.partition(">")[0].strip()
