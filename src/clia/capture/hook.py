"""``clia hook TOOL``: run by a tool at each of its steps, while it waits.

Invariant: it writes the event from standard input to the spool and returns, whatever happens. It raises nothing, and prints one
line to standard error only if the event could not be stored. It prints to standard output only what the rules of guardrails say
about a call (``permissions.answers``). It loads very little of the standard library and nothing else: a tool runs it hundreds of
times an hour.
"""

from __future__ import annotations

import os
import stat
import sys

from clia.capture import spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

TOOLS = ("claude-code", "codex", "gemini", "copilot", "qwen", "openhands", "opencode", "amp", "kimi", "cline")
# The variables that name a tool's project; the other tools document none.
PROJECTS = {
    "claude-code": b"CLAUDE_PROJECT_DIR",
    "gemini": b"GEMINI_PROJECT_DIR",
    "copilot": b"COPILOT_PROJECT_DIR",
    "qwen": b"QWEN_PROJECT_DIR",
    "openhands": b"OPENHANDS_PROJECT_DIR",
}
# The fields that name the event.
NAMES = (b'"hook_event_name"', b'"event_type"', b'"hookName"')
# Events that start an ingest: something began that needs an agent, or ended. The tool waits for it, because it reads the files as
# they are before another author changes any.
TURNS = (
    *(b"SessionStart", b"Stop", b"StopFailure", b"SubagentStart", b"SubagentStop", b"SessionEnd"),
    *(b"AfterAgent", b"TaskStart", b"TaskResume", b"TaskComplete", b"TaskCancel"),
    *(b"agent_start", b"agent_resume", b"agent_end", b"agent_abort", b"agent_error", b"session_shutdown"),
)
# The ends of calls. If HEAD moved meanwhile, they start an ingest: the call may have made commits on a person's branch.
ENDS_OF_CALLS = (b"PostToolUse", b"PostToolUseFailure", b"AfterTool")
# Prompts start an ingest, too: changes before a prompt are people's. In `clia run`, all changes are the program's.
PROMPTS = (b"UserPromptSubmit", b"BeforeAgent")
# The events before a call, and the tools that read an answer.
CALLS = (b"PreToolUse", b"PermissionRequest", b"BeforeTool")
ANSWERED = ("claude-code", "codex", "gemini")
# The committer is the account's choice; other GIT_ variables are about the repository of the process that started the tool.
_PERSON = (b"GIT_COMMITTER_NAME", b"GIT_COMMITTER_EMAIL")
_SHELLS, _SHELLS_MAX = (b"sh", b"bash", b"dash", b"zsh", b"ash", b"busybox", b"fish"), 4
_STDIN = 0
_AWAITED_SECONDS, _RUN_SECONDS = 3.0, 8.0
"""How long a tool waits for the ingest of an event, outside of ``clia run`` and in it. ``CLIA_HOOK_INGEST`` overrides both. The
installed hooks may take ten seconds."""
_POLL_SECONDS = 0.01
_WORKTREES_MAX, _STASHES_MAX, _CONTENT_MAX = 200, 50, 1 << 16


def record(tool: str) -> None:
    """Store the event from standard input, if this is a space."""
    try:
        _record(tool)
    except BaseException as err:  # noqa: BLE001  # a hook that fails is a failure of the tool's own step
        _complain(f"{type(err).__name__}: {err}")


def _record(tool: str) -> None:
    if os.isatty(_STDIN):
        return _complain("standard input is a terminal; a tool passes its event there")
    first = _first()
    spool.reached("input-read")
    tool = caller(tool)
    place = _space_of(tool)
    if tool in TOOLS and first and place is not None:
        return _put_down(tool, place, first)
    while read_input():
        pass  # drain the pipe: a tool that is still writing must not get an error
    return None if tool in TOOLS or not tool else _complain(f"unknown tool {tool!r}; known tools: {', '.join(TOOLS)}")


def caller(tool: str) -> str:
    """The tool that runs this hook: Copilot CLI also runs the hooks in Claude Code's project settings. Empty if it has hooks of its
    own, which report the same event.
    """
    if tool != "claude-code" or not os.environb.get(b"COPILOT_CLI"):
        return tool
    home = os.environb.get(b"COPILOT_HOME") or os.path.join(os.environb.get(b"HOME", b""), b".copilot")
    folders = (os.path.join(os.environb.get(b"COPILOT_PROJECT_DIR", b""), b".github"), home)
    return "" if any(os.path.exists(os.path.join(folder, b"hooks/clia.json")) for folder in folders) else "copilot"


