"""Commit pages, and the files at an agent's head.

Invariant: every name of a commit redirects to the permanent URL with its full id. Diffs, children, traces, folders and files are
bounded, and the page says what it leaves out. Files are shown only as text and never served under another content type.
"""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from starlette.routing import Route

from clia.errors import CorruptJournal, InvalidInput, NoSuchObject, NotFound
from clia.forge.pages.agents import new_agent
from clia.forge.pages.common import (
    ADMIN,
    Posted,
    RefusedForm,
    carry_out,
    core_of,
    first,
    form,
    known_agent,
    link,
    optional,
    page,
    redirect,
    show,
)
from clia.forge.pages.inbox_cards import asked_in
from clia.forge.rendering import diffs, traces
from clia.forge.rendering.texts import escaped, visible
from clia.git.records import EXECUTABLE, FILE, FOLDER, LINK, SUBMODULE
from clia.sessions.checkpoints import Checkpoints
from clia.values import refs as names
from clia.values.refs import is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from markupsafe import Markup
    from starlette.responses import Response

    from clia.facade.space import Space
    from clia.forge.pages.common import KnownAgent, Visit
    from clia.forge.rendering.diffs import PatchView
    from clia.git.records import FileChange, TreeEntry
    from clia.space.model import AgentCommit, BlamedLine

LINES_MAX, FILES_MAX, LISTED_MAX = 20_000, 300, 2000
"""Limits of a diff: rendered lines, rendered files, listed files."""
_WALKED, _CHILDREN = 5000, 50
_ENTRIES = 50


class Change(NamedTuple):
    """A changed file in the list; ``anchor`` links to its diff."""

    status: str
    path: str
    old_path: str | None
    added: int | None
    removed: int | None
    anchor: str | None


class Changes(NamedTuple):
    files: Sequence[Change]
    total: int
    patch: PatchView
    rest: int  # files whose diff is not shown


class Checkpoint(NamedTuple):
    """The session checkpoint at the commit."""

    session: str
    resumes: int


def routes() -> list[Route]:
    at = "/s/{space}/commits/{cid:path}"
    return [
        Route(f"{at}/agents", _spawn, methods=["POST"], name="commit:spawn"),
        Route(f"{at}/forks", _fork, methods=["POST"], name="commit:fork"),
        Route(at, _commit, methods=["GET"], name="commit"),
        Route("/s/{space}/agents/{agent}/files", _files, methods=["GET"], name="agent:files"),
        Route("/s/{space}/agents/{agent}/files/{path:path}", _files, methods=["GET"], name="agent:file"),
    ]


@page
def _commit(visit: Visit) -> Response:
    commit = find(visit)
    if commit.cid != visit.param("cid"):
        return redirect(link("s", visit.site.name, "commits", commit.cid))
    return _shown(visit, commit)


def find(visit: Visit) -> AgentCommit:
    """The commit in the URL: by id, id prefix, agent or branch."""
    text = visit.param("cid")
    try:
        return visit.site.space.show(text)
    except InvalidInput:  # not a valid name
        raise NoSuchObject(f"unknown agent or commit {text!r}", fields={"text": text}) from None


def _shown(visit: Visit, commit: AgentCommit, refused: RefusedForm | None = None) -> Response:
    space = visit.site.space
    trace = space.trace_for(commit.cid)
    entries = trace.entries if trace is not None else ()
    request, peer = asked_in(commit), _peer(visit, commit)
    return show(
        visit,
        "commit.html",
        refused.status if refused else 200,
        commit=commit,
        value=_value(commit),
        asked=request,
        meta={key: value for key, value in commit.meta.items() if request is None or key not in ("asked", "cut")},
        children=_children(visit, commit.cid),
        changes=_changes(space, commit.cid),
        entries=traces.view(entries[:_ENTRIES]),
        entry_count=len(entries),
        trace_cid=space.trace_cid_for(commit.cid),
        history=space.trace_history(commit.cid),
        checkpoint=None if peer else _checkpoint(visit, commit),
        owner=commit.agent if commit.agent in space.agents() and not peer else None,
        peer=peer,
        refused=refused,
    )


def _peer(visit: Visit, commit: AgentCommit) -> str | None:
    """The peer whose agent made the commit; None for local agents and people."""
    core, agent, cid = core_of(visit), commit.agent, commit.cid
    if agent is None or not is_name(agent):
        return None
    peers = (ref.removeprefix(names.PEERS) for ref, _ in core.refs.under(names.PEERS))
    tips = [(peer, core.refs.get(names.remote(peer, f"agents/{agent}"))) for peer in peers]
    owner = next((peer for peer, tip in tips if tip and core.graph.descends(tip, cid)), None)
    head = core.refs.get(names.head(agent)) or core.refs.get(names.archived(agent)) if owner else None
    ours = head is not None and any(own.cid == cid for own in core.own_commits(agent, head))
    return None if ours else owner


