"""Commit pages, and the files at an agent's head.

Invariant: every name of a commit redirects to the permanent URL with its full id. Diffs, children, traces, folders and files are
bounded, and the page says what it leaves out. Files are shown only as text and never served under another content type.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise, zip_longest

from clia.errors import CorruptJournal, InvalidInput, NoSuchObject, NotFound
from clia.forge.pages.agents import new_agent
from clia.forge.pages.common import action, if_found, known_agent, page, redirect, render
from clia.forge.pages.inbox import asked_in, decided_value
from clia.forge.rendering import diffs, traces
from clia.forge.rendering.texts import escaped, visible
from clia.git.records import EXECUTABLE, FILE, FOLDER, LINK, SUBMODULE
from clia.sessions.model import HUMAN
from clia.space.attribution.authorship import in_words
from clia.space.attribution.index import FILE_MAX
from clia.trust.statements import WHOLE_QUESTION
from clia.values.refs import is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from markupsafe import Markup
    from starlette.responses import Response
    from starlette.routing import Route

    from clia.facade.local import KnownAgent
    from clia.facade.space import Space
    from clia.forge.pages.common import RefusedForm, Visit
    from clia.git.records import TreeEntry
    from clia.space.model import AgentCommit, BlamedLine

LINES_MAX, FILES_MAX, LISTED_MAX = 20_000, 300, 2000
"""Limits of a diff: rendered lines, rendered files, listed files."""
_WALKED, _CHILDREN = 5000, 50
_ENTRIES = 50
ENTRIES_MAX = 2000
FILE_LINES_MAX, CHARACTERS_MAX, LINE_MAX = 5000, 512 * 1024, 2000
KINDS = {FILE: "file", FOLDER: "folder", LINK: "link", SUBMODULE: "submodule", EXECUTABLE: "executable"}


def routes() -> list[Route]:
    at = "/commits/{cid:path}"
    return [
        action(f"{at}/agents", "commit:spawn", _spawn, _shown),
        action(f"{at}/forks", "commit:fork", _fork, _shown),
        page(at, "commit", _commit),
        page("/agents/{agent}/files", "agent:files", _files),
        page("/agents/{agent}/files/{path:path}", "agent:file", _files),
    ]


def _commit(visit: Visit) -> Response:
    cid = find(visit).cid
    return _shown(visit) if cid == visit.param("cid") else redirect(visit.address("commits", cid))


def find(visit: Visit) -> AgentCommit:
    """The commit in the URL: by id, id prefix, agent or branch."""
    text = visit.param("cid")
    try:
        return visit.space.show(text)
    except InvalidInput:  # not a valid name
        raise NoSuchObject(f"unknown agent or commit {text!r}", fields={"text": text}) from None


def _beside_the_question(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The open fields of a decision that the question does not show. The kind of a request to people goes without saying."""
    return {
        key: value for key, value in meta.items() if key not in ("asked", "cut", WHOLE_QUESTION) and (key, value) != ("kind", HUMAN)
    }


def _shown(visit: Visit, refused: RefusedForm | None = None) -> Response:
    commit, space = find(visit), visit.space
    trace = space.traces.of(commit.cid)
    entries = trace.entries if trace is not None else ()
    agent = commit.agent if commit.agent is not None and is_name(commit.agent) else None
    question, peer = asked_in(commit), None if agent is None else space.views.peer_of(agent, commit.cid)
    local = agent is not None and not peer
    return render(
        visit,
        "commit.html",
        commit=commit,
        value=decided_value(commit),
        asked=question,
        meta=commit.meta if question is None else _beside_the_question(commit.meta),
        children=space.views.children(commit.cid, _WALKED, _CHILDREN),
        entries=traces.view(entries[:_ENTRIES]),
        entry_count=len(entries),
        trace_cid=space.traces.id_of(commit.cid),
        history=space.traces.history(commit.cid),
        checkpoint=if_found(space.views.checkpoint, agent, commit.cid, missing=CorruptJournal) if local else None,
        owner=commit.agent if commit.agent in space.agents() and not peer else None,
        peer=peer,
        refused=refused,
        authorship=space.history.authorship(commit.cid, limit=1),
        in_words=in_words,
        **changed_files(space, commit.cid),
    )


def changed_files(space: Space, text: str, other: str | None = None, *, split: bool = False) -> dict[str, Any]:
    """The files that a diff touches, with the diffs of the first ones, for ``records_macros.changed_files``."""
    changes = space.history.changed(text, other)
    lines = list(accumulate((change.added or 0) + (change.removed or 0) for change in changes[:FILES_MAX]))
    chosen = changes[: max(1, bisect_right(lines, LINES_MAX))]
    paths = [path for change in chosen for path in (change.path, change.old_path) if path]
    diff = space.diff(text, other, paths=paths if len(chosen) < len(changes) else []) if chosen else ""
    patch = diffs.view(diff, split=split)
    anchors = {file.path: f"file-{number}" for number, file in enumerate(patch.files, 1)}
    listed = [
        change._replace(path=visible(change.path), old_path=change.old_path and visible(change.old_path))
        for change in changes[:LISTED_MAX]
    ]
    return {
        "files": [(change, anchors.get(change.path)) for change in listed],
        "file_count": len(changes),
        "patch": patch,
        "undiffed": len(changes) - len(chosen),
    }


