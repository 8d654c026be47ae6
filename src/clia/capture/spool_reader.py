"""Reading the spool, for ingest and doctor.

Invariant: an event leaves the spool when it is recorded, or moves to ``rejected/`` with the reason; it is never dropped. Other
things in the spool (a pipe, link, folder or invalid name) are rejected unopened.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

from clia.capture import spool as writer
from clia.capture.events import digest
from clia.errors import FileError, InvalidInput
from clia.space.purging import without, without_bytes
from clia.store.private_files import FileLocks, adjust
from clia.values.clock import timestamp
from clia.values.refs import is_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

LOCK = "ingest.lock"
LAST_ERROR = "last-error.json"
NEW, DRAFTS, REJECTED = "new", "tmp", "rejected"
PAYLOAD_MAX = 64 * 1024 * 1024
STALE_DRAFT = 3600.0
"""Seconds after which a draft counts as abandoned by a killed hook."""
_ID = re.compile(r"[0-9]{20}-[0-9]{1,10}-[0-9a-f]{8}")
_PLAIN = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
_WHY, _WHY_MAX = ".why.json", 1 << 20


class SpoolRecord(NamedTuple):
    """One event in the spool."""

    spool: str
    id: str
    tool: str
    cwd: str
    agent: str  # the tool's $CLIA_AGENT
    payload: bytes
    commit: str = ""  # HEAD of the directory
    secret: str = ""  # digest of the tool's $CLIA_RUN_SECRET
    logs: str = ""  # sizes of the reflogs of HEAD, the directory's own first; empty if it has none
    stored: int = 0  # when its file was written, in nanoseconds, by the clock of the file system
    process: str = ""  # the tool's process (``clia.capture.processes``)

    @property
    def at(self) -> str:
        """When the hook started, in milliseconds."""
        return time_of(self.id)


class RejectedEvent(NamedTuple):
    id: str
    code: str
    message: str


def spools(common_dir: str, environment: Mapping[str, str]) -> list[str]:
    """The spools of a repository: inside it and, for one that was read-only, in the home directory."""
    variables = {os.fsencode(name): os.fsencode(environment.get(name, "")) for name in ("HOME", "XDG_STATE_HOME")}
    return [os.fsdecode(place) for place in writer.spools(os.fsencode(common_dir), variables)]


def waiting(spool: str) -> list[str]:
    """The ids of waiting events, oldest first."""
    return _names(os.path.join(spool, NEW))


def note_begin(spool: str) -> None:
    """Record that an ingest begins: a hook that ends a call looks for commits that were made since."""
    path = os.path.join(spool, os.fsdecode(writer.BEGUN))
    with suppress(OSError):
        if not os.path.lexists(path):
            with open(path, "xb"):
                adjust(path)
        os.utime(path)


def time_of(record: str) -> str:
    """The time in an event's id; the epoch for an invalid id."""
    digits = record.partition("-")[0]
    nanoseconds = int(digits) if digits.isascii() and digits.isdigit() and len(digits) == 20 else 0
    return timestamp(datetime.fromtimestamp(nanoseconds / 1e9, UTC), "milliseconds")


def read(spool: str, name: str) -> SpoolRecord | None:
    """Read an event; None if it is gone. ``InvalidInput`` if it is malformed or too large."""
    if not _ID.fullmatch(name):
        raise InvalidInput(f"invalid event name {name!r}", code="invalid-event-name", fields={"field": ""})
    path = os.path.join(spool, NEW, name)
    try:
        with _file_errors(path):
            stored = os.lstat(path).st_mtime_ns
            data = content(path, PAYLOAD_MAX + 1)
    except FileNotFoundError:
        return None
    if len(data) > PAYLOAD_MAX:
        raise InvalidInput(f"the event has more than {PAYLOAD_MAX} bytes", code="event-too-large", fields={"field": ""})
    header, payload = parse(data)
    keys = ("tool", "cwd", "agent", "commit", "secret", "logs")
    tool, cwd, agent, commit, secret, logs = (header.get(key, "") for key in keys)
    context = (commit if is_id(commit) else "", digest(secret) if secret else "", logs)
    return SpoolRecord(spool, name, tool, cwd, agent, payload, *context, stored, header.get("process", ""))


def content(path: str, limit: int) -> bytes:
    """The first bytes of a regular file; ``InvalidInput`` for anything else, which could block or have side effects."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise InvalidInput("not a regular file", code="not-a-file", fields={"field": ""})
    with open(path, "rb", opener=_at_once) as file:
        return file.read(limit)


def parse(data: bytes) -> tuple[dict[str, str], bytes]:
    """The header and the tool's payload; ``InvalidInput`` if it is not an event."""
    if not data.startswith(writer.FORMAT):
        raise InvalidInput("not an event, or one of another clia version", code="invalid-spool-file", fields={"field": ""})
    head, end, payload = data.removeprefix(writer.FORMAT).partition(b"\n\n")
    if not end:
        raise InvalidInput("the event's header is incomplete", code="invalid-spool-file", fields={"field": ""})
    pairs = (line.partition(b"=") for line in head.split(b"\n"))
    unquoted = ((key, value.replace(b"%0A", b"\n").replace(b"%25", b"%")) for key, _, value in pairs)
    return {os.fsdecode(key): os.fsdecode(value) for key, value in unquoted}, payload


