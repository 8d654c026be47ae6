"""Journal entries in an agent's branch.

Invariant: an entry is a commit of the agent that changes the journal of its identity and nothing else, so no directory of a person
is written. An idempotency key gives one entry. Before a checkout of the agent is committed, it gets the entries that were added to
the branch meanwhile, so both are there once.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CliaError, NotFound, UnsafePath
from clia.files import FILE as REGULAR
from clia.files import DirectoryEntry, LocalFiles, WritableLocalFiles
from clia.git.records import EXECUTABLE, FILE, FOLDER, LINK, TreeEntry
from clia.identities import journal
from clia.identities.contexts import AGENCY, AGENTS, candidates
from clia.identities.journal_union import is_journal, merge_journals
from clia.identities.working_path import domain_name
from clia.space.core import CommitText
from clia.values.canonical import digest
from clia.values.clock import timestamp
from clia.values.types import JOURNAL_ENTRY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.git.libgit2 import GitHandle
    from clia.git.objects import GitObjects
    from clia.identities.journal import JournalResult, Note
    from clia.space.agents import Agents
    from clia.space.commits import Commits
    from clia.space.core import Core

_SUBJECT = 72


class _Present(Exception):  # ends a commit that is not needed
    """An entry with this key exists."""

    def __init__(self, path: str, entry: dict[str, Any]) -> None:
        super().__init__()
        self.path, self.entry = path, entry


class JournalPlace(NamedTuple):
    """The journal of an identity in an agent's files."""

    slug: str
    directory: str = ""  # the directory with `.clia`; empty: the top


class _AgencyDocuments(NamedTuple):
    """The agency documents of an identity in a tree."""

    first: str  # the path that entries are appended to
    data: bytes | None  # its content; None: it does not exist yet
    mode: int
    others: tuple[tuple[str, bytes], ...]  # further documents, which are merged when the journal is read