# Actions


def _spawn(visit: Visit) -> str:
    commit = find(visit)
    parent = commit.agent if visit.field("parent") == "on" else None
    name, briefing = new_agent(visit)
    spawned = visit.space.spawn_at(name, briefing, commit.cid, parent, slug=visit.field("slug").strip() or None)
    return visit.address("agents", spawned.agent)


def _fork(visit: Visit) -> str:
    commit = find(visit)
    if commit.agent is None:
        raise InvalidInput("the commit does not belong to an agent, so there is no session to fork", code="no-agent")
    forked = visit.space.fork(commit.agent, visit.field("name").strip(), commit.cid)
    return visit.address("sessions", forked.agent, forked.id)


# Files


def _files(visit: Visit) -> Response:
    agent = known_agent(visit)
    path = str(visit.request.path_params.get("path", "")).rstrip("/")
    parts = tuple(path.split("/")) if path else ()
    # libgit2 would normalize other paths.
    entry = visit.space.views.entry(agent.head, path) if all(parts) and "\0" not in path and is_unicode(path) else None
    if entry is None:
        fields = {"path": path, "commit": agent.head}
        raise NotFound(f"no file {path!r} at the head of agent {agent.name!r}", code="no-such-path", fields=fields)
    return _folder(visit, agent, parts, entry.cid) if entry.mode == FOLDER else _file(visit, agent, parts, entry)


def is_unicode(text: str) -> bool:
    """Whether a name fits in a URL; git allows any bytes."""
    return text.encode("utf-8", "replace").decode("utf-8") == text


def _crumbs(parts: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Breadcrumbs: the name and URL of every parent folder and the path itself."""
    return [(visible(part), parts[:index]) for index, part in enumerate(parts, 1)]


def _folder(visit: Visit, agent: KnownAgent, parts: tuple[str, ...], tree: str) -> Response:
    entries = sorted(visit.space.views.folder(tree).items(), key=lambda entry: (entry[1] != FOLDER, entry[0]))
    items = [
        (visible(name), KINDS[mode], (*parts, name) if mode != SUBMODULE and is_unicode(name) else None)
        for name, mode in entries[:ENTRIES_MAX]
    ]
    return render(
        visit, "agent_files.html", agent=agent, crumbs=_crumbs(parts), items=items, rest=max(0, len(entries) - ENTRIES_MAX)
    )


def _file(visit: Visit, agent: KnownAgent, parts: tuple[str, ...], entry: TreeEntry) -> Response:
    size = 0 if entry.mode == SUBMODULE else visit.space.views.size(entry.cid)
    large = size > FILE_MAX
    data = b"" if large or entry.mode == SUBMODULE else visit.space.views.blob(entry.cid)
    kind = KINDS.get(entry.mode, "file")  # old versions of git wrote other file modes
    binary = b"\0" in data[:8000]
    wants_blame = visit.query("blame") == "1" and kind in ("file", "executable") and not binary and not large
    blamed = visit.space.blame(agent.head, "/".join(parts), limit=FILE_LINES_MAX) if wants_blame else []
    every = data.decode("utf-8", "replace").removesuffix("\n").split("\n") if data else []
    starts = accumulate(map(len, every), initial=0)
    lines = [text for text, start in zip(every[:FILE_LINES_MAX], starts, strict=False) if start <= CHARACTERS_MAX]
    return render(
        visit,
        "agent_file.html",
        agent=agent,
        crumbs=_crumbs(parts),
        parts=parts,
        kind=kind,
        size=size,
        binary=binary,
        large=large,
        lines=None if binary or large or kind == "submodule" else list(zip_longest(map(cut, lines), origins(blamed[: len(lines)]))),
        rest=len(every) - len(lines),
        wants_blame=wants_blame,
        blamed=bool(blamed),
        cid=entry.cid,
    )


def origins(blamed: Sequence[BlamedLine]) -> Iterator[BlamedLine | None]:
    """The origin of each line, if it differs from that of the line before."""
    for before, line in pairwise([None, *blamed]):
        same = (
            before is not None and line is not None and (before.commit, before.via, before.by) == (line.commit, line.via, line.by)
        )
        yield None if same else line


def cut(text: str) -> Markup:
    rest = len(text) - LINE_MAX
    return escaped(text if rest <= 0 else f"{text[:LINE_MAX]} … {rest:,} more characters")