def _put_down(tool: str, place: tuple[bytes, bytes, bytes], first: bytes) -> None:
    where, private, common = place
    agent, secret = (os.environb.get(name, b"") for name in (b"CLIA_AGENT", b"CLIA_RUN_SECRET"))
    logs, process = reflog_state(private, common), tool_process(os.getppid())
    head = spool.head(tool.encode(), where, agent, head_commit(private, common), secret, logs, process)
    stored = spool.put(spool.spools(common, os.environb), _event(head + first))
    name = event_name(first)
    if name in CALLS and tool in ANSWERED:
        _answer(tool, name, where, common, first, stored)
    if os.environb.get(b"CLIA_HOOK_INGEST") == b"off":
        return
    try:
        _ingest(stored, where if private else common, common, first, has_moved(private, common, event_name(first)))
    except BaseException:  # noqa: BLE001  # interrupted while it waits: the event is stored, and the next one starts an ingest
        return


def _answer(tool: str, event: bytes, where: bytes, common: bytes, payload: bytes, stored: bytes) -> None:
    """Tell the tool what the rules say about a call; if that fails, let it ask in its own way."""
    from clia.capture.permissions import answers

    try:
        if len(payload) >= spool.CHUNK:  # the rest of a large event is in the spool only
            with open(stored, "rb") as file:
                payload = file.read().partition(b"\n\n")[2]
        answers.respond(tool, event, where, common, payload)
    except BaseException as err:  # noqa: BLE001  # whatever happens, the call must not run unasked
        answers.fall_back(tool, event, f"clia could not evaluate the rules: {type(err).__name__}: {err}")


def _complain(text: str) -> None:
    try:
        if sys.stderr is not None:
            sys.stderr.write(f"clia hook: the event was not stored: {text}\n")
            sys.stderr.flush()
    except (OSError, ValueError):
        return  # standard error is closed


def _first() -> bytes:
    """The event, in chunks; a large one up to its limit."""
    parts, size = [], 0
    while size < spool.CHUNK and (part := read_input()):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _event(start: bytes) -> Iterator[bytes]:
    yield start
    yield from iter(read_input, b"")


def read_input(file: int = _STDIN) -> bytes:
    """The next bytes of the event, or nothing at its end."""
    while True:
        try:
            return os.read(file, spool.CHUNK)
        except BlockingIOError:
            import select  # rare: the tool passed a non-blocking pipe

            select.select([file], [], [])
        except OSError:
            return b""  # closed or broken: use what was read


def _space_of(tool: str) -> tuple[bytes, bytes, bytes] | None:
    """A directory in a space, its git directory (empty if it is missing), and the space's shared git directory.

    The current directory or, if it is gone or outside of a space, the tool's project: an agent that changes directory still belongs
    to that project.
    """
    for where in (_cwd(), os.environb.get(PROJECTS.get(tool, b""), b"")):
        if os.path.isabs(where):
            private, common = git_dirs(where) or (b"", b"")
            if common and os.path.isdir(os.path.join(common, b"clia")):
                return where, private, common
    run = os.environb.get(b"CLIA_RUN", b"")  # a program of `clia run` may have removed its .git
    return (_cwd() or run, b"", run) if os.path.isdir(os.path.join(run, b"clia")) else None


def head_commit(private: bytes, common: bytes) -> bytes:
    """The commit that HEAD of a git directory points to; nothing if it is not in a file."""
    if not private:
        return b""
    ref, is_symbolic, name = _content(os.path.join(private, b"HEAD")).strip().partition(b"ref: ")
    if not is_symbolic:
        return ref
    loose = _content(os.path.join(common, name)).strip()
    if loose:
        return loose
    try:
        with open(os.path.join(common, b"packed-refs"), "rb", buffering=0) as file:
            packed = file.readall() or b""
    except OSError:
        return b""
    end = packed.find(b" %s\n" % name)
    return packed[max(0, end - 40) : end] if end > 0 else b""