def _value(commit: AgentCommit) -> tuple[Any, ...]:
    """The decided value, parsed if possible, else as text."""
    if commit.value is None:
        return ()
    try:
        return (json.loads(commit.value),)
    except (ValueError, RecursionError):
        return (commit.value,)


def _children(visit: Visit, cid: str) -> tuple[list[str], bool]:
    """The children, and whether there may be more; the walk is bounded."""
    space = visit.site.space
    heads = sorted({space.find(name) for name in (*space.agents(), *space.agents(archived=True))})
    head = [space.find("HEAD")] if _has_head(space) else []
    walked, children = 0, []
    for child in islice(core_of(visit).graph.walk([*heads, *head], [cid]), _WALKED):
        walked += 1
        if cid in child.parents:
            children.append(child.cid)
    return children[:_CHILDREN], walked == _WALKED or len(children) > _CHILDREN


def _has_head(space: Space) -> bool:
    """Whether HEAD exists; it does not before the first commit."""
    with suppress(NoSuchObject):
        return bool(space.find("HEAD"))
    return False


def _changes(space: Space, cid: str) -> Changes:
    """The changed files, with the diffs of the first ones."""
    every = space.changed(cid)
    chosen = _chosen(every)
    paths = [] if len(chosen) == len(every) else [path for change in chosen for path in (change.path, change.old_path) if path]
    patch = diffs.view(space.diff(cid, paths=paths) if chosen else "")
    anchors = {change.path: f"file-{number}" for number, change in enumerate(patch.files, 1)}
    listed = [
        Change(
            change.status,
            visible(change.path),
            None if change.old_path is None else visible(change.old_path),
            change.added,
            change.removed,
            anchors.get(visible(change.path)),
        )
        for change in every[:LISTED_MAX]
    ]
    return Changes(listed, len(every), patch, len(every) - len(chosen))


def _chosen(every: Sequence[FileChange]) -> list[FileChange]:
    chosen: list[FileChange] = []
    left = LINES_MAX
    for file in every[:FILES_MAX]:
        left -= (file.added or 0) + (file.removed or 0)
        if left < 0 and chosen:
            break
        chosen.append(file)
    return chosen


def _checkpoint(visit: Visit, commit: AgentCommit) -> Checkpoint | None:
    """The checkpoint to fork from; None if there is none."""
    if commit.agent is None or not is_name(commit.agent):
        return None
    with suppress(CorruptJournal):
        checkpoint = Checkpoints(core_of(visit)).at(commit.agent, commit.cid)
        return None if checkpoint is None else Checkpoint(checkpoint.session, len(checkpoint.journal.resumes))
    return None


# Actions


@form(ADMIN)
def _spawn(visit: Visit, posted: Posted) -> Response:
    commit = find(visit)

    def deed() -> str:
        parent = commit.agent if first(posted, "parent") == "on" else None
        name, briefing = new_agent(posted)
        spawned = visit.site.space.spawn_at(name, briefing, commit.cid, parent, slug=optional(posted, "slug"))
        return link("s", visit.site.name, "agents", spawned.agent)

    return carry_out("spawn", posted, deed, lambda refused: _shown(visit, commit, refused))


@form(ADMIN)
def _fork(visit: Visit, posted: Posted) -> Response:
    commit = find(visit)

    def deed() -> str:
        if commit.agent is None:
            raise InvalidInput("the commit does not belong to an agent, so there is no session to fork", code="no-agent")
        forked = visit.site.space.fork(commit.agent, first(posted, "name").strip(), commit.cid)
        return link("s", visit.site.name, "sessions", forked.agent, forked.id)

    return carry_out("fork", posted, deed, lambda refused: _shown(visit, commit, refused))


ENTRIES_MAX = 2000
FILE_LINES_MAX, CHARACTERS_MAX, LINE_MAX = 5000, 512 * 1024, 2000
_SNIFFED = 8000
_KINDS = {FILE: "file", FOLDER: "folder", LINK: "link", SUBMODULE: "submodule", EXECUTABLE: "executable"}


class FolderEntry(NamedTuple):
    """A folder entry; ``parts`` is its URL path, None if the name is not valid in a URL."""

    name: str
    kind: str
    parts: tuple[str, ...] | None


