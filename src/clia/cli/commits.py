"""Commands that record work: commit, and run for any program."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clia.cli.command import AGENT, IDENTITY, INCOMPLETE, MESSAGE, META, NO_REDACT, Answer, arg, command, flag, many, opt
from clia.cli.inputs import file_content, invalid_option, message_text, meta_fields, path_pairs, setup_approval
from clia.cli.output import counted, one_line, show_error, write
from clia.cli.rendering import short, show_line
from clia.errors import FileError, InvalidInput
from clia.space.model import File

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Annotated

    from clia.capture.run_program import RunReport
    from clia.facade.space import Space
    from clia.facade.undo import LastChange, UndoneChange
    from clia.space.model import Content

    SignalListening = Callable[[Callable[[int], None]], AbstractContextManager[None]]

NOT_RECORDED = 125
NOT_RUN = {"program-not-executable": 126, "program-not-found": 127}
YES = flag("approve the setup command of the configuration")
_NEW_AGENT = "for an agent that does not exist yet"
_FORWARDED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH)


class Committed(NamedTuple):
    commit: str  # the commit
    parent: str  # the head before
    agent: str  # the agent
    kind: str  # kind of commit
    traced: int  # trace entries attached to it
    adopted: list[str]  # commits of the agent for those that a program made itself in the directory, oldest first
    kept: tuple[str, ...]  # commits that the program made and left, for example by amending them; `refs/clia/own` keeps them


@command("commit", no_redact=NO_REDACT)
def commit(
    space: Space,
    path: str,
    agent: str = AGENT,
    kind: str = arg("KIND", "kind of commit: finding, refactor, test, … (see: clia types)"),
    directory: str | None = opt("DIR", "commit the files of a directory (default: the checkout you are in)", "--dir"),
    set_: list[str] = many("PATH=FILE", "put a file at a path (repeatable; '-': standard input)", "--set"),
    remove: list[str] = many("PATH", "remove a path (repeatable)"),
    executable: list[str] = many("PATH", "make a path of --set executable (repeatable)"),
    message: str = MESSAGE,
    meta: list[str] = META,
    base: str | None = opt("COMMIT", "head that the files are based on; refused if the agent's head has moved"),
    trace: bool = flag("attach the trace entries recorded since the last commit with a trace"),
) -> Answer[Committed]:
    """Record an agent's work as a typed commit."""
    changes = _changes(set_, remove, executable)
    if directory is not None and changes:
        raise invalid_option("--dir excludes --set and --remove", option="--dir")
    base_commit = None if base is None else space.find(base)
    text, fields = message_text(message), meta_fields(meta)
    if changes:
        verb = space.commit_with_trace if trace else space.commit
        cid = verb(agent, kind, changes=changes, message=text, meta=fields, base=base_commit)
    else:
        top = directory if directory is not None else _checkout_top(space, agent, path)
        cid = space.commit_dir(agent, kind, top, message=text, meta=fields, base=base_commit, with_trace=trace)
    recorded, bound = space.show(cid), space.traces.of(cid) if trace else None
    entries = len(bound.entries) if bound else 0
    adopted = [] if changes else space.captures.adopted(cid)
    value = Committed(cid, recorded.parents[0], agent, kind, entries, adopted, recorded.kept)

    def show() -> None:
        by = f" {one_line(recorded.kind)} by ", (one_line(recorded.agent), "bold"), f": {one_line(recorded.subject)}"
        if adopted:
            write(f"adopted {counted(len(adopted), 'commit')} of the program\n")
        show_line((short(cid), "yellow"), *by, (f"  ({entries} traced)" if entries else "", "dim"))
        if recorded.kept:
            write(f"{_kept_text(recorded.kept, agent)}\n")

    return Answer(value, show)


@command("undo")
def undo(
    space: Space,
    dry_run: bool = flag("show what would be undone, and how, without doing it"),
) -> Answer[LastChange | UndoneChange]:
    """Undo the last thing you did here, by a new record.

    A commit or a merge is reverted by a commit of the agent, a landing by a commit on the branch. An agent that did nothing is
    deleted. Archiving, relations, grants and the adoption of a version are taken back. Answers and other statements stay.
    Undoing twice restores the change, where possible. Nothing is rewritten.
    """
    last = space.undoing.last_change()
    if dry_run:
        return Answer(last, lambda: _show_last(last))
    undone = space.undoing.undo(change=last.change)

    def show() -> None:
        show_line("undid: ", (one_line(undone.what), "bold"), (f"  ({last.at})", "dim"))
        commit_text = f": {short(undone.commit)}" if undone.commit is not None else ""
        show_line(f"{one_line(undone.done)}{commit_text}")
        for warning in undone.warnings:
            show_line(("warning: ", "yellow"), one_line(warning))

    return Answer(undone, show)


