"""``clia hook TOOL``: what a tool starts for each of its steps, and waits for.

Invariant: it puts the event on standard input into the spool and returns, whatever happens: it raises nothing, prints nothing on
standard output, and one line on standard error only where an event could be put nowhere. It loads the standard library alone,
and of that next to nothing: a tool starts it hundreds of times an hour.
"""

from __future__ import annotations

import os
import stat
import sys

from clia.capture import spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

TOOLS = ("claude-code", "codex", "gemini")
# Where a tool says that its project is; Codex documents no variable.
_PROJECTS = {"claude-code": b"CLAUDE_PROJECT_DIR", "gemini": b"GEMINI_PROJECT_DIR"}
# What is worth turning the spool into a record: something began that needs an agent, or ended.
TURNS = (b"SessionStart", b"Stop", b"StopFailure", b"SubagentStart", b"SubagentStop", b"SessionEnd", b"AfterAgent")
# Who is accountable is the account's choice; every other GIT_ variable is about the repository of whoever started the tool.
_PERSON = (b"GIT_COMMITTER_NAME", b"GIT_COMMITTER_EMAIL")
_STDIN = 0


def record(tool: str) -> None:
    """Puts the event on standard input down, if this is a space."""
    try:
        _record(tool)
    except BaseException as err:  # noqa: BLE001  # a hook that fails is a failure of the tool's own step
        _complain(f"{type(err).__name__}: {err}")


def _record(tool: str) -> None:
    if os.isatty(_STDIN):
        return _complain("a tool gives its event on standard input; this is a terminal")
    first = _first()
    place = _space_of(tool)
    if tool in TOOLS and first and place is not None:
        return _put_down(tool, place, first)
    for _ in _rest():
        pass  # a tool that is still writing must not find the pipe closed
    return None if tool in TOOLS else _complain(f"there is no tool {tool!r}; known are {', '.join(TOOLS)}")


def _put_down(tool: str, place: tuple[bytes, bytes], first: bytes) -> None:
    where, common = place
    head = spool.head(tool.encode(), where, os.environb.get(b"CLIA_AGENT", b""))
    spool.put(spool.spools(common, os.environb), _event(head + first))
    if _event_name(first) in TURNS and os.environb.get(b"CLIA_HOOK_INGEST") != b"off" and not _is_ingesting(common):
        _start_ingest(where)


def _complain(text: str) -> None:
    try:
        if sys.stderr is not None:
            sys.stderr.write(f"clia hook: the event was not put down: {text}\n")
            sys.stderr.flush()
    except (OSError, ValueError):
        return  # nobody listens


def _first() -> bytes:
    """The event, or of a large one its beginning."""
    parts, size = [], 0
    while size < spool.CHUNK and (part := _read()):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _rest() -> Iterator[bytes]:
    while part := _read():
        yield part


def _event(start: bytes) -> Iterator[bytes]:
    yield start
    yield from _rest()


def _read() -> bytes:
    while True:
        try:
            return os.read(_STDIN, spool.CHUNK)
        except BlockingIOError:
            import select  # hardly ever: a tool handed us its own end of the pipe

            select.select([_STDIN], [], [])
        except OSError:
            return b""  # closed, or broken off: what came is what there is


def _space_of(tool: str) -> tuple[bytes, bytes] | None:
    """A directory in a space, and the git directory of that space.

    Ours, as the tool started us in it; where that is gone or in no space, the project that the tool works on: an agent that
    steps aside is still that project's.
    """
    for where in (_cwd(), os.environb.get(_PROJECTS.get(tool, b""), b"")):
        if os.path.isabs(where):
            common = _common_dir(where)
            if common is not None and os.path.isdir(os.path.join(common, b"clia")):
                return where, common
    return None


def _cwd() -> bytes:
    try:
        return os.getcwdb()
    except OSError:
        return b""


def _common_dir(path: bytes) -> bytes | None:
    """What all worktrees of the repository around a directory share; ``GIT_DIR`` is about another one, if it is set."""
    while not os.path.exists(found := os.path.join(path, b".git")):
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above
    if os.path.isdir(found):
        return None if _content(os.path.join(found, b"commondir")) else os.path.realpath(found)
    said = _content(found)
    if not said.startswith(b"gitdir:"):
        return None
    return _shared_by(found, os.path.realpath(os.path.join(path, said.removeprefix(b"gitdir:").strip())))


def _shared_by(link: bytes, private: bytes) -> bytes | None:
    """What the worktrees share with the one whose ``.git`` file leads to a git directory; None where that is another's.

    Anybody can write such a file, so the repository must know of it: of a linked worktree it keeps a way back. Other git
    directories keep none, those of submodules for one; but ``.git`` of another directory is of what lies beside it.
    """
    shared = _content(os.path.join(private, b"commondir")).strip()
    if not shared:
        return None if os.path.basename(private) == b".git" else private
    common = os.path.realpath(os.path.join(private, shared))
    back = _content(os.path.join(private, b"gitdir")).strip()
    known = os.path.dirname(private) == os.path.join(common, b"worktrees")
    return common if known and back and os.path.realpath(os.path.join(private, back)) == os.path.realpath(link) else None


def _content(path: bytes) -> bytes:
    """What a small file says; nothing where it is none. A pipe in its place is not waited for."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(file, 1 << 16) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(file)


def _event_name(payload: bytes) -> bytes:
    """What the event says that it is. Only a hint, so that nothing is parsed here: ``json`` takes as long as all the rest."""
    _, _, after = payload.partition(b'"hook_event_name"')
    return after[:80].lstrip(b" \t\r\n:").removeprefix(b'"').partition(b'"')[0]


def _is_ingesting(common: bytes) -> bool:
    """Whether somebody is at it: an ingest holds this lock for as long as it lives."""
    try:
        lock = os.open(os.path.join(spool.spool_of(common), b"ingest.lock"), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    import fcntl  # only where something ends

    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)  # and with it our lock
    return False


def _start_ingest(where: bytes) -> None:
    """Starts ``clia ingest`` and does not wait. Where that fails, the event is put down all the same: the next one tries again."""
    _close_at_exec()
    words = [os.fsencode(sys.executable), b"-P", b"-m", b"clia", b"ingest", b"--quiet", b"--path", where]
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0), (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    # A tool may end every process of its group and terminal when it is done.
    for apart in ({"setsid": True}, {"setpgroup": 0}):
        try:
            os.posix_spawn(words[0], words, _environment(), file_actions=actions, **apart)
        except NotImplementedError:
            continue  # not every system can start a new session
        except OSError:
            return
        return


def _environment() -> dict[bytes, bytes]:
    """That of the hook, without what would point git elsewhere, and without the one agent: ingest reads the events of many."""
    return {
        name: value
        for name, value in os.environb.items()
        if name != b"CLIA_AGENT" and (name in _PERSON or not name.startswith(b"GIT_"))
    }


def _close_at_exec() -> None:
    """What the tool left open to us must not stay open in ingest: the tool may wait for its end."""
    try:
        files = [int(name) for name in os.listdir("/dev/fd")]
    except (OSError, ValueError):
        return
    for file in files:
        try:
            if file > 2:
                os.set_inheritable(file, False)
        except OSError:
            continue  # the one that listed them
