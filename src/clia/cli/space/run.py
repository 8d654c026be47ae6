"""``clia run``.

Invariant: standard output is the program's own, and so is the exit code; what clia has to say goes to standard error. From
the program's start until its work is recorded, signals are the program's, and clia ends after it.

Exit codes of clia itself: 125 where the program ended and its run could not be recorded, 126 where it may not be run, 127
where there is none; as ever where nothing was run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager, suppress

from clia.cli.output import one_line, show_error, write
from clia.cli.space.common import add_redaction, add_space, short, space_of
from clia.errors import FileError, InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from clia.capture.run_program import RunOptions, RunReport
    from clia.errors import CliaError

    Hearing = Callable[[Callable[[int], None]], AbstractContextManager[None]]

RUNS_A_PROGRAM = True
"""What stands behind ``--`` is another program's, every word as it is."""
NOT_RECORDED = 125
NOT_RUN = {"program-not-executable": 126, "program-not-found": 127}
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH)


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agent", metavar="AGENT", help="as whom; spawned where there is none")
    parser.add_argument("-k", "--kind", default="finding", metavar="KIND", help="what its commit is (default: finding)")
    parser.add_argument("-m", "--message", default="", metavar="TEXT", help="what was done, and why (default: the command line)")
    parser.add_argument("--dir", metavar="DIR", help="the agent's worktree (default: one of its own in the git directory)")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    parser.add_argument("--report", metavar="FILE", help="write what became of the run to a file, as JSON")
    new = parser.add_argument_group("for an agent that does not exist yet")
    new.add_argument("-t", "--title", help="what it is to do, in a line (default: the command line)")
    new.add_argument("-b", "--briefing", default="", metavar="TEXT", help="the briefing")
    start = new.add_mutually_exclusive_group()
    start.add_argument("--at", metavar="COMMIT", help="start at any commit (default: its parent's head, else your HEAD)")
    start.add_argument("--empty", action="store_true", help="start with no files")
    new.add_argument("--parent", metavar="AGENT", help="whose sub-agent it is")
    new.add_argument("--as", dest="slug", metavar="SLUG", help="whose profile it has (default: that of its name, if any)")
    add_redaction(parser)
    add_space(parser)
    parser.add_argument("program", nargs="*", metavar="-- PROGRAM ARGS", help="what to run, and all that stands behind it")


def run(args: argparse.Namespace) -> int:
    from clia.capture.run_program import RunEnvironment, run_program  # with all that a space needs
    from clia.programs.runner import UserStreams

    if args.program:
        hints = ["clia run AGENT -- PROGRAM ARGS"]
        raise InvalidInput(
            f"put -- before the program: {args.program[0]!r}", code="usage", hints=hints, fields={"field": "program"}
        )
    if args.report is not None:
        _check_report(args.report)
    with space_of(args) as space, _hearing() as hearing, _channels() as channels:
        user = UserStreams(*channels, all(map(os.isatty, channels[:2])), hearing)
        tell = _silent if args.quiet or args.json else _say
        try:
            report = run_program(space, _wishes(args), RunEnvironment(user, os.environ, tell, redact=not args.no_redact))
        except FileError as err:
            if err.code not in NOT_RUN:
                raise
            show_error(err, as_json=args.json)
            return NOT_RUN[err.code]
        return _reported(args, report)


def _wishes(args: argparse.Namespace) -> RunOptions:
    from clia.capture.run_program import RunOptions, SpawnOptions

    birth = SpawnOptions(args.title, args.briefing, args.at, args.empty, args.parent, args.slug)
    return RunOptions(args.agent, args.behind_dashes, args.kind, args.message, args.dir, birth)


def _reported(args: argparse.Namespace, report: RunReport) -> int:
    """Tells what became of the run, and gives the exit code. The terminal may be gone by now."""
    unwritten = _written(args.report, report)
    told = report if unwritten is None or report.problem is not None else report._replace(problem=unwritten)
    with suppress(OSError):
        if args.json:
            write(json.dumps(_as_json(told), ensure_ascii=False) + "\n", sys.stderr)
        elif told.problem is not None:
            show_error(told.problem, as_json=False)
        if not args.json and (told.problem is not None or not args.quiet):
            _say(_ending(told))
    return told.exit_code if told.problem is None else NOT_RECORDED


def _written(file: str | None, report: RunReport) -> CliaError | None:
    """Why the report could not be written."""
    if file is None:
        return None
    try:
        with open(file, "w", encoding="utf-8") as into:
            into.write(json.dumps(_as_json(report), ensure_ascii=False, indent=2) + "\n")
    except OSError as err:
        return _no_report(file, str(err.strerror))
    return None


def _ending(report: RunReport) -> str:
    ended = f"{report.program} ended with exit code {report.exit_code}"
    if report.commit is None:
        return f"{ended}; the run is not recorded"
    files = "no file changed" if not report.files else f"{report.files} file{'s' * (report.files > 1)} changed"
    return f"{ended}: {short(report.commit)} by {report.agent} ({files}, {report.traced} traced)"


def _as_json(report: RunReport) -> dict[str, object]:
    problem = None if report.problem is None else report.problem.to_json()
    return report._asdict() | {"problem": problem}


def _check_report(file: str) -> None:
    """Before anything is run."""
    there = os.path.lexists(file)
    if os.path.isdir(file) or not os.access(file if there else os.path.dirname(os.path.abspath(file)), os.W_OK):
        raise _no_report(file, "it cannot be written")


def _no_report(file: str, reason: str) -> FileError:
    return FileError(f"{file}: {reason}", fields={"path": file, "reason": reason})


def _say(text: str) -> None:
    with suppress(OSError):  # whoever would read it is gone, and the run goes on
        write(f"clia: {one_line(text)}\n", sys.stderr)


def _silent(text: str) -> None:
    del text


@contextmanager
def _channels() -> Iterator[tuple[int, int, int]]:
    """Standard input, output and error; nothing behind one that is closed: its number may be that of another file by now."""
    with open(os.devnull, "r+b", 0) as nothing:
        streams = (sys.stdin, sys.stdout, sys.stderr)
        found = [nothing.fileno() if each is None else number for number, each in enumerate(streams)]
        yield found[0], found[1], found[2]


@contextmanager
def _hearing() -> Iterator[Hearing]:
    """How signals are told to whoever listens. From the first listener on until the end they stop nothing here; those
    that are ignored, as after nohup, stay so."""
    listeners: list[Callable[[int], None]] = []
    before = {}

    def hear(number: int, frame: object) -> None:
        del frame
        for each in listeners[-1:]:
            each(number)

    @contextmanager
    def listening(listener: Callable[[int], None]) -> Iterator[None]:
        listeners.append(listener)
        for number in _PASSED_ON:
            if number not in before and (number == signal.SIGWINCH or signal.getsignal(number) != signal.SIG_IGN):
                before[number] = signal.signal(number, hear)
        try:
            yield
        finally:
            listeners.pop()

    try:
        yield listening
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
