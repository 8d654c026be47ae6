"""The spool as ingest and doctor see it: events that hooks put down.

Invariant: an event leaves the spool when what it says is recorded, or goes to ``rejected/`` with the reason; it is never dropped.
Whatever else lies there, a pipe, a link, a folder, an odd name, holds up nobody: it is put aside in the same way, unopened.
The format is that of ``clia.capture.spool``, which writes it and may load nothing; a test holds the two together.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

from clia.errors import FileError, InvalidInput
from clia.space.purging import without, without_bytes
from clia.store.file_locks import FileLocks
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

FORMAT = b"clia-hook 1\n"
LOCK = "ingest.lock"
LAST_ERROR = "last-error.json"
NEW, DRAFTS, REJECTED = "new", "tmp", "rejected"
PAYLOAD_MAX = 64 * 1024 * 1024
STALE_DRAFT = 3600.0
"""Seconds after which what a hook never finished is what it was killed in."""
_ID = re.compile(r"[0-9]{20}-[0-9]{1,10}-[0-9a-f]{8}")
_PLAIN = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
_WHY, _WHY_MAX = ".why.json", 1 << 20


class SpoolRecord(NamedTuple):
    """One event as a hook put it down."""

    spool: str
    id: str
    tool: str
    cwd: str
    agent: str  # $CLIA_AGENT of the tool
    payload: bytes

    @property
    def at(self) -> str:
        """When the hook began, to the millisecond."""
        return time_of(self.id)


class RejectedEvent(NamedTuple):
    id: str
    code: str
    message: str


def home_of(common_dir: str) -> str:
    return os.path.join(common_dir, "clia", "spool")


def spools(common_dir: str, environment: Mapping[str, str]) -> list[str]:
    """Where events of a repository may lie: beside it, or, where it was read-only, in the account's own folder."""
    found = [home_of(common_dir)]
    state = environment.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(environment.get("HOME", ""), ".local", "state")
    if os.path.isabs(state):
        name = sha256(os.fsencode(os.path.realpath(common_dir))).hexdigest()[:16]
        found.append(os.path.join(state, "clia", "spool", name))
    return found


def waiting(spool: str) -> list[str]:
    """The ids of the events that wait, oldest first."""
    return _names(os.path.join(spool, NEW))


def time_of(record: str) -> str:
    """When an event came, as its id says; the beginning of time for an id that says nothing."""
    digits = record.partition("-")[0]
    nanoseconds = int(digits) if digits.isascii() and digits.isdigit() and len(digits) == 20 else 0
    return timestamp(datetime.fromtimestamp(nanoseconds / 1e9, UTC), "milliseconds")


