"""The spool: where a hook puts an event down, and ``clia ingest`` finds it.

Invariant: an event is in ``new/`` whole or not at all, byte for byte as the tool sent it. Each has a file of its own, written in
``tmp/`` and then moved, so that nobody waits for anybody and a name says when. Only the account that wrote an event may read it:
nobody has looked for secrets in it yet. It is not forced to disk: a hook is waited for, and after a loss of power the tool's
transcript still tells.

A file is ``clia-hook 1``, lines ``key=value`` (``%`` as ``%25``, a line's end as ``%0A``), an empty line, and what the tool sent.
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


def head(tool: bytes, cwd: bytes, agent: bytes = b"") -> bytes:
    """What stands before the tool's own bytes; without an agent the tool's session names it."""
    known = {b"tool": tool, b"cwd": cwd, b"agent": agent}
    lines = [b"%s=%s\n" % (key, value.replace(b"%", b"%25").replace(b"\n", b"%0A")) for key, value in known.items() if value]
    return FORMAT + b"".join(lines) + b"\n"


def spool_of(common_dir: bytes) -> bytes:
    """The spool of a space, in its git directory."""
    return os.path.join(common_dir, b"clia", b"spool")


def spools(common_dir: bytes, environment: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Where an event may go, best first: the space's own spool, then one in the account's home for a space that is read-only."""
    yield spool_of(common_dir)
    home, state = environment.get(b"HOME", b""), environment.get(b"XDG_STATE_HOME", b"")
    if not os.path.isabs(state):
        state = os.path.join(home, b".local", b"state")
    if os.path.isabs(state):
        from hashlib import sha256  # milliseconds, and hardly ever needed

        name = sha256(os.path.realpath(common_dir)).hexdigest()[:16].encode()
        yield os.path.join(state, b"clia", b"spool", name)


def put(places: Iterable[bytes], chunks: Iterable[bytes]) -> bytes:
    """Writes an event into the first place that takes it, and says which; ``OSError`` where none does."""
    name = b"%020d-%d-%s" % (time.time_ns(), os.getpid(), os.urandom(4).hex().encode())
    failure = OSError("no place for it is known")
    for place in places:
        draft, rest, unwritten, begun = os.path.join(place, b"tmp", name), iter(chunks), b"", False
        try:
            for folder in (b"new", b"tmp"):
                os.makedirs(os.path.join(place, folder), mode=0o700, exist_ok=True)
            with open(draft, "xb", buffering=0, opener=_private) as file:
                begun = True
                for chunk in rest:
                    unwritten = chunk
                    while unwritten:
                        unwritten = unwritten[file.write(unwritten) :]
            os.rename(draft, os.path.join(place, b"new", name))
        except OSError as err:
            failure = err
            chunks = _once_more(draft, unwritten, rest) if begun else rest
        except BaseException:
            _remove(draft)
            raise
        else:
            return place
    raise failure


def _private(path: str | bytes, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _once_more(draft: bytes, unwritten: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """The whole event again for the next place: a disk may be full in the middle of what can be read only once."""
    file = open(draft, "rb", buffering=0)  # noqa: SIM115  # it is read when its name is gone
    _remove(draft)
    return _chain(file, unwritten, rest)


def _chain(written: FileIO, unwritten: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    with written:
        while chunk := written.read(CHUNK):
            yield chunk
    yield unwritten
    yield from rest


def _remove(draft: bytes) -> None:
    try:
        os.unlink(draft)
    except OSError:
        return  # it was never made, or the disk has gone bad: ingest clears what is old