def reflog_state(private: bytes, common: bytes) -> bytes:
    """The sizes of the reflogs of HEAD in each worktree, the directory's own first, and the stashes, the newest first.

    Such as ``logs/HEAD:512 worktrees/x/logs/HEAD:80 stashes:ID,ID``. What is added to a reflog between two events happened
    between them, whatever time its entries have.
    """
    if not private:
        return b""
    own = private.removeprefix(common).lstrip(b"/")
    try:
        others = os.listdir(os.path.join(common, b"worktrees"))
    except OSError:
        others = []
    names = (own, b"", *(b"worktrees/" + name for name in others[:_WORKTREES_MAX]))
    sizes = []
    for log in dict.fromkeys(os.path.join(name, b"logs/HEAD") for name in names):
        try:
            sizes.append(b"%s:%d" % (log, os.stat(os.path.join(common, log)).st_size))
        except OSError:
            if not sizes:
                sizes.append(log + b":0")  # before the first commit, or without reflogs
    lines = _content(os.path.join(common, b"logs/refs/stash")).splitlines()
    stashes = [line[41:81] for line in lines[: -_STASHES_MAX - 1 : -1]]
    return b" ".join([*sizes, b"stashes:" + b",".join(stashes)] if stashes else sizes)


def tool_process(pid: int) -> bytes:
    """The process that runs hooks, without the shells between them: its id, its start time and its namespace of process ids.

    Nothing where the kernel does not tell.
    """
    try:
        namespace = os.readlink(b"/proc/self/ns/pid")
    except OSError:
        return b""
    for _ in range(_SHELLS_MAX):
        name, _, fields = _content(b"/proc/%d/stat" % pid).partition(b"(")[2].rpartition(b")")
        facts = fields.split()
        if len(facts) < 20:
            return b""
        if name not in _SHELLS:
            return b"%d %s %s" % (pid, facts[19], namespace)
        pid = int(facts[1])
    return b""


def has_moved(private: bytes, common: bytes, event: bytes) -> bool:
    """Whether a call has ended, and HEAD of a worktree moved since the last ingest began."""
    if event not in ENDS_OF_CALLS or not private:
        return False
    try:
        last = os.stat(os.path.join(spool.spool_of(common), spool.BEGUN)).st_mtime_ns
    except OSError:
        return False  # an older version of clia ingests here
    try:
        others = os.listdir(os.path.join(common, b"worktrees"))
    except OSError:
        others = []
    for admin in (private, common, *(os.path.join(common, b"worktrees", name) for name in others[:_WORKTREES_MAX])):
        try:
            if os.stat(os.path.join(admin, b"logs/HEAD")).st_mtime_ns > last:
                return True
        except OSError:
            continue
    return False


def _cwd() -> bytes:
    try:
        return os.getcwdb()
    except OSError:
        return b""


def git_dirs(path: bytes) -> tuple[bytes, bytes] | None:
    """The git directory around a directory, and the one that its worktrees share. ``GIT_DIR`` may name another: it is ignored."""
    while not os.path.exists(git := os.path.join(path, b".git")):
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above
    if os.path.isdir(git):
        real = os.path.realpath(git)
        return None if _content(os.path.join(git, b"commondir")) else (real, real)
    link = _content(git)
    if not link.startswith(b"gitdir:"):
        return None
    private = os.path.realpath(os.path.join(path, link.removeprefix(b"gitdir:").strip()))
    common = _shared_by(git, private)
    return None if common is None else (private, common)


def _shared_by(link: bytes, private: bytes) -> bytes | None:
    """The shared git directory of the worktree whose ``.git`` file points here; None if it belongs to another.

    Any user can write such a file, so the repository must confirm it: it keeps a link back to a linked worktree. Other git
    directories, such as those of submodules, have none; but a ``.git`` directory belongs to the directory that contains it.
    """
    shared = _content(os.path.join(private, b"commondir")).strip()
    if not shared:
        return None if os.path.basename(private) == b".git" else private
    common = os.path.realpath(os.path.join(private, shared))
    back = _content(os.path.join(private, b"gitdir")).strip()
    linked = os.path.dirname(private) == os.path.join(common, b"worktrees")
    return common if linked and back and os.path.realpath(os.path.join(private, back)) == os.path.realpath(link) else None


def _content(path: bytes) -> bytes:
    """The content of a small regular file, or the end of a large one, or nothing. Does not block on a pipe."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        facts = os.fstat(file)
        return os.pread(file, _CONTENT_MAX, max(0, facts.st_size - _CONTENT_MAX)) if stat.S_ISREG(facts.st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(file)


def event_name(payload: bytes) -> bytes:
    """The event's name. It is only a hint, so the JSON is not parsed: importing ``json`` would double the run time."""
    return next((text for name in NAMES if (text := _text_of(payload, name))), b"")