def _show_last(last: LastChange) -> None:
    show_line("last change: ", (one_line(last.what), "bold"), (f"  ({last.at})", "dim"))
    if last.undo is not None:
        show_line(f"after clia undo: {one_line(last.undo)}")
    else:
        show_line(("cannot be undone: ", "yellow"), one_line(last.problem or ""))


def _changes(assignments: list[str], removed: list[str], executable: list[str]) -> dict[str, Content | None]:
    """The changes of ``--set`` and ``--remove``; each path may occur once."""
    changes: dict[str, Content | None] = {}
    pairs = path_pairs(assignments, "--set")
    for path in (*(path for path, _ in pairs), *removed):
        if path in changes:
            raise invalid_option(f"path {path!r} is given twice", path=path)
        changes[path] = None
    for path in executable:
        if path not in dict(pairs):
            raise invalid_option(f"--executable {path!r} has no matching --set", path=path)
    for path, file in pairs:
        content = file_content(file)
        changes[path] = File(content, True) if path in executable and isinstance(content, bytes) else content
    return changes


def _checkout_top(space: Space, agent: str, path: str) -> str:
    """The top of the agent's checkout that contains ``path``."""
    space.head(agent)  # report an unknown agent first
    checkout = space.checkout_at(path)
    if checkout is None or checkout.agent != agent:
        directory = os.path.abspath(path)
        message = f"nothing to commit: {directory} is not in a checkout of {agent!r}"
        hints = ["give --dir, or --set and --remove", f"or work in a checkout: clia checkout {agent} DIR"]
        raise InvalidInput(message, code="nothing-to-commit", hints=hints, fields={"path": directory, "agent": agent})
    return checkout.directory


@command("run", runs_program=True)
def run(
    space: Space,
    program_words: list[str],
    json_output: bool,
    agent: str = arg("AGENT", "agent name; the agent is created if it does not exist"),
    kind: str = opt("KIND", "kind of the commit (default: finding)", "-k --kind", default="finding"),
    message: str = opt("TEXT", "what was done and why (default: the command line)", "-m --message", default=""),
    directory: str | None = opt("DIR", "worktree to run in (default: a separate one in the state directory)", "--dir"),
    quiet: bool = flag("print only errors", "-q --quiet"),
    report: str | None = opt("FILE", "write a JSON report of the run to a file"),
    title: str | None = opt(None, "one-line title (default: the command line)", "-t --title", section=_NEW_AGENT),
    briefing: str = opt("TEXT", "briefing", "-b --briefing", former="--text", default="", section=_NEW_AGENT),
    at: str | None = opt(
        "COMMIT",
        "start at any commit (default: its parent's head, else your HEAD)",
        section=_NEW_AGENT,
        one_of="start",
    ),
    empty: bool = flag("start without files", section=_NEW_AGENT, one_of="start"),
    parent: str | None = opt("AGENT", "parent agent", section=_NEW_AGENT),
    slug: str | None = IDENTITY._replace(section=_NEW_AGENT),
    accept_incomplete: str | None = INCOMPLETE._replace(section=_NEW_AGENT),
    yes: bool = YES,
    no_redact: bool = NO_REDACT,
    program: list[str] = arg("-- PROGRAM ARGS", "program to run, and its arguments", nargs="*"),
) -> Annotated[int, RunReport]:
    """Run any program as an agent and record its output and its changes.

    Standard output and the exit code are those of the program; messages of clia go to standard error. Exit codes of clia: 125
    if the program ended and its run could not be recorded, 126 if the program is not executable, 127 if it was not found.
    """
    from secrets import token_hex

    from clia.capture.run_program import RunEnvironment, RunOptions, SpawnOptions, run_program
    from clia.programs.runner import UserStreams

    if program:
        hints = ["clia run AGENT -- PROGRAM ARGS"]
        raise InvalidInput(f"put -- before the program: {program[0]!r}", code="usage", hints=hints, fields={"field": "program"})
    if report is not None:
        existing = report if os.path.lexists(report) else os.path.dirname(os.path.abspath(report))
        if os.path.isdir(report) or not os.access(existing, os.W_OK):
            raise _report_error(report, "cannot be written")
    birth = SpawnOptions(title, briefing, at, empty, parent, slug, accept_incomplete)
    options = RunOptions(agent, program_words, kind, message, directory, birth)
    # From the program's start until its work is recorded, signals go to the program.
    with _signal_listening() as listening, _channels() as channels:
        user = UserStreams(*channels, all(map(os.isatty, channels[:2])), listening)
        tell = _tell if not (quiet or json_output) else lambda _: None
        try:
            world = RunEnvironment(user, os.environ, tell, not no_redact, setup_approval(yes=yes), token_hex(16))
            result = run_program(space, options, world)
        except FileError as err:
            if err.code not in NOT_RUN:
                raise
            show_error(err, as_json=json_output)
            return NOT_RUN[err.code]
        return _report_run(result, report, quiet=quiet, json_output=json_output)