class FileLine(NamedTuple):
    number: int
    text: Markup
    origin: BlamedLine | None = None
    begins: bool = False  # whether the origin differs from the previous line's


class FileText(NamedTuple):
    """The shown lines of a file, and the number of others."""

    lines: Sequence[FileLine]
    rest: int


@page
def _files(visit: Visit) -> Response:
    agent = known_agent(visit, visit.param("agent"))
    path = str(visit.request.path_params.get("path", "")).rstrip("/")
    tree = core_of(visit).objects.commit(agent.head).tree
    if not path:
        return _folder(visit, agent, "", tree)
    entry = _entry(visit, tree, path)
    if entry is None:
        fields = {"path": path, "commit": agent.head}
        raise NotFound(f"no file {path!r} at the head of agent {agent.name!r}", code="no-such-path", fields=fields)
    return _folder(visit, agent, path, entry.cid) if entry.mode == FOLDER else _file(visit, agent, path, entry)


def _entry(visit: Visit, tree: str, path: str) -> TreeEntry | None:
    parts = path.split("/")
    if not all(parts) or "\0" in path:
        return None  # libgit2 would normalize the path
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return None
    return core_of(visit).objects.entry(tree, path)


def _crumbs(path: str) -> list[tuple[str, tuple[str, ...]]]:
    """Breadcrumbs: the name and URL of every parent folder and the path itself."""
    parts = tuple(path.split("/")) if path else ()
    return [(visible(part), parts[: index + 1]) for index, part in enumerate(parts)]


def _folder(visit: Visit, agent: KnownAgent, path: str, tree: str) -> Response:
    above = tuple(path.split("/")) if path else ()
    modes = _directly_in(core_of(visit).objects.entries(tree))
    entries = sorted(modes.items(), key=lambda entry: (entry[1] != FOLDER, entry[0]))
    items = [_item(above, name, mode) for name, mode in entries[:ENTRIES_MAX]]
    return show(visit, "agent_files.html", agent=agent, crumbs=_crumbs(path), items=items, rest=max(0, len(entries) - ENTRIES_MAX))


def _directly_in(entries: Mapping[str, TreeEntry]) -> dict[str, int]:
    """The entries of a folder with their modes."""
    modes: dict[str, int] = {}
    for path, entry in entries.items():
        name, _, below = path.partition("/")
        modes[name] = FOLDER if below else entry.mode
    return modes


def _item(above: tuple[str, ...], name: str, mode: int) -> FolderEntry:
    plain = name.encode("utf-8", "replace").decode("utf-8") == name  # only valid UTF-8 fits in a URL
    kind = _KINDS[mode]
    return FolderEntry(visible(name), kind, (*above, name) if plain and kind != "submodule" else None)


def _file(visit: Visit, agent: KnownAgent, path: str, entry: TreeEntry) -> Response:
    data = b"" if entry.mode == SUBMODULE else core_of(visit).objects.blob(entry.cid)
    kind = _KINDS.get(entry.mode, "file")  # old versions of git wrote other file modes
    binary = b"\0" in data[:_SNIFFED]
    wants_blame = visit.query("blame") == "1" and kind in ("file", "executable") and not binary
    blamed = visit.site.space.blame(agent.head, path) if wants_blame and data.count(b"\n") <= FILE_LINES_MAX else []
    return show(
        visit,
        "agent_file.html",
        agent=agent,
        crumbs=_crumbs(path),
        parts=path.split("/"),
        kind=kind,
        size=len(data),
        binary=binary,
        text=None if binary or kind == "submodule" else _text(data, blamed),
        wants_blame=wants_blame,
        blamed=bool(blamed),
        cid=entry.cid,
    )


def _text(data: bytes, blamed: Sequence[BlamedLine]) -> FileText:
    every = data.decode("utf-8", "replace").removesuffix("\n").split("\n") if data else []
    lines: list[FileLine] = []
    left = CHARACTERS_MAX
    for number, text in enumerate(every[:FILE_LINES_MAX], 1):
        origin = blamed[number - 1] if number <= len(blamed) else None
        before = lines[-1].origin if lines else None
        lines.append(
            FileLine(number, _cut(text), origin, origin is not None and (before is None or before.commit != origin.commit))
        )
        left -= len(text)
        if left < 0:
            break
    return FileText(lines, len(every) - len(lines))


def _cut(text: str) -> Markup:
    rest = len(text) - LINE_MAX
    return escaped(text) if rest <= 0 else escaped(f"{text[:LINE_MAX]} … {rest:,} more characters")