def _text_of(payload: bytes, field: bytes) -> bytes:
    return payload.partition(field)[2][:80].lstrip(b" \t\r\n:").removeprefix(b'"').partition(b'"')[0]


def starts_ingest(payload: bytes, *, in_run: bool) -> bool:
    name = event_name(payload)
    return name in TURNS or (name in PROMPTS and not in_run)


def wait_limit(payload: bytes, *, in_run: bool, moved: bool = False) -> float:
    """The seconds that the tool waits at most for the ingest of an event that starts one.

    The ingest at a start or prompt separates what people changed from what the tool is about to change. The one at the end of a
    turn or sub-agent separates what it changed from what others are about to change, such as a script that continues after the
    tool. ``moved``: a call has ended that may have made commits, which are the tool's from then on. A session that starts again
    after it was compacted is in a turn.
    """
    seconds = os.environb.get(b"CLIA_HOOK_INGEST", b"")
    if in_run:
        return float(seconds) if seconds.isdigit() else _RUN_SECONDS
    if not (moved or starts_ingest(payload, in_run=False)) or _text_of(payload, b'"source"') == b"compact":
        return 0.0
    return float(seconds) if seconds.isdigit() else _AWAITED_SECONDS


def _is_ingesting(common: bytes) -> bool:
    """Whether an ingest is running: it holds this lock."""
    try:
        lock = os.open(os.path.join(spool.spool_of(common), b"ingest.lock"), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    import fcntl  # imported only when something ends

    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)  # releases the lock
    return False


def _ingest(stored: bytes, where: bytes, common: bytes, payload: bytes, moved: bool) -> None:
    """Start an ingest if the event needs one and none runs, and wait for it if its files or commits matter."""
    in_run = os.environb.get(b"CLIA_RUN") == common
    moved = moved and not in_run  # in a run, all branches are the agent's
    if not moved and not starts_ingest(payload, in_run=in_run):
        return
    process = 0 if _is_ingesting(common) else _start_ingest(where)
    spool.reached("ingest-started")
    limit = wait_limit(payload, in_run=in_run, moved=moved)
    if limit:
        _wait_for_ingest(stored, process, where, common, limit)
        spool.reached("ingest-awaited")


def _wait_for_ingest(stored: bytes, process: int, where: bytes, common: bytes, limit: float) -> None:
    """Wait until an event is recorded, its ingest has failed, or the time is up: the tool continues in any case.

    An ingest that ran already may have ended without the event; then another one is started.
    """
    import time  # the spool has loaded it

    latest, restarts = time.monotonic() + limit, 1
    while os.path.exists(stored) and time.monotonic() < latest:
        if process:
            ended, status = _ended(process)
            if status:
                return  # it failed; the next event tries again
            process = 0 if ended else process
        if not process and not _is_ingesting(common):
            if not restarts:
                return
            restarts, process = restarts - 1, _start_ingest(where)
        time.sleep(_POLL_SECONDS)


def _ended(process: int) -> tuple[int, int]:
    """The process if it has ended, else 0, and its status."""
    try:
        return os.waitpid(process, os.WNOHANG)
    except ChildProcessError:  # the tool ignores SIGCHLD, so the kernel keeps no status
        return process, 0


def _start_ingest(where: bytes) -> int:
    """Start ``clia ingest`` in the background and return its process id; 0 if that fails: the next event tries again."""
    _close_at_exec()
    # Without variables that redirect git, and without CLIA_AGENT, since events of many agents wait.
    variables = {
        name: value
        for name, value in os.environb.items()
        if name != b"CLIA_AGENT" and (name in _PERSON or not name.startswith(b"GIT_"))
    }
    words = [os.fsencode(sys.executable), b"-P", b"-m", b"clia", b"ingest", b"--quiet", b"--path", where]
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0), (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    # A tool may kill its process group and terminal when it ends.
    for detached in ({"setsid": True}, {"setpgroup": 0}):
        try:
            return os.posix_spawn(words[0], words, variables, file_actions=actions, **detached)
        except NotImplementedError:
            continue  # not supported everywhere
        except OSError:
            return 0
    return 0


def _close_at_exec() -> None:
    """Close inherited files: the tool may wait until they are closed."""
    try:
        files = [int(name) for name in os.listdir("/dev/fd")]
    except (OSError, ValueError):
        return
    for file in files:
        try:
            if file > 2:
                os.set_inheritable(file, False)
        except OSError:
            continue  # the descriptor used for listing
