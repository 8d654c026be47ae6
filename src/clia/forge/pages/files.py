"""The files at an agent's head: folders, one file as text, and who wrote each line.

Invariant: a page costs what it shows: a folder's names, or a bounded part of one file, whose rest is counted. A file is only
ever text here; what is no text is said to be so, and nothing is ever handed to the browser under another type.
"""

from __future__ import annotations

from typing import NamedTuple

from starlette.routing import Route

from clia.errors import NotFound
from clia.forge.pages.common import page
from clia.forge.pages.records import core_of, known_agent, show
from clia.forge.rendering.texts import escaped, visible
from clia.git.records import EXECUTABLE, FILE, FOLDER, LINK, SUBMODULE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup
    from starlette.responses import Response

    from clia.forge.pages.common import Visit
    from clia.forge.pages.records import Known
    from clia.git.records import Entry
    from clia.space.model import BlamedLine

ENTRIES_MAX = 2000
LINES_MAX, CHARACTERS_MAX, LINE_MAX = 5000, 512 * 1024, 2000
_SNIFFED = 8000
_KINDS = {FILE: "file", FOLDER: "folder", LINK: "link", SUBMODULE: "submodule", EXECUTABLE: "executable"}


class Item(NamedTuple):
    """Something in a folder; ``parts`` is its address, None where a browser could not name it."""

    name: str
    kind: str
    parts: tuple[str, ...] | None


class Line(NamedTuple):
    number: int
    text: Markup
    origin: BlamedLine | None = None
    begins: bool = False  # whether the origin is another one than in the line before


class Text(NamedTuple):
    """What is shown of a file, and how many lines are not."""

    lines: Sequence[Line]
    rest: int


def routes(at: str) -> list[Route]:
    return [
        Route(f"{at}/files", _files, methods=["GET"], name="agent:files"),
        Route(f"{at}/files/{{path:path}}", _files, methods=["GET"], name="agent:file"),
    ]


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
        raise NotFound(f"there is no file {path!r} at the head of {agent.name!r}", code="no-such-path", fields=fields)
    return _folder(visit, agent, path, entry.cid) if entry.mode == FOLDER else _file(visit, agent, path, entry)


def _entry(visit: Visit, tree: str, path: str) -> Entry | None:
    parts = path.split("/")
    if not all(parts) or "\0" in path:
        return None  # libgit2 would look for another path than the one that was asked for
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return None
    return core_of(visit).objects.entry(tree, path)


def _crumbs(path: str) -> list[tuple[str, tuple[str, ...]]]:
    """Every folder above, and the path itself: what it is called, and its address."""
    parts = tuple(path.split("/")) if path else ()
    return [(visible(part), parts[: index + 1]) for index, part in enumerate(parts)]


def _folder(visit: Visit, agent: Known, path: str, tree: str) -> Response:
    above = tuple(path.split("/")) if path else ()
    modes = _directly_in(core_of(visit).objects.entries(tree))
    found = sorted(modes.items(), key=lambda each: (each[1] != FOLDER, each[0]))
    items = [_item(above, name, mode) for name, mode in found[:ENTRIES_MAX]]
    return show(visit, "agent_files.html", agent=agent, crumbs=_crumbs(path), items=items, rest=max(0, len(found) - ENTRIES_MAX))


def _directly_in(entries: Mapping[str, Entry]) -> dict[str, int]:
    """What stands in a folder by name, and what it is."""
    found: dict[str, int] = {}
    for path, entry in entries.items():
        name, _, below = path.partition("/")
        found[name] = FOLDER if below else entry.mode
    return found


def _item(above: tuple[str, ...], name: str, mode: int) -> Item:
    plain = name.encode("utf-8", "replace").decode("utf-8") == name  # no bytes that an address cannot carry
    kind = _KINDS[mode]
    return Item(visible(name), kind, (*above, name) if plain and kind != "submodule" else None)


def _file(visit: Visit, agent: Known, path: str, entry: Entry) -> Response:
    data = b"" if entry.mode == SUBMODULE else core_of(visit).objects.blob(entry.cid)
    kind = _KINDS.get(entry.mode, "file")  # git of old wrote other modes for files
    binary = b"\0" in data[:_SNIFFED]
    wants_blame = visit.query("blame") == "1" and kind in ("file", "executable") and not binary
    blamed = visit.site.space.blame(agent.head, path) if wants_blame and data.count(b"\n") <= LINES_MAX else []
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


def _text(data: bytes, blamed: Sequence[BlamedLine]) -> Text:
    every = data.decode("utf-8", "replace").removesuffix("\n").split("\n") if data else []
    lines: list[Line] = []
    left = CHARACTERS_MAX
    for number, text in enumerate(every[:LINES_MAX], 1):
        origin = blamed[number - 1] if number <= len(blamed) else None
        before = lines[-1].origin if lines else None
        lines.append(Line(number, _cut(text), origin, origin is not None and (before is None or before.commit != origin.commit)))
        left -= len(text)
        if left < 0:
            break
    return Text(lines, len(every) - len(lines))


def _cut(text: str) -> Markup:
    rest = len(text) - LINE_MAX
    return escaped(text) if rest <= 0 else escaped(f"{text[:LINE_MAX]} … {rest:,} more characters")
