"""Checking chains of behaviours: a commit allows no version to run that it does not state.

The tree of a commit is the state of the chain: its versions, those that a person adopted, those that are retired, and the current
one. Readers go by the tree; people state events. So the two are compared.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CliaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.trust.raw_commits import RawCommit
    from clia.trust.verification import TrustChecks

_CURRENT, _VERSIONS, _ADOPTED, _RETIRED = "current", "versions/", "adopted/", "retired/"
_MAKE_CURRENT, _ALLOW = ("define", "adopt"), ("define", "adopt", "trial")


class _RunnableVersions(NamedTuple):
    """The versions that a commit allows to run, and the current one."""

    versions: frozenset[str] = frozenset()
    current: str | None = None


class BehaviourChecks:
    def __init__(self, checks: TrustChecks) -> None:
        self._checks = checks
        self._states: dict[str, _RunnableVersions] = {}

    def check(self, commit: RawCommit, ref: str, event: Mapping[str, Any]) -> None:
        """Compare what a commit allows with its parents and its event; a commit without an event unites two chains."""
        try:
            after = self._state(commit.tree)
            before = [self._state(parent.tree) for parent in map(self._parent, commit.parents)]
        except CliaError as err:
            self._checks.found("missing-commit", f"the chain of the behaviour cannot be read: {err.message}", ref, commit.cid)
            return
        allowed = frozenset().union(*(state.versions for state in before))
        what, version = str(event.get("event")), str(event.get("cid"))
        is_automatic = event.get("automatic") is True
        stated = {version} if what in _ALLOW and len(commit.parents) < 2 and not is_automatic else set[str]()
        current = {state.current for state in before} | {None}
        current |= {version} if what in _MAKE_CURRENT and len(commit.parents) < 2 else set()
        unstated = sorted(after.versions - allowed - stated)
        if after.current not in current:
            unstated.insert(0, str(after.current))
        if unstated:
            message = f"{commit.cid} lets version {unstated[0]} of a behaviour run, which nobody adopted there"
            self._checks.found("unstated-adoption", message, ref, commit.cid)

    def _parent(self, cid: str) -> RawCommit:
        parent = self._checks.commit(cid, quiet=True)
        if parent is None:
            raise CliaError(f"{cid} is missing", code="missing-commit")
        return parent

    def _state(self, tree: str) -> _RunnableVersions:
        if tree not in self._states:
            entries = self._checks.entries(tree)
            versions, marked, retired = (
                frozenset(path.removeprefix(prefix).removesuffix(".json") for path in entries if path.startswith(prefix))
                for prefix in (_VERSIONS, _ADOPTED, _RETIRED)
            )
            entry = entries.get(_CURRENT)
            current = None if entry is None else self._checks.blob(entry.cid).decode("ascii", "replace").strip()
            # Without any mark, the chain was written when only people could add versions.
            adopted = marked if marked or retired or current is None else versions
            runnable = (adopted & versions) - retired
            self._states[tree] = _RunnableVersions(runnable | ({current} if current in versions - retired else set()), current)
        return self._states[tree]
