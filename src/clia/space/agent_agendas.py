"""Marking items of an agenda as done, in an agent's branch.

Invariant: it is a commit of the agent that changes the item and nothing else; an item that is done is not committed again.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import Conflict, InvalidInput
from clia.git.records import TreeEntry
from clia.identities.agenda import META, find_item, marked_done
from clia.identities.contexts import AGENDA
from clia.space.agent_journals import identity_documents
from clia.space.core import CommitText
from clia.values import documents
from clia.values.typed_objects import Briefing
from clia.values.types import AGENDA_UPDATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.identities.agenda import AgendaItem
    from clia.space.agents import Agents
    from clia.space.commits import Commits
    from clia.space.core import Core


class AgendaTick(NamedTuple):
    """An item of an agenda that is done."""

    identity: str  # whose agenda it is
    item: str  # its id
    path: str  # the document that has it
    commit: str | None  # the commit that marks it; null: it was marked before


class _AlreadyDone(Exception):
    """The item is marked; ends a commit that is not needed."""


class AgentAgendas:
    """``agenda``: returns the merged agenda of an identity."""

    def __init__(self, core: Core, commits: Commits, agents: Agents, agenda: Callable[[str], Mapping[str, Any]]) -> None:
        self._core = core
        self._commits = commits
        self._agents = agents
        self._agenda = agenda

    def finish(self, name: str, item: str | None = None) -> AgendaTick:
        """Mark an item as done, by default the one that the agent was spawned for."""
        slug, item_id = self._item_of(name, item)
        chosen = find_item(self._agenda(slug), slug, item_id)
        paths: list[str] = []

        def write(tree: str) -> str:
            path, entry, text = self._marked(name, tree, slug, chosen)
            paths.append(path)
            if text is None:
                raise _AlreadyDone
            blob = self._core.objects.write_blob(text.encode("utf-8"))
            return self._core.objects.update_tree(tree, {path: TreeEntry(entry.mode, blob)})

        about = {META: {"identity": slug, "item": chosen.id, "status": "done"}}
        try:
            commit = self._commits.commit(name, AGENDA_UPDATE, write, CommitText(f"done: {chosen.title}", about))
        except _AlreadyDone:
            return AgendaTick(slug, chosen.id, paths[-1], None)
        return AgendaTick(slug, chosen.id, paths[-1], commit)

    def _item_of(self, name: str, item: str | None) -> tuple[str, str]:
        briefing = self._agents.record(name).get("briefing.json")
        named = (briefing.meta or {}).get(META) if isinstance(briefing, Briefing) else None
        if isinstance(named, dict) and isinstance(named.get("identity"), str):
            return named["identity"], item or str(named.get("item"))
        slug = (self._agents.origin_of(name).profile or {}).get("slug")
        if item is None or not isinstance(slug, str):
            message = f"the agent {name!r} was not spawned for an item of an agenda"
            hints = ["spawn agents for an item: clia spawn NAME --agenda ITEM"]
            raise InvalidInput(message, code="no-agenda-item", hints=hints, fields={"agent": name})
        return slug, item

    def _marked(self, name: str, tree: str, slug: str, item: AgendaItem) -> tuple[str, TreeEntry, str | None]:
        """The document with the item, its entry, and its text with the item marked; no text if it is marked already."""
        objects = self._core.objects
        for path, entry in identity_documents(objects, tree, slug, AGENDA)[:1]:  # further ones are not read
            data = objects.blob(entry.cid)
            document, before = documents.parse(data, path), data.decode("utf-8")
            after = marked_done(before, document, item)
            if after is not None:
                return path, entry, None if after == before else after
        message = f"the item {item.id!r} is not in the agenda of {slug} in the files of {name!r}"
        hints = ["it may be in an enclosing repository, or be newer than the agent: mark it as done there"]
        raise Conflict(message, code="agenda-item-elsewhere", hints=hints, fields={"agent": name, "item": item.id})
