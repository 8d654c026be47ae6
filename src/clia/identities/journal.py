"""The journal: entries in an identity's agency, and their transfer to an enclosing directory.

Invariant: a write goes to exactly one directory, and links cannot lead it elsewhere. Entries are appended to the directory's first
agency file, under its lock, in one atomic replacement; existing bytes never change. An idempotency key gives one entry. A new file
is named after the repository, not after a worktree of it, so that all worktrees write one file. Transfer copies entries unchanged,
so that a merge still sees one entry; its receipt is written last.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from clia.errors import FileError, InvalidDocument, InvalidInput, NotFound, UnsafePath
from clia.files import FILE, LINK, MISSING, DirectoryEntry, LocalFiles, WritableLocalFiles
from clia.identities.contexts import AGENCY, AGENTS, candidates
from clia.identities.working_path import WorkingPath, below, domain_name, inside, no_repository
from clia.values import documents
from clia.values.canonical import digest
from clia.values.clock import timestamp
from clia.values.json_text import append_to_array, pretty_bytes
from clia.values.records import EMBED, json_form
from clia.values.slugs import check_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from clia.values.clock import Clock

SCOPES = LOCAL, SUBMODULE, WORKSPACE = ("local", "submodule", "workspace")


class WriteTarget(NamedTuple):
    directory: str  # the domain directory
    home: str  # the identity's directory, links resolved; may not exist yet
    prefix: str  # short name of the domain, used as an entry's `source`
    boundary: str  # links must stay inside
    used_agents_dir: bool


def write_target(
    files: LocalFiles, place: WorkingPath, slug: str, scope: str = SUBMODULE, agents_dir: str | None = None
) -> WriteTarget:
    """The directory that a write from ``place`` goes to: below ``agents_dir`` if no repository encloses the path."""
    check_slug(slug)
    if scope == LOCAL:
        return target_at(files, place, place.path, slug)
    if place.repositories:
        return target_at(files, place, place.repositories[-1 if scope == SUBMODULE else 0], slug)
    if agents_dir is None:
        hints = ("run the command inside a git repository", "or name the directory of the identities: --agents-dir DIR")
        raise no_repository(place.path, "is not inside a repository", *hints)
    real = files.real(agents_dir)
    domain = real.removesuffix(f"/{AGENTS}") or "/"
    home = files.real(below(real, slug))
    if not inside(home, real):
        raise UnsafePath(f"{below(real, slug)} leads to {home}, outside {real}", fields={"path": home, "boundary": real})
    return WriteTarget(domain, home, _unicode(domain_name(files, domain)), real, True)


def target_at(files: LocalFiles, place: WorkingPath, directory: str, slug: str) -> WriteTarget:
    """The identity's directory below a domain directory; ``UnsafePath`` if a link leaves the repository."""
    path = below(directory, f"{AGENTS}/{slug}")
    home = files.real(path)
    boundary = next((root for root in reversed(place.repositories) if inside(directory, root)), directory)
    if not inside(home, boundary) or "/.git/" in f"{home.removeprefix(boundary)}/":
        hints, fields = ["nothing was written; replace the link with a directory"], {"path": home, "boundary": boundary}
        raise UnsafePath(f"{path} leads to {home}, outside {boundary}", hints=hints, fields=fields)
    return WriteTarget(directory, home, _unicode(domain_name(files, directory)), boundary, False)


