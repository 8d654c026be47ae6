"""The profile that a new agent is spawned with.

Invariant: an agent gets all guardrails of its identity, or is not spawned, unless a person accepts the loss; then the profile names
the reason and what could not be read. A sub-agent without an identity of its own works under its parent's, and never has fewer
guardrails than the parent was spawned with.
"""

from __future__ import annotations

from typing import Any

from clia.errors import AgentNotFound, Conflict, InvalidInput
from clia.identities.diagnostics import ERROR
from clia.identities.merge import same
from clia.identities.service import RelativePaths, lineage_at
from clia.values.slugs import check_slug, is_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

Profile = dict[str, Any]


def spawn_profile(path: str, name: str, slug: str | None, parent: Mapping[str, Any] | None, accept: str | None) -> Profile | None:
    """The profile of the identity ``slug``, else of the one with the agent's name, else of the parent's identity.

    ``parent`` is the profile that the parent was spawned with. ``accept`` is the reason to spawn with an incomplete profile.
    """
    if accept is not None and not accept.strip():
        raise InvalidInput("the reason for an incomplete profile must not be empty", code="empty-value")
    if slug is not None:
        return _resolved(path, check_slug(slug), accept)
    if is_slug(name):
        try:
            return _resolved(path, name, accept)
        except AgentNotFound:
            pass
    return None if parent is None else _of_parent(path, parent)


def _resolved(path: str, slug: str, accept: str | None) -> Profile:
    merged = lineage_at(path, slug).profile()
    paths = RelativePaths(path)
    wrong = [paths.in_text(item.message) for item in merged.diagnostics if item.severity == ERROR]
    profile: Profile = {"slug": slug, "document": merged.document}
    if not wrong:
        return profile
    if accept is not None:
        return {**profile, "incomplete": {"reason": accept, "findings": wrong}}
    raise Conflict(
        f"the profile of {slug} is incomplete, so guardrails could be missing: {wrong[0]}",
        code="incomplete-profile",
        hints=[*wrong[1:], "fix the document, then check it: clia agents lint", "or accept it: --accept-incomplete REASON"],
        fields={"slug": slug, "findings": wrong},
    )


def _of_parent(path: str, parent: Mapping[str, Any]) -> Profile:
    """The current profile of the parent's identity, if it is complete and has all guardrails of the parent's; else the parent's."""
    frozen = {key: value for key, value in parent.items() if key != "type"}
    try:
        current = _resolved(path, check_slug(str(parent.get("slug"))), None)
    except (AgentNotFound, Conflict, InvalidInput):
        return frozen
    kept = current["document"].get("guardrails") or []
    before = (parent.get("document") or {}).get("guardrails") or []
    return current if all(any(same(item, other) for other in kept) for item in before) else frozen