def read(spool: str, name: str) -> SpoolRecord | None:
    """An event; None where another has taken it. ``InvalidInput`` where it is none, or too large."""
    if not _ID.fullmatch(name):
        raise InvalidInput(f"no hook names an event {name!r}", code="invalid-event-name", fields={"field": ""})
    path = os.path.join(spool, NEW, name)
    try:
        data = content(path, PAYLOAD_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None
    if len(data) > PAYLOAD_MAX:
        raise InvalidInput(f"the event has more than {PAYLOAD_MAX} bytes", code="event-too-large", fields={"field": ""})
    header, payload = parse(data)
    return SpoolRecord(spool, name, header.get("tool", ""), header.get("cwd", ""), header.get("agent", ""), payload)


def content(path: str, limit: int) -> bytes:
    """The beginning of a regular file; ``InvalidInput`` where it is anything else: to open that may do something, or wait."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise InvalidInput("this is no file, but a folder, a link or a pipe", code="not-a-file", fields={"field": ""})
    with open(path, "rb", opener=_at_once) as file:
        return file.read(limit)


def parse(data: bytes) -> tuple[dict[str, str], bytes]:
    """The header and what the tool sent; ``InvalidInput`` where it is no event."""
    if not data.startswith(FORMAT):
        raise InvalidInput("this is no event, or one of another version of clia", code="invalid-spool-file", fields={"field": ""})
    head, end, payload = data.removeprefix(FORMAT).partition(b"\n\n")
    if not end:
        raise InvalidInput("the event has no end of its header", code="invalid-spool-file", fields={"field": ""})
    pairs = (line.partition(b"=") for line in head.split(b"\n"))
    unquoted = ((key, value.replace(b"%0A", b"\n").replace(b"%25", b"%")) for key, _, value in pairs)
    return {os.fsdecode(key): os.fsdecode(value) for key, value in unquoted}, payload


def remove(record: SpoolRecord) -> None:
    """The event is recorded."""
    with suppress(FileNotFoundError):
        _trying(os.unlink, os.path.join(record.spool, NEW, record.id))


def reject(spool: str, name: str, code: str, message: str, folder: str = NEW) -> None:
    """Puts an event aside, with the reason in a file beside it."""
    where = os.path.join(spool, REJECTED)
    _trying(lambda path: os.makedirs(path, mode=0o700, exist_ok=True), where)
    kept = _free(where, name)
    reason = _json({"code": code, "message": message})
    _trying(lambda path: _write(path, reason), os.path.join(where, f"{kept}{_WHY}"))
    with suppress(FileNotFoundError):
        _trying(lambda path: os.rename(path, os.path.join(where, kept)), os.path.join(spool, folder, name))


def _free(folder: str, name: str) -> str:
    """How something is called once it is put aside: as before, where there is room for the reason beside it."""
    if not _PLAIN.fullmatch(name) or name.endswith(_WHY):
        name = f"odd-{sha256(os.fsencode(name)).hexdigest()[:16]}"
    free, number = name, 1
    while os.path.lexists(os.path.join(folder, free)):
        free, number = f"{name}.{number}", number + 1
    return free


def rejected(spool: str) -> list[RejectedEvent]:
    return list(_rejected(spool))


def _rejected(spool: str) -> Iterator[RejectedEvent]:
    folder = os.path.join(spool, REJECTED)
    for name in _names(folder):
        if name.endswith(_WHY):
            continue
        why: Any = None
        with suppress(OSError, ValueError, InvalidInput):
            why = json.loads(content(os.path.join(folder, f"{name}{_WHY}"), _WHY_MAX))
        said = why if isinstance(why, dict) else {}
        yield RejectedEvent(name, str(said.get("code", "unknown")), str(said.get("message", "the reason is lost")))


def clear_drafts(spool: str, now: float) -> int:
    """Puts aside what hooks never finished; how many."""
    folder, count = os.path.join(spool, DRAFTS), 0
    for name in _names(folder):
        with suppress(OSError):
            if now - os.lstat(os.path.join(folder, name)).st_mtime > STALE_DRAFT:
                reject(spool, name, "unfinished-event", "the hook was ended before it had read the event", DRAFTS)
                count += 1
    return count


def note_error(spool: str, at: str, code: str, message: str) -> None:
    """Leaves word of why ingest could not go on, for doctor."""
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
                    _trying(lambda path, purged=purged: _write(path, purged, os.path.join(spool, DRAFTS)), path)
        drafts = [os.path.join(spool, DRAFTS, name) for name in _names(os.path.join(spool, DRAFTS))]
        return [f"spool file {path}: a hook was writing it; purge again" for path in drafts if holds(_content_of(path), text)]


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


def _content_of(path: str) -> bytes:
    try:
        return content(path, -1)
    except (OSError, InvalidInput):
        return b""


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
    os.replace(draft, path)


def _json(value: Mapping[str, str]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _at_once(path: str, flags: int) -> int:
    """A pipe or a link may have come in a file's place just now: nobody waits for the one, or follows the other."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)


def _trying(act: Any, path: str) -> None:
    try:
        act(path)
    except FileNotFoundError:
        raise
    except OSError as err:
        raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None