def _unicode(name: str) -> str:
    """A name with bytes that are not Unicode escaped, because it becomes part of a document."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


SCHEMA_VERSION = "0.4.0"


def agency_paths(files: LocalFiles, target: WriteTarget) -> list[str]:
    """The agency documents that reading merges, links resolved; entries are appended to the first."""
    names, _ = candidates(files.entries(target.home) or (), AGENCY)
    paths: list[str] = []
    for name, kind in names:
        path = f"{target.home}/{name}"
        real = files.real(path) if kind == LINK else path
        if not inside(real, target.boundary) or not candidates([DirectoryEntry(real.rpartition("/")[2], FILE)], AGENCY)[0]:
            message = f"{path} leads to {real}, which is outside {target.boundary} or not an agency document"
            raise UnsafePath(message, fields={"path": path})
        if files.kind(real) == FILE and real not in paths:
            paths.append(real)
    return paths


def agency_entries(files: LocalFiles, path: str) -> tuple[list[Any], str]:
    """The entries of an agency file, and its text."""
    return entries_in(files.read(path, documents.MAX_BYTES) or b"", path)


def entries_in(data: bytes, path: str) -> tuple[list[Any], str]:
    """The entries of an agency document, and its text."""
    document = documents.parse(data, path)
    entries = document.get("entries")
    if entries is not None and not isinstance(entries, list):
        message = f"{path}: /entries must be an array, not {documents.type_name(entries)}"
        hints, fields = ["nothing was written; fix the document first"], {"path": path, "pointer": "/entries"}
        raise InvalidDocument(message, code="wrong-type", hints=hints, fields=fields)
    return entries or [], data.decode("utf-8")


def append_entries(
    files: WritableLocalFiles, target: WriteTarget, slug: str, choose: Callable[[list[Any]], Sequence[dict[str, Any]]]
) -> tuple[str, bool, tuple[dict[str, Any], ...]]:
    """Append the entries that ``choose`` returns for those of all agency files; it is called under the lock.

    Returns the path, whether the file is new, and the added entries.
    """
    files.make_directory(target.home)
    paths = agency_paths(files, target)
    # Lock the file's real directory, so that two links to one file share the lock.
    with files.exclusive(paths[0].rpartition("/")[0] if paths else target.home):
        paths = agency_paths(files, target)
        if not paths:
            path = f"{target.home}/{agency_name(slug, target.prefix)}"
            added = tuple(choose([]))
            if added:
                files.create(path, new_agency(slug, added, path))
            return path, bool(added), added
        path = paths[0]
        present, text = agency_entries(files, path)
        added = tuple(choose([*present, *(entry for other in paths[1:] for entry in agency_entries(files, other)[0])]))
        if added:
            files.replace(path, extended_agency(text, present, added, path))
        return path, False, added


def agency_name(slug: str, prefix: str) -> str:
    """The name of a new agency file."""
    return f"{slug}@{prefix}.agency.triad.json"


def new_agency(slug: str, entries: Sequence[dict[str, Any]], path: str) -> bytes:
    """A new agency document with these entries."""
    data = pretty_bytes({"schemaVersion": SCHEMA_VERSION, "slug": slug, "entries": list(entries)})
    documents.check_size(len(data), path)
    return data


def extended_agency(text: str, present: list[Any], added: Sequence[dict[str, Any]], path: str) -> bytes:
    """An agency document with its entries and new ones; every byte of it stays."""
    data = append_to_array(text, "entries", added).encode("utf-8")
    documents.check_size(len(data), path)
    if documents.parse(data, path).get("entries") != [*present, *added]:
        raise FileError(f"{path}: the entries cannot be appended safely; nothing was written", fields={"path": path})
    return data


AUTO = "auto"


class Note(NamedTuple):
    """A note for the journal."""

    text: str
    tags: Sequence[str] = ()
    signature: str = AUTO
    dirs_touched: Sequence[str] = ()
    idempotency_key: str | None = None
    kind: str = "log"
    about: Mapping[str, Any] = {}  # extensions that say what it is about, such as a commit


@json_form(commit="commit?")
class JournalResult(NamedTuple):
    """An entry of a journal that was written."""

    path: str  # the agency file; in the tree of the agent, if it was written into a branch
    entry: dict[str, Any]  # the entry as it is in the file
    sha256: str  # of the entry; waivers name approvals by it
    appended: bool  # false: an entry with this idempotency key exists
    created: bool  # whether the file is new
    commit: str | None = None  # the commit of the agent; only if the entry was written into a branch


def append_note(
    files: WritableLocalFiles, target: WriteTarget, slug: str, note: Note, *, signature: str, clock: Clock
) -> JournalResult:
    """Append ``note`` to the agency at ``target``; ``signature`` replaces ``auto``."""
    check_note(note)
    entry = journal_entry(slug, note, signature if note.signature == AUTO else note.signature, target.prefix, timestamp(clock()))
    same: list[dict[str, Any]] = []  # entries with this idempotency key

    def choose(present: list[Any]) -> list[dict[str, Any]]:
        same.extend(with_key(present, note.idempotency_key))
        return [] if same else [entry]

    path, created, added = append_entries(files, target, slug, choose)
    written = same[0] if same else entry
    return JournalResult(path, written, digest(written), bool(added), created)


def check_note(note: Note) -> None:
    """``InvalidInput`` if a note is empty, or no text."""
    for field, value in (("note", note.text), ("signature", note.signature), ("idempotency-key", note.idempotency_key)):
        if value is not None and not value.strip():
            raise InvalidInput(f"{field} must not be empty", code="empty-value", fields={"field": field})
    texts = [note.text, note.signature, note.idempotency_key or "", *note.tags, *note.dirs_touched]
    if re.search("[\0\ud800-\udfff]", "".join(texts)):
        raise InvalidInput("a journal entry must be Unicode text without NUL", code="invalid-text")


def journal_entry(slug: str, note: Note, signature: str, source: str, moment: str) -> dict[str, Any]:
    """The entry for a note."""
    entry: dict[str, Any] = {
        "timestamp": moment,
        "kind": note.kind,
        "summary": note.text,
        "signature": signature,
        "source": source,
        "contributions": [{"by": slug, "types": [{"type": note.kind, "weight": 1, "evidence": note.text}]}],
    }
    tags = list(dict.fromkeys(tag.strip() for tag in note.tags if tag.strip()))
    extensions = {"x-dirsTouched": list(dict.fromkeys(note.dirs_touched)), "x-idempotencyKey": note.idempotency_key, **note.about}
    optional = {"tags": tags, "extensions": {key: value for key, value in extensions.items() if value}}
    return entry | {key: value for key, value in optional.items() if value}


def with_key(entries: Iterable[Any], key: str | None) -> list[dict[str, Any]]:
    """The entries with an idempotency key."""
    return [entry for entry in entries if key and _idempotency_key(entry) == key]


def _idempotency_key(entry: Any) -> Any:
    extensions = entry.get("extensions") if isinstance(entry, dict) else None
    return extensions.get("x-idempotencyKey") if isinstance(extensions, dict) else None


_DIGEST = re.compile(r"[0-9a-f]{6,64}")


class EntrySummary(NamedTuple):
    """An entry of a journal, in short."""

    sha256: str  # of the entry
    timestamp: Any  # when it was written
    summary: Any  # what happened
    source: Any  # the context that it comes from


@json_form(entry=EMBED)
class TransferredEntry(NamedTuple):
    """An entry that is copied to an enclosing directory."""

    entry: EntrySummary
    new: bool  # false: it is already there


@json_form("slug", "source_file", "directory", "summaries", "receipt", source_file="from", directory="to", summaries="entries")
class TransferPlan(NamedTuple):
    """The entries that are copied to an enclosing directory."""

    slug: str  # the identity
    source: WriteTarget
    source_file: str  # the agency file that they are in
    target: WriteTarget
    entries: tuple[dict[str, Any], ...]  # selected
    missing: tuple[dict[str, Any], ...]  # not yet at the target
    receipt: str  # file that records the transfer

    @property
    def directory(self) -> str:
        """The directory of the identity that receives them."""
        return self.target.home

    @property
    def summaries(self) -> list[TransferredEntry]:
        """The selected entries."""
        new = {digest(entry) for entry in self.missing}
        return [TransferredEntry(_entry_summary(entry), digest(entry) in new) for entry in self.entries]


def plan_transfer(files: LocalFiles, slug: str, source: WriteTarget, target: WriteTarget, selectors: Sequence[str]) -> TransferPlan:
    """Plan a transfer; changes nothing."""
    if source.directory == target.directory or not inside(source.directory, target.directory):
        message = f"{target.directory} does not enclose {source.directory}: entries can only be copied upwards"
        raise InvalidInput(message, code="not-enclosing", fields={"from": source.directory, "to": target.directory})
    paths = agency_paths(files, source)
    if not paths:
        raise NotFound(f"{source.home} has no agency document", fields={"path": source.home})
    path = paths[0]
    present = [entry for journal in paths for entry in agency_entries(files, journal)[0]]
    chosen = _select_entries([entry for entry in present if isinstance(entry, dict)], selectors, path)
    present_digests = {digest(entry) for other in agency_paths(files, target) for entry in agency_entries(files, other)[0]}
    name = digest([source.prefix, slug, [digest(entry) for entry in chosen]])[:16]
    receipt = f"{target.home}/receipts/transfer-{name}.json"
    if files.real(receipt) != receipt:
        raise UnsafePath(f"{receipt} is behind a link; nothing was copied", fields={"path": receipt})
    missing = tuple(entry for entry in chosen if digest(entry) not in present_digests)
    return TransferPlan(slug, source, path, target, tuple(chosen), missing, receipt)


def apply_transfer(files: WritableLocalFiles, planned: TransferPlan, clock: Clock) -> tuple[dict[str, Any], ...]:
    """Copy the missing entries and write the receipt; returns the copied entries."""

    def choose(present: list[Any]) -> list[dict[str, Any]]:
        digests = {digest(entry) for entry in present}
        return [entry for entry in planned.entries if digest(entry) not in digests]

    _, _, added = append_entries(files, planned.target, planned.slug, choose)
    if files.kind(planned.receipt) == MISSING:
        receipt = {
            "type": "transfer-receipt",
            "slug": planned.slug,
            "timestamp": timestamp(clock()),
            "from": planned.source.directory.removeprefix(planned.target.directory).lstrip("/"),
            "file": planned.source_file.rpartition("/")[2],
            "entries": [_entry_summary(entry)._asdict() for entry in planned.entries],
        }
        files.make_directory(planned.receipt.rpartition("/")[0])
        files.replace(planned.receipt, pretty_bytes(receipt))
    return added


def _entry_summary(entry: dict[str, Any]) -> EntrySummary:
    return EntrySummary(digest(entry), *(entry.get(key) for key in ("timestamp", "summary", "source")))


def _select_entries(entries: list[dict[str, Any]], selectors: Sequence[str], path: str) -> list[dict[str, Any]]:
    """The entries that match any selector, in file order; all without selectors."""
    if not selectors or "all" in selectors:
        return entries
    chosen: set[int] = set()
    for selector in selectors:
        hits = [index for index, entry in enumerate(entries) if _matches_selector(entry, selector)]
        if not hits:
            message, fields = f"{path}: no entry matches {selector!r}", {"selector": selector, "path": path}
            hints = ["select by sha256 (at least six digits), timestamp or its start, or tag:NAME"]
            raise NotFound(message, code="no-such-entry", hints=hints, fields=fields)
        chosen.update(hits)
    return [entries[index] for index in sorted(chosen)]


def _matches_selector(entry: dict[str, Any], selector: str) -> bool:
    if selector.startswith("tag:"):
        tags = entry.get("tags")
        return isinstance(tags, list) and selector.removeprefix("tag:") in tags
    moment = entry.get("timestamp")
    if len(selector) >= 4 and isinstance(moment, str) and moment.startswith(selector):
        return True
    return bool(_DIGEST.fullmatch(selector)) and digest(entry).startswith(selector)