def _report_run(result: RunReport, file: str | None, *, quiet: bool, json_output: bool) -> int:
    """Print and write the report of a run; return the exit code. The terminal may be gone by now."""
    from clia.values.records import as_json  # `clia commit` does not need it

    if file is not None:
        try:
            with open(file, "w", encoding="utf-8") as output:
                output.write(json.dumps(as_json(result), ensure_ascii=False, indent=2) + "\n")
        except OSError as err:
            result = result._replace(problem=result.problem or _report_error(file, str(err.strerror)))
    with suppress(OSError):
        if json_output:
            write(json.dumps(as_json(result), ensure_ascii=False) + "\n", sys.stderr)
        elif result.problem is not None:
            show_error(result.problem, as_json=False)
        if not json_output and (result.problem is not None or not quiet):
            _tell(_summary(result))
            for line in result.left_out:
                _tell(f"not recorded: {line}")
            if result.kept:
                _tell(_kept_text(result.kept, result.agent))
    return result.exit_code if result.problem is None else NOT_RECORDED


def _summary(result: RunReport) -> str:
    ended = f"{result.program} ended with exit code {result.exit_code}"
    if result.commit is None:
        return f"{ended}; the run was not recorded"
    files = f"{counted(result.files, 'file')} changed" if result.files else "no file changed"
    adopted = f", {counted(result.adopted, 'own commit')}" if result.adopted else ""
    return f"{ended}: {short(result.commit)} by {result.agent} ({files}{adopted}, {result.traced} traced)"


def _kept_text(kept: Sequence[str], agent: str) -> str:
    listed = " ".join(short(commit) for commit in kept)
    return f"kept {counted(len(kept), 'commit')} that the program amended, reset or left, under refs/clia/own/{agent}: {listed}"


def _report_error(file: str, reason: str) -> FileError:
    return FileError(f"{file}: {reason}", fields={"path": file, "reason": reason})


def _tell(text: str) -> None:
    with suppress(OSError):  # the run continues without a terminal
        write(f"clia: {one_line(text)}\n", sys.stderr)


@contextmanager
def _channels() -> Iterator[tuple[int, int, int]]:
    """Standard input, output and error; /dev/null for a closed one, whose number may belong to another file by now."""
    with open(os.devnull, "r+b", 0) as null:
        streams = (sys.stdin, sys.stdout, sys.stderr)
        numbers = [null.fileno() if stream is None else number for number, stream in enumerate(streams)]
        yield numbers[0], numbers[1], numbers[2]


@contextmanager
def _signal_listening() -> Iterator[SignalListening]:
    """Pass signals to a listener. From the first listener until the end they do not stop clia; ignored ones stay ignored."""
    listeners: list[Callable[[int], None]] = []
    previous = {}

    def handle(number: int, frame: object) -> None:
        del frame
        for listener in listeners[-1:]:
            listener(number)

    @contextmanager
    def listening(listener: Callable[[int], None]) -> Iterator[None]:
        listeners.append(listener)
        for number in _FORWARDED_SIGNALS:
            if number not in previous and (number == signal.SIGWINCH or signal.getsignal(number) != signal.SIG_IGN):
                previous[number] = signal.signal(number, handle)
        try:
            yield
        finally:
            listeners.pop()

    try:
        yield listening
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
