"""People's branches: their files with the author of each line, and summaries of authorship.

Invariant: a page shows one revision, and at most ``LINES_AT_ONCE`` lines, ``ENTRIES_MAX`` names or ``COMMITS_MAX`` commits of it.
Paths are in the query, percent-encoded as in attribution notes, because they may contain any bytes. Nothing is changed, except for
the notes that blame writes.
"""

from __future__ import annotations

import os

from clia.errors import NotFound
from clia.forge.pages.commits import ENTRIES_MAX, KINDS, cut, origins
from clia.forge.pages.common import page, render
from clia.forge.rendering.texts import visible
from clia.git.records import FOLDER, LINK, SUBMODULE
from clia.space.attribution.authorship import in_words
from clia.space.attribution.index import FILE_MAX
from clia.space.attribution.notes import quoted, unquoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from starlette.responses import Response
    from starlette.routing import Route

    from clia.forge.pages.common import Visit
    from clia.git.records import TreeEntry

BRANCHES_MAX, COMMITS_MAX, LINES_AT_ONCE = 500, 200, 1000


def routes() -> list[Route]:
    return [
        page("/branches", "branches", _branches),
        page("/files", "files", _files),
        page("/authorship", "authorship", _authorship),
        page("/why", "why", _why),
    ]


def _branches(visit: Visit) -> Response:
    branches = visit.space.views.branches()
    return render(visit, "branches.html", branches=branches[:BRANCHES_MAX], rest=max(0, len(branches) - BRANCHES_MAX))


def _authorship(visit: Visit) -> Response:
    rev = visit.query("rev") or "HEAD"
    summary = visit.space.history.authorship(rev, limit=COMMITS_MAX)
    return render(visit, "authorship.html", rev=rev, summary=summary, in_words=in_words)


def _files(visit: Visit) -> Response:
    rev, path = visit.query("rev") or "HEAD", unquoted(visit.query("path"))
    head, parts = visit.space.find(rev), path.split("/") if path else []
    # libgit2 would normalize other paths.
    entry = visit.space.views.entry(head, path) if all(parts) and "\0" not in path else None
    if entry is None:
        raise NotFound(f"no file {path!r} in {rev!r}", code="no-such-path", fields={"path": quoted(path), "commit": head})
    shown = _folder(visit, path, entry.cid) if entry.mode == FOLDER else _file(visit, head, rev, path, entry)
    crumbs = [(_name(part), quoted("/".join(parts[:count]))) for count, part in enumerate(parts, 1)]
    return render(visit, "branch_files.html", rev=rev, head=head, crumbs=crumbs, **shown)


def _why(visit: Visit) -> Response:
    """Why a line of a file is there."""
    rev, path = visit.query("rev") or "HEAD", unquoted(visit.query("path"))
    line = visit.number("line", 1)
    explained = visit.space.why(path, line, rev, end=visit.number("end", line))
    crumbs = [(_name(part), quoted("/".join(path.split("/")[:count]))) for count, part in enumerate(path.split("/"), 1)]
    reasons = [(reason, [cut(text) for text in reason.lines]) for reason in explained.reasons]
    return render(visit, "why.html", rev=rev, explained=explained, reasons=reasons, crumbs=crumbs)


def _name(part: str) -> str:
    return visible(os.fsencode(part).decode("utf-8", "replace"))


def _folder(visit: Visit, path: str, tree: str) -> dict[str, Any]:
    entries = sorted(visit.space.views.folder(tree).items(), key=lambda entry: (entry[1] != FOLDER, entry[0]))
    names = [(_name(name), KINDS.get(mode, "file"), quoted(f"{path}/{name}" if path else name)) for name, mode in entries]
    return {"items": names[:ENTRIES_MAX], "rest": max(0, len(names) - ENTRIES_MAX)}


def _file(visit: Visit, head: str, rev: str, path: str, entry: TreeEntry) -> dict[str, Any]:
    size = 0 if entry.mode == SUBMODULE else visit.space.views.size(entry.cid)
    large = size > FILE_MAX
    data = b"" if large or entry.mode == SUBMODULE else visit.space.views.blob(entry.cid)
    binary = b"\0" in data[:8000]
    facts = {"items": None, "kind": KINDS.get(entry.mode, "file"), "size": size, "binary": binary, "large": large, "cid": entry.cid}
    if binary or not data or entry.mode == LINK:
        return {**facts, "total": 0, "target": cut(data.decode("utf-8", "replace"))}
    total = data.count(b"\n") + (not data.endswith(b"\n"))
    start = min(max(1, visit.number("from", 1)), total)
    lines = visit.space.blame(head, path, start=start, limit=LINES_AT_ONCE)

    def at(first: int) -> str:
        return visit.address("files", rev=rev, path=quoted(path), **{"from": first})

    end = start + len(lines) - 1
    return {
        **facts,
        "total": total,
        "lines": [(line.number, cut(line.text.removesuffix("\r")), new) for line, new in zip(lines, origins(lines), strict=True)],
        "earlier": at(max(1, start - LINES_AT_ONCE)) if start > 1 else None,
        "later": at(end + 1) if end < total else None,
        "said": f"lines {start:,} to {end:,} of {total:,}",
    }
