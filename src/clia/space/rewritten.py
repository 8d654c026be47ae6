"""Notes of rewritten commits: traces and checkpoints follow an agent's commits through a rebase or an amendment.

git gives rewritten commits new ids, and notes are bound to ids. A copy is recognised by what a rebase keeps: author, time, message,
kind and, for a decision, the request and the answer. So decisions are found too, which change no file.

Invariant: notes are only added. A note is carried only if all former commits that a copy may come from have the same one.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from clia.space.model import agent_commit
from clia.values import refs as names
from clia.values.typed_objects import ConsoleTrace, as_bytes, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from clia.space.core import Core
    from clia.space.model import AgentCommit


class LeftNote(NamedTuple):
    """A note that is bound to a former commit, and not to its copy on the branch."""

    ref: str
    commit: str  # the copy
    source: str
    blob: str


class Rewritten(NamedTuple):
    core: Core

    def left(self, name: str, head: str) -> list[LeftNote]:
        """The notes that the copies on an agent's branch lack."""
        core, left_notes = self.core, list[LeftNote]()
        own: list[AgentCommit] | None = None
        for ref in (names.sessions(name), names.traces(name)):
            bound = core.notes.all(ref)
            if bound:
                own = list(core.own_commits(name, head)) if own is None else own
                left_notes += self._left(ref, name, own, bound)
        return left_notes

    def without_copies(self, name: str, sources: Iterable[str], squash: AgentCommit) -> list[str]:
        """The commits that are not on the agent's branch, neither as they are nor as copies other than ``squash``."""
        head = self.core.refs.get(names.head(name))
        own = self.core.own_commits(name, head) if head is not None else ()
        on_branch = {_kept(commit) for commit in own if commit.cid != squash.cid}
        return [cid for cid in sources if _kept(self.core.read(cid)) not in on_branch]

    def carry(self, name: str, head: str) -> list[LeftNote]:
        """Bind these notes to the copies, too. The caller holds the agent's lock."""
        core, left = self.core, self.left(name, head)
        for note in left:
            blob = note.blob if note.ref == names.sessions(name) else self._trace_for(note, name)
            core.notes.bind(note.ref, note.commit, blob, core.person_stamp(), f"rewritten: note of {note.source}\n")
        return left

    def _left(self, ref: str, name: str, own: list[AgentCommit], bound: Mapping[str, str]) -> list[LeftNote]:
        lacking = [commit for commit in own if commit.cid not in bound]
        former = bound.keys() - {commit.cid for commit in own}
        if not lacking or not former:
            return []
        sources = self._sources(name, sorted(former), bound)
        pairs = ((commit.cid, sources.get(_kept(commit))) for commit in lacking)
        return [LeftNote(ref, cid, source, bound[source]) for cid, source in pairs if source is not None]

    def _sources(self, name: str, cids: Iterable[str], bound: Mapping[str, str]) -> dict[tuple[object, ...], str | None]:
        """The former commits by what a rebase keeps; None if several have different notes."""
        core = self.core
        sources: dict[tuple[object, ...], str | None] = {}
        for cid in cids:
            commit = agent_commit(core.objects.commit(cid)) if core.objects.kind(cid) == "commit" else None
            if commit is None or commit.agent != name:
                continue
            other = sources.setdefault(_kept(commit), cid)
            if other is not None and self._content(bound[other]) != self._content(bound[cid]):
                sources[_kept(commit)] = None
        return sources

    def _content(self, blob: str) -> str:
        """A note without the commit that it names."""
        body = parse(self.core.objects.blob(blob))
        return blob if body is None else json.dumps({key: body[key] for key in body if key != "commit"}, sort_keys=True)

    def _trace_for(self, note: LeftNote, name: str) -> str:
        body = parse(self.core.objects.blob(note.blob))
        if body is None or body["type"] != "console-trace":
            return note.blob
        trace = ConsoleTrace(note.commit, name, tuple(body["entries"]))
        return self.core.objects.write_blob(as_bytes(trace.to_object()))


def _kept(commit: AgentCommit) -> tuple[object, ...]:
    return commit.author, commit.kind, commit.message, commit.request, commit.value, commit.by
