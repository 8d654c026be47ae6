"""The spool: where hooks write events for ``clia ingest``.

Invariant: an event is in ``new/`` completely or not at all, byte for byte as the tool sent it. Each is a file, written in ``tmp/``
and renamed, so nothing blocks; its name holds the time. Only the account that wrote it can read it: it is not redacted yet. It
is not synced to disk: the tool waits for the hook, and after a power loss the transcript still has the event.

A file is ``clia-hook 1``, lines ``key=value`` (``%`` as ``%25``, newline as ``%0A``), an empty line, and the tool's bytes.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from io import FileIO

FORMAT = b"clia-hook 1\n"
CHUNK = 1 << 20
BEGUN = b"ingest-begun"
"""The file in a spool whose time says when the last ingest began."""
STEPS = ("input-read", "draft-created", "draft-written", "event-stored", "ingest-started", "ingest-awaited")
"""The named crash points of a hook, in order."""


def reached(step: str) -> None:
    """A hook has reached a step. Tests replace this function, to kill the process there."""


def head(
    tool: bytes,
    cwd: bytes,
    agent: bytes = b"",
    commit: bytes = b"",
    secret: bytes = b"",
    logs: bytes = b"",
    process: bytes = b"",
) -> bytes:
    """The header before the tool's bytes; without an agent, the tool's session determines it. ``commit``: HEAD there.

    ``logs`` and ``process``: as ``clia.capture.hook`` returns the sizes of the reflogs, and the process of the tool.
    """
    fields = {b"tool": tool, b"cwd": cwd, b"agent": agent, b"commit": commit, b"secret": secret, b"logs": logs, b"process": process}
    lines = [b"%s=%s\n" % (key, value.replace(b"%", b"%25").replace(b"\n", b"%0A")) for key, value in fields.items() if value]
    return FORMAT + b"".join(lines) + b"\n"


def spool_of(common_dir: bytes) -> bytes:
    """The spool of a space, in its git directory."""
    return os.path.join(common_dir, b"clia", b"spool")


def spools(common_dir: bytes, environment: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Where an event may be written, best first: the space's spool, then one in the home directory for a read-only space."""
    yield spool_of(common_dir)
    home, state = environment.get(b"HOME", b""), environment.get(b"XDG_STATE_HOME", b"")
    if not os.path.isabs(state):
        state = os.path.join(home, b".local", b"state")
    if os.path.isabs(state):
        from hashlib import sha256  # slow to import, rarely needed

        name = sha256(os.path.realpath(common_dir)).hexdigest()[:16].encode()
        yield os.path.join(state, b"clia", b"spool", name)


def put(places: Iterable[bytes], chunks: Iterable[bytes]) -> bytes:
    """Write an event to the first place that accepts it, and return its file; ``OSError`` if none does."""
    name = b"%020d-%d-%s" % (time.time_ns(), os.getpid(), os.urandom(4).hex().encode())
    failure = OSError("no place to store it")
    for place in places:
        draft, remaining, unwritten, begun = os.path.join(place, b"tmp", name), iter(chunks), b"", False
        try:
            if not os.path.lexists(place):
                os.makedirs(place, mode=0o700, exist_ok=True)  # makedirs gives the mode to the last directory only
                adjust(place)
            for folder in (b"new", b"tmp"):
                if not os.path.lexists(os.path.join(place, folder)):
                    os.makedirs(os.path.join(place, folder), mode=0o700, exist_ok=True)
                    adjust(os.path.join(place, folder))
            with open(draft, "xb", buffering=0, opener=_private) as file:
                begun = True
                adjust(draft)
                reached("draft-created")
                for chunk in remaining:
                    unwritten = chunk
                    while unwritten:
                        unwritten = unwritten[file.write(unwritten) :]
            reached("draft-written")
            stored = os.path.join(place, b"new", name)
            os.rename(draft, stored)
            reached("event-stored")
        except OSError as err:
            failure = err
            chunks = _once_more(draft, unwritten, remaining) if begun else remaining
        except BaseException:
            _remove(draft)
            raise
        else:
            return stored
    raise failure


def adjust(path: str | bytes) -> None:
    """Give a new file or directory the access that its directory gives others: none, unless the repository is shared.

    A copy of ``clia.store.private_files.adjust``, because a hook loads no other module.
    """
    try:
        parent, mode = os.stat(os.path.dirname(path)).st_mode, os.stat(path).st_mode & 0o7777
        access = parent & 0o066 if parent & 0o2000 else 0
        if access:
            os.chmod(path, mode | access | ((access & 0o044) >> 2 | 0o2000 if os.path.isdir(path) else 0))
    except OSError:
        return


def _private(path: str | bytes, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _once_more(draft: bytes, unwritten: bytes, remaining: Iterator[bytes]) -> Iterator[bytes]:
    """The whole event again for the next place: the disk may be full after part of the input was consumed."""
    file = open(draft, "rb", buffering=0)  # noqa: SIM115  # it is read after its name is removed
    _remove(draft)
    return _chain(file, unwritten, remaining)


def _chain(written: FileIO, unwritten: bytes, remaining: Iterator[bytes]) -> Iterator[bytes]:
    with written:
        while chunk := written.read(CHUNK):
            yield chunk
    yield unwritten
    yield from remaining


def _remove(draft: bytes) -> None:
    try:
        os.unlink(draft)
    except OSError:
        return  # never created, or a broken disk: ingest removes old drafts