class AgentJournals:
    def __init__(self, core: Core, commits: Commits, agents: Agents, handle: GitHandle) -> None:
        self._core = core
        self._commits = commits
        self._agents = agents
        self._handle = handle

    def append(self, name: str, note: Note) -> JournalResult:
        """Append an entry to the journal of the agent's identity, as a commit of the agent."""
        core = self._core
        profile = dict(self._agents.origin_of(name).profile or {})
        if not isinstance(profile.get("slug"), str):
            core.require_head(name)
            hints = ["spawn agents under an identity: clia spawn NAME --as SLUG", "an agent without one has its trace: clia trace"]
            raise NotFound(f"the agent {name!r} works under no identity, so it has no journal", code="no-identity", hints=hints)
        journal.check_note(note)
        slug = str(profile["slug"])
        clean = note._replace(text=core.clean.text(note.text, "note"), tags=[core.clean.text(tag, "tags") for tag in note.tags])
        entry = self._entry(slug, profile, clean)
        result: list[JournalResult] = []

        def write(tree: str) -> str:
            documents = self._journal_in(tree, slug)
            path, data = self._appended(documents, slug, entry, note.idempotency_key)
            result.append(journal.JournalResult(path, entry, digest(entry), True, documents.data is None))
            return core.objects.update_tree(tree, {path: TreeEntry(documents.mode, core.objects.write_blob(data))})

        subject = clean.text.strip().split("\n", 1)[0]
        words = CommitText(f"journal: {subject if len(subject) <= _SUBJECT else subject[: _SUBJECT - 1] + '…'}")
        try:
            commit = self._commits.commit(name, JOURNAL_ENTRY, write, words)
        except _Present as present:
            return journal.JournalResult(present.path, present.entry, digest(present.entry), False, False)
        return result[-1]._replace(commit=commit)

    def record(self, name: str, entries: Mapping[JournalPlace, dict[str, Any]], key: str, subject: str) -> str | None:
        """Append an entry to each of several journals in the agent's files, as one commit; None if all of them are there."""
        core = self._core

        def write(tree: str) -> str:
            changes: dict[str, TreeEntry] = {}
            present: list[_Present] = []
            for place, entry in entries.items():
                documents = self._journal_in(tree, *place)
                try:
                    path, data = self._appended(documents, place.slug, entry, key)
                except _Present as same:
                    present.append(same)
                else:
                    changes[path] = TreeEntry(documents.mode, core.objects.write_blob(data))
            if not changes:
                raise present[0]
            return core.objects.update_tree(tree, changes)

        try:
            return self._commits.commit(name, JOURNAL_ENTRY, write, CommitText(subject))
        except _Present:
            return None

    def log(self, name: str, text: str, kind: str, key: str, about: Mapping[str, str]) -> None:
        """Write an entry about something that is recorded, if the agent has a journal. A failure is a notice."""
        fields = {f"x-{field}": value for field, value in {"agent": name, **about}.items()}
        try:
            self.append(name, journal.Note(text, kind=kind, idempotency_key=key, about=fields))
        except CliaError as err:
            if err.code != "no-identity":
                self._core.notify(f"recorded, but the journal could not be written: {err.message}")

    def _entry(self, slug: str, profile: dict[str, Any], note: Note) -> dict[str, Any]:
        extensions = (profile.get("document") or {}).get("extensions") or {}
        own = extensions.get("journalSignature") if isinstance(extensions, dict) else None
        automatic = own if isinstance(own, str) and own.strip() else f"-{slug}"
        signature = automatic if note.signature == journal.AUTO else note.signature
        return journal.journal_entry(slug, note, signature, self.source(), timestamp(self._core.clock()))

    def source(self) -> str:
        """The name of the repository, as journals written into a directory name it."""
        if self._handle.work_dir is not None:
            return domain_name(LocalFiles(), self._handle.work_dir)
        return self._handle.git_dir.rpartition("/")[2].removesuffix(".git") or "root"

    def _journal_in(self, tree: str, slug: str, directory: str = "") -> _AgencyDocuments:
        objects = self._core.objects
        documents = identity_documents(objects, tree, slug, AGENCY, directory)
        if not documents:
            home = f"{directory}/{AGENTS}/{slug}".lstrip("/")
            name = directory.rpartition("/")[2] or self.source()
            return _AgencyDocuments(f"{home}/{journal.agency_name(slug, name)}", None, FILE, ())
        (first, entry), *more = documents
        others = tuple((path, objects.blob(other.cid)) for path, other in more)
        return _AgencyDocuments(first, objects.blob(entry.cid), entry.mode, others)

    def _appended(self, documents: _AgencyDocuments, slug: str, entry: dict[str, Any], key: str | None) -> tuple[str, bytes]:
        """The document that gets the entry, and its new content; ``_Present`` if an entry has the key."""
        if documents.data is None:
            return documents.first, journal.new_agency(slug, [entry], documents.first)
        present, text = journal.entries_in(documents.data, documents.first)
        earlier = [*present, *(other for path, data in documents.others for other in journal.entries_in(data, path)[0])]
        for same in journal.with_key(earlier, key):
            raise _Present(documents.first, same)
        return documents.first, journal.extended_agency(text, present, [entry], documents.first)

    def bring(self, directory: str, base: str, head: str) -> bool:
        """Add the entries of the branch to the journals in a checkout, so that it can be committed on the head.

        False if the branch also changed other files, or a journal in the directory cannot be joined; nothing is changed then.
        """
        objects = self._core.objects
        before, after = objects.entries(objects.commit(base).tree), objects.entries(objects.commit(head).tree)
        changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
        files = WritableLocalFiles()
        joined: dict[str, bytes] = {}
        for path in changed:
            data = self._joined(files, f"{directory}/{path}", path, before.get(path), after.get(path))
            if data is None:
                return False
            joined[path] = data
        for path in joined:
            self._write_joined(files, f"{directory}/{path}", path, before.get(path), after[path])
        return True

    def _joined(self, files: LocalFiles, place: str, path: str, before: TreeEntry | None, after: TreeEntry | None) -> bytes | None:
        """The content of a journal with the entries of the branch; None if it cannot be joined."""
        if not is_journal(path) or after is None or any(entry and entry.mode in (LINK, FOLDER) for entry in (before, after)):
            return None
        if files.real(place) != place:
            return None
        theirs = self._core.objects.blob(after.cid)
        try:
            ours = files.read(place, 2**31)
        except CliaError:
            return None
        if ours is None:
            return theirs if before is None else None  # a journal that was deleted here stays a conflict
        return merge_journals(path, self._core.objects.blob(before.cid) if before else None, ours, theirs)

    def _write_joined(self, files: WritableLocalFiles, place: str, path: str, before: TreeEntry | None, after: TreeEntry) -> None:
        """Write a joined journal under its lock: the program in the checkout may append to it at the same time."""
        directory = place.rpartition("/")[0]
        files.make_directory(directory)
        with files.exclusive(directory):
            data = self._joined(files, place, path, before, after)
            if data is not None:
                files.replace(place, data)


def identity_documents(objects: GitObjects, tree: str, slug: str, kind: str, directory: str = "") -> list[tuple[str, TreeEntry]]:
    """The documents of an identity in a tree, best first. ``UnsafePath`` if one of them, or a directory above, is a link.

    ``directory``: the one with `.clia`; empty: the top.
    """
    folder, path = tree, ""
    for name in (*filter(None, directory.split("/")), *AGENTS.split("/"), slug):
        path = f"{path}/{name}" if path else name
        entry = objects.entry(tree, path)
        if entry is None:
            return []
        if entry.mode != FOLDER:
            raise _not_regular(path)
        folder = entry.cid
    entries = dict(objects.listing(folder))
    names, _ = candidates([DirectoryEntry(name, REGULAR) for name in entries], kind)
    for name, _kind in names:
        if entries[name].mode not in (FILE, EXECUTABLE):
            raise _not_regular(f"{path}/{name}")
    return [(f"{path}/{name}", entries[name]) for name, _kind in names]


def _not_regular(path: str) -> UnsafePath:
    return UnsafePath(
        f"{path} in the agent's files is not a regular journal", hints=["replace the link with a file"], fields={"path": path}
    )