def remove(record: SpoolRecord) -> None:
    """Remove a recorded event."""
    path = os.path.join(record.spool, NEW, record.id)
    with suppress(FileNotFoundError), _file_errors(path):
        os.unlink(path)


def reject(spool: str, name: str, code: str, message: str, folder: str = NEW) -> None:
    """Move an event to ``rejected/``, with the reason in a file next to it."""
    where = os.path.join(spool, REJECTED)
    with _file_errors(where):
        if not os.path.isdir(where):
            os.makedirs(where, mode=0o700, exist_ok=True)
            adjust(where)
    free, path = _free(where, name), os.path.join(spool, folder, name)
    with _file_errors(os.path.join(where, f"{free}{_WHY}")) as reason:
        _write(reason, _json({"code": code, "message": message}))
    with suppress(FileNotFoundError), _file_errors(path):
        os.rename(path, os.path.join(where, free))


def _free(folder: str, name: str) -> str:
    """A free name in ``rejected/`` that leaves room for the reason's file."""
    if not _PLAIN.fullmatch(name) or name.endswith(_WHY):
        name = f"odd-{sha256(os.fsencode(name)).hexdigest()[:16]}"
    free, number = name, 1
    while os.path.lexists(os.path.join(folder, free)):
        free, number = f"{name}.{number}", number + 1
    return free


def rejected(spool: str) -> list[RejectedEvent]:
    folder, events = os.path.join(spool, REJECTED), []
    for name in _names(folder):
        if name.endswith(_WHY):
            continue
        why: Any = None
        with suppress(OSError, ValueError, InvalidInput):
            why = json.loads(content(os.path.join(folder, f"{name}{_WHY}"), _WHY_MAX))
        why = why if isinstance(why, dict) else {}
        events.append(RejectedEvent(name, str(why.get("code", "unknown")), str(why.get("message", "the reason is lost"))))
    return events


def clear_drafts(spool: str, now: float) -> int:
    """Reject abandoned drafts; returns how many."""
    folder, count = os.path.join(spool, DRAFTS), 0
    for name in _names(folder):
        with suppress(OSError):
            if now - os.lstat(os.path.join(folder, name)).st_mtime > STALE_DRAFT:
                reject(spool, name, "unfinished-event", "the hook ended before it had read the event", DRAFTS)
                count += 1
    return count


def note_error(spool: str, at: str, code: str, message: str) -> None:
    """Save why ingest could not continue, for doctor."""
    with suppress(OSError):
        _write(os.path.join(spool, LAST_ERROR), _json({"at": at, "code": code, "message": message}))


def forget_error(spool: str) -> None:
    with suppress(OSError):
        os.unlink(os.path.join(spool, LAST_ERROR))


def purge_spool(spool: str, text: str) -> list[str]:
    """Replace a text in the files of a spool; returns those that may still hold it because a hook is writing them."""
    if not os.path.isdir(spool):
        return []
    with FileLocks(spool).hold(LOCK):
        paths = [os.path.join(spool, folder, name) for folder in (NEW, REJECTED) for name in _names(os.path.join(spool, folder))]
        for path in (*paths, os.path.join(spool, LAST_ERROR)):
            with suppress(InvalidInput, FileNotFoundError):
                data = content(path, -1)
                if (purged := _purged(data, text)) != data:
                    with _file_errors(path):
                        _write(path, purged, os.path.join(spool, DRAFTS))
        drafts = [os.path.join(spool, DRAFTS, name) for name in _names(os.path.join(spool, DRAFTS))]
        return [f"spool file {path}: a hook was writing it; purge again" for path in drafts if _file_holds(path, text)]


def holds(data: bytes, text: str) -> bool:
    """Whether bytes hold a text, in any spelling that `purge_spool` finds."""
    return _purged(data, text) != data


def _purged(data: bytes, text: str) -> bytes:
    """The bytes of an event, or of JSON lines, with the text replaced, however its JSON escapes it."""
    lines = []
    for line in without_bytes(data, text).split(b"\n"):
        with suppress(ValueError, RecursionError):
            value = json.loads(line) if b"\\" in line else None
            if (purged := without(value, text)) != value:
                line = json.dumps(purged).encode()  # noqa: PLW2901
        lines.append(line)
    return b"\n".join(lines)


def _file_holds(path: str, text: str) -> bool:
    with suppress(OSError, InvalidInput):
        return holds(content(path, -1), text)
    return False


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as err:
        raise FileError(f"{folder}: {err.strerror}", fields={"path": folder, "reason": err.strerror}) from None


def _write(path: str, data: bytes, drafts: str = "") -> None:
    draft = os.path.join(drafts, f"{os.path.basename(path)}.draft") if drafts else f"{path}.draft"
    with open(draft, "wb", opener=_at_once) as file:
        file.write(data)
    adjust(draft)
    os.replace(draft, path)


def _json(value: Mapping[str, str]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _at_once(path: str, flags: int) -> int:
    """Open without blocking on a pipe or following a link that replaced the file."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)


@contextmanager
def _file_errors(path: str) -> Iterator[str]:
    """Errors about a file become ``FileError``, except that it does not exist."""
    try:
        yield path
    except FileNotFoundError:
        raise
    except OSError as err:
        raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None
