"""The verbs of a space that are about traces.

Invariant: nothing is decided here. A verb's rules live in the module of ``clia.space`` that its line names.
"""

from __future__ import annotations

import os

from clia.errors import InvalidInput
from clia.space.pattern_search import matching
from clia.values import refs as names
from clia.values.commit_messages import check_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from clia.capture.service import Captures
    from clia.sessions.service import Running
    from clia.space.agents import Agents
    from clia.space.history import History
    from clia.space.model import BoundTrace, TraceChange, TraceHit
    from clia.space.purging import Purged, Purging
    from clia.space.traces import Traces
    from clia.values.typed_objects import ConsoleTrace


class TraceVerbs:
    """A part of ``Space``."""

    _agents: Agents
    _history: History
    _purging: Purging
    _traces: Traces
    _captures: Captures
    _running: Running

    def trace(self, name: str, kind: str, text: str, *, data: Mapping[str, Any] | None = None) -> int:
        """Appends to the agent's trace; secrets are taken out first."""
        return self._traces.add(name, kind, text, data)

    def trace_once(self, name: str, entries: Iterable[Mapping[str, Any]]) -> int:
        """Appends those entries whose ``key`` the agent's trace has not had yet; how many."""
        return self._traces.add_once(name, entries)

    def trace_pending(self, name: str) -> list[dict[str, Any]]:
        """What was traced since the last drain."""
        return self._traces.pending(name)

    def trace_for(self, commit: str) -> ConsoleTrace | None:
        """The trace bound to a commit."""
        return self._traces.trace_for(self._history.find(commit))

    def trace_cid_for(self, commit: str) -> str | None:
        """The id of the trace bound to a commit."""
        return self._traces.cid_for(self._history.find(commit))

    def session_traces(self, name: str) -> list[BoundTrace]:
        """The traces of the agent's own commits, newest first."""
        return self._traces.session_traces(name, self._history.own(name))

    def attach_trace(self, commit: str, entries: Iterable[Mapping[str, Any]] | ConsoleTrace, *, agent: str | None = None) -> str:
        """Binds a trace to any commit; its id."""
        return self._traces.attach(self._history.find(commit), entries, agent)

    def trace_history(self, commit: str) -> list[TraceChange]:
        """Every binding the commit's trace ever had, newest first."""
        return self._traces.history(self._history.find(commit))

    def trace_search(self, text: str, *, agent: str | None = None, regex: bool = False) -> list[TraceHit]:
        """Every entry that holds a text, bound or pending."""
        agents = [names.check_name(agent)] if agent else sorted({*self._agents.names(), *self._agents.names(archived=True)})
        if not check_text(text, "text", nul=True):
            raise InvalidInput("give a text to search for", code="empty-search")
        if regex:
            return matching(text, self._searched(agents))
        wanted = text.casefold()
        return list(self._traces.search(lambda entry: wanted in entry.casefold(), agents))

    def trace_purge(self, agent: str, text: str) -> Purged:
        """Replace a leaked text in the agent's traces, their history and what capture keeps of its sessions."""
        self._purging.check(agent, text)
        common_dir = os.path.dirname(os.path.dirname(self._running.workplace))
        remaining = self._captures.purge(agent, text, common_dir)
        purged = self._purging.purge(agent, text)
        return purged._replace(remaining=(*remaining, *purged.remaining))

    def _searched(self, agents: Sequence[str]) -> Iterator[tuple[str, TraceHit]]:
        """Every entry, beside the text of it that a search looks at."""
        looked_at = ""

        def take(text: str) -> bool:
            nonlocal looked_at
            looked_at = text
            return True

        for hit in self._traces.search(take, agents):  # it goes on to the next only when it is asked to
            yield looked_at, hit
