"""``clia run``: run a program as an agent, in its own worktree, with its output in the trace.

Invariant: a started program ends in one commit of the agent with its output, its exit code and the changes that it did not commit
itself; its own commits are adopted before it. Changes that an interrupted run left are committed before the next one starts. All
conditions of the commit are checked before the program starts; work that cannot be recorded afterwards stays in the worktree and
the store, and is reported.
"""

from __future__ import annotations

import os
import shlex
import threading
from contextlib import suppress
from typing import NamedTuple

from clia.capture.ingest import drained
from clia.errors import CliaError, Conflict, FileError, GitError, InvalidInput, NoSuchObject, StaleRef
from clia.programs.preparation import WorktreePreparation, check_setup
from clia.programs.runner import ProgramCommand
from clia.programs.worktree import ProgramWorktree, TracedOutput
from clia.redaction import secrets
from clia.space.core import CommitText
from clia.trust.machine_keys import AGENT_KEY
from clia.values.background import retry_while_unavailable
from clia.values.commit_messages import check_text
from clia.values.refs import check_name
from clia.values.typed_objects import Briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeVar

    from clia.facade.space import Space
    from clia.git.records import Checkout
    from clia.programs.runner import ProgramRunner, UserStreams

    T = TypeVar("T")

RUN = "run"
_KINDS = {"terminal": "console", "stdout": "console", "stderr": "console-error"}
_SUBJECT = 100
_LOOKS = 10  # waits for a run that was just killed and whose program is about to end
# git finds the repository, index and objects from the worktree
_ELSEWHERE = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE", "GIT_IMPLICIT_WORK_TREE"),
)


class SpawnOptions(NamedTuple):
    """How to spawn an agent that does not exist: at a commit, else from its parent, else at HEAD."""

    title: str | None = None  # None: the command line
    text: str = ""
    at: str | None = None
    empty: bool = False
    parent: str | None = None
    slug: str | None = None
    accept_incomplete: str | None = None  # why an incomplete profile is accepted


class RunOptions(NamedTuple):
    """The program to run, the agent, and how to record the run."""

    agent: str
    words: Sequence[str]
    kind: str = "finding"
    message: str = ""  # empty: the command line
    directory: str | None = None  # None: the agent's own run directory
    birth: SpawnOptions = SpawnOptions()


class RunEnvironment(NamedTuple):
    """The surroundings of a run."""

    user: UserStreams
    environment: Mapping[str, str]
    tell: Callable[[str], None]  # shows a line to the user before the program starts
    redact: bool = True
    approve: Callable[[str], bool] = lambda _: False  # asks whether a setup command may be run
    secret: str = ""  # random; the program's hooks prove with it that they belong to the run


class RunReport(NamedTuple):
    """The result of a run."""

    agent: str  # the agent
    spawned: bool  # whether the agent is new
    directory: str  # the worktree that the program ran in
    program: str  # the program
    exit_code: int  # its exit code
    commit: str | None  # the commit of its changes
    files: int  # changed files
    traced: int  # trace entries
    left: str | None  # commit of what an interrupted run left
    adopted: int  # commits that the program made itself
    kept: tuple[str, ...]  # commits that it made and left; refs/clia/own keeps them
    left_out: tuple[str, ...] = ()  # files that are not recorded, each with the reason
    problem: CliaError | None = None  # why there is no commit; the work is kept


def run_program(space: Space, options: RunOptions, world: RunEnvironment, programs: ProgramRunner | None = None) -> RunReport:
    """Run a program as an agent, spawning it if needed; ``Conflict`` if one is running already."""
    check_name(options.agent)
    if not options.words:
        raise InvalidInput("no program given", code="no-program", hints=["clia run AGENT -- PROGRAM ARGS…"])
    check_text(options.message, "message")
    space.types.check_kind(options.kind)  # before the program runs
    space.local.check_identity()
    if programs is None:
        from clia.programs.runner import ProgramRunner  # POSIX only

        programs = ProgramRunner()
    agent, directories = options.agent, space.local.run_directories
    lock = directories.lock(agent)
    looks = iter(range(_LOOKS))
    with programs.alone(lock, lambda: next(looks, None) is None) as locked:
        if not locked:
            hints = ["wait until it ends, or run this one as another agent"]
            fields = {"agent": agent, "lock": lock}
            raise Conflict(f"a program is already running as {agent!r}", code="already-running", hints=hints, fields=fields)
        directory = os.path.abspath(options.directory) if options.directory else directories.directory(agent)
        work = ProgramWorktree(space, agent, directory, lock, programs, world.environment)
        return _ProgramRun(work, options, world).run()


class _ProgramRun:
    """One run, in a directory that it holds."""

    def __init__(self, work: ProgramWorktree, options: RunOptions, world: RunEnvironment) -> None:
        self._work = work
        self._options = options
        self._world = world
        title = _shown(shlex.join(options.words))
        self._line = secrets.redact(title).text if world.redact else title
        self._instructions: str | None = None  # file with what the agent must know
        self._key: str | None = None  # file with the key that signs the agent's commits

    def run(self) -> RunReport:
        work, tell = self._work, self._world.tell
        space, agent = work.space, work.agent
        spawned = agent not in space.agents()
        self._check(spawned)
        rules = space.local.config.run
        check_setup(space, rules.setup, self._world.approve)
        if spawned:
            tell(f"spawned {agent} at {self._spawn()[:10]}")
        accepted = self._check_identity(spawned)
        left = None if spawned else self._drained(self._settle)
        if left is not None:
            tell(f"committed what was left in the worktree: {left[:10]}")
        space.checkout(agent, work.directory)
        WorktreePreparation(work, rules, self._order().environment, tell).run()
        try:
            work.programs.check(self._order())
        except FileError as err:
            raise self._hinted(err) from None
        space.trace(agent, RUN, f"$ {self._line}")
        self._key = space.trust.start_agent_key(agent)
        try:
            return self._run(spawned, accepted, left)
        finally:
            if self._key is not None:
                with suppress(CliaError):  # it expires by itself
                    space.trust.end_agent_key(self._key)

    def _run(self, spawned: bool, accepted: Sequence[str], left: str | None) -> RunReport:
        work, tell = self._work, self._world.tell
        space, agent = work.space, work.agent
        if accepted:
            reason = self._options.birth.accept_incomplete
            space.trace(agent, RUN, f"runs with an incomplete profile: {reason}", data={"findings": list(accepted)})
        space.captures.forget_secrets(agent)  # events of an earlier run are recorded by now
        space.local.keep_config(agent)
        space.captures.watch_programs(work.directory, running=True)
        space.captures.reached("run-started")
        tell(f"{agent} works in {work.directory}")
        stashes = space.captures.stashes()
        code, problem = self._attended()
        space.captures.reached("program-ended")
        with suppress(CliaError):  # the run is recorded without them
            space.captures.keep_dropped_stashes(agent, stashes)
        commit = None
        if problem is None:
            try:
                commit = self._drained(lambda: self._recorded(code))
                space.captures.watch_programs(work.directory, running=False)
            except CliaError as err:
                problem = err
        program = _shown(self._options.words[0])
        report = RunReport(agent, spawned, work.directory, program, code, commit, 0, 0, left, 0, (), (), problem)
        return _counted(space, report)

    def _drained(self, commit: Callable[[], T]) -> T:
        """Commit after the events of hooks are recorded, so that no ingest commits at the same time."""
        with drained(self._work.space, self._world.environment):
            self._work.space.captures.reached("events-drained")
            return commit()

    # Before

    def _check(self, spawned: bool) -> None:
        """Check conditions that would otherwise fail later. A program among the agent's files is searched there."""
        work, name = self._work, self._options.words[0]
        if not spawned:
            work.space.budgets.check(work.agent)
        if spawned and os.path.lexists(work.directory) and (not os.path.isdir(work.directory) or os.listdir(work.directory)):
            raise Conflict(
                f"{work.directory} cannot become a worktree: it already exists",
                code="directory-in-use",
                hints=["name a directory that does not exist yet"],
                fields={"directory": work.directory},
            )
        path = os.path.normpath(os.path.join(work.directory, name))
        if "/" not in name or os.path.isabs(name) or not path.startswith(f"{work.directory}/"):
            work.programs.check(self._order())
        elif spawned:
            self._check_file(name, self._start())

    def _check_file(self, name: str, start: str | None) -> None:
        """Whether a new agent will have this executable file."""
        output = bytearray()
        if start is not None:
            words = ("--literal-pathspecs", "ls-tree", "-z", start, "--", os.path.normpath(name))
            if self._work.git(*words, output=output, directory=os.path.dirname(self._work.space.home)):
                raise GitError(f"git cannot list the files of {start}", fields={"commit": start})
        mode = bytes(output).partition(b" ")[0]
        if mode in (b"100755", b"120000"):
            return
        code = "program-not-executable" if mode else "program-not-found"
        reason = "not executable" if mode else "not found"
        raise self._hinted(FileError(f"cannot run {name}: {reason}", code=code, fields={"path": name, "reason": reason}))

    def _hinted(self, error: FileError) -> FileError:
        name = self._options.words[0]
        if "/" in name and not os.path.isabs(name):
            hint = f"it is looked up among the files of {self._work.agent}; give the full path of a program elsewhere"
            return FileError(error.message, hints=[hint], fields=error.fields, code=error.code)
        return error

    def _start(self) -> str | None:
        """The commit that a new agent starts at; None: no files."""
        space, birth = self._work.space, self._options.birth
        if birth.empty:
            return None
        if birth.at is not None:
            return space.find(check_text(birth.at, "commit"))
        if birth.parent is not None:
            return space.head(birth.parent)
        try:
            return space.find("HEAD")
        except NoSuchObject:  # no commit yet
            return None

    def _spawn(self) -> str:
        space, agent, birth = self._work.space, self._work.agent, self._options.birth
        if birth.parent is not None and birth.empty:
            message = "--parent cannot be combined with --empty: a sub-agent starts at its parent's head or at a commit"
            raise InvalidInput(message, code="invalid-option", fields={"option": "--parent"})
        briefing = Briefing(_one_line(self._line) if birth.title is None else birth.title, birth.text)
        start = self._start()
        slug, accept = birth.slug, birth.accept_incomplete
        if start is None:
            return space.spawn(agent, briefing, slug=slug, accept_incomplete=accept).genesis
        return space.spawn_at(agent, briefing, start, birth.parent, slug=slug, accept_incomplete=accept).genesis

    def _settle(self) -> str | None:
        """Commit what an interrupted run left; None if nothing."""
        work = self._work
        entries = [entry for entry in work.space.traces.pending(work.agent) if _is_of_a_run(entry)]
        damage = self._repair() if entries and self._options.directory is None else None
        checkout = work.checkout()
        if checkout is None and not damage and self._options.directory is None and os.path.lexists(f"{work.directory}/.git"):
            work.programs.clear(work.directory)  # an unfinished worktree: no program ran in it
        changed = work.has_changed(checkout.base) if checkout is not None else bool(damage) and os.path.isdir(work.directory)
        if not entries and not changed:
            return None
        lines = [str(entry["text"]).removeprefix("$ ") for entry in entries if entry.get("kind") == RUN]
        message = "left by an interrupted run" if entries else "left in the worktree before a run"
        meta = {"worktree": damage} if damage else {}
        return self._committed(checkout, changed, f"{message}: {_one_line(lines[0])}" if lines else message, meta)

    def _check_identity(self, spawned: bool) -> tuple[str, ...]:
        """Refuse a run whose guardrails could be incomplete, unless a person accepts that; return what they accepted."""
        work, accept = self._work, self._options.birth.accept_incomplete
        start = work.space.identities.start_of_work(work.agent, accept)
        for text in start.missing:
            self._world.tell(f"a guardrail is missing at the place of {work.agent}, and still binds it: {text}")
        self._instructions = work.space.local.run_directories.write_instructions(work.agent, start.instructions)
        return () if spawned else start.wrong

    # While it runs

    def _order(self) -> ProgramCommand:
        work = self._work
        variables = {name: value for name, value in self._world.environment.items() if name not in _ELSEWHERE}
        variables |= {"CLIA_AGENT": work.agent, "CLIA_RUN": os.path.dirname(work.space.home), "PWD": work.directory}
        variables["CLIA_RUN_SECRET"] = self._world.secret
        if self._key is not None:
            variables[AGENT_KEY] = self._key
        if self._instructions is not None:
            variables["CLIA_INSTRUCTIONS"] = self._instructions
        return ProgramCommand(self._options.words, work.directory, variables)

    def _attended(self) -> tuple[int, CliaError | None]:
        """The program's exit code, and why its output could not be traced completely."""
        work = self._work
        console = ConsoleRecorder(work.space, work.agent)
        result = work.programs.attend(self._order(), work.place, self._world.user, console.heard)
        try:
            console.end(result.code)
        except CliaError as err:
            return result.code, err
        return result.code, None

    # After

    def _recorded(self, code: int) -> str:
        work, damage = self._work, self._repair()
        checkout = work.checkout()  # a hook may have committed: the base is newer
        changed = work.has_changed(checkout.base) if checkout is not None else os.path.isdir(work.directory)
        meta = {"program": _shown(os.path.basename(self._options.words[0])), "exit_code": code}
        meta |= {"worktree": damage} if damage else {}
        return self._committed(checkout, changed, self._options.message or _one_line(self._line), meta)

    def _repair(self) -> str | None:
        """Restore a worktree that the program damaged, and trace the damage."""
        damage = self._work.repair()
        if damage:
            self._work.space.trace(self._work.agent, RUN, damage)
        return damage

    def _committed(self, checkout: Checkout | None, changed: bool, message: str, meta: Mapping[str, Any]) -> str:
        """Commit the files and the trace, or the trace alone, which never conflicts."""
        work, kind = self._work, self._options.kind
        if not changed:
            return work.space.captures.commit_trace(work.agent, kind, CommitText(message, meta))
        try:
            commit = work.commit(checkout.base if checkout is not None else work.space.head(work.agent), kind, message, meta)
        except StaleRef as err:
            directory = shlex.quote(work.directory)
            raise StaleRef(
                f"{err.message}; the work of the run is kept in {work.directory}",
                hints=[
                    f"merge both: cd {directory} && git add -A && git commit -m work && git merge {err.actual}",
                    f"then, still there: clia commit {work.agent} {kind} --base {err.actual} --trace",
                ],
                fields={**err.fields, "directory": work.directory},
            ) from None
        if checkout is None and self._options.directory is None:
            work.programs.clear(work.directory)  # git no longer knows it: the next run creates another one
        return commit


class ConsoleRecorder:
    """Traces the program's output. While the store is unavailable, output is buffered and the program continues."""

    def __init__(self, space: Space, agent: str) -> None:
        self._space = space
        self._agent = agent
        self._outputs: dict[str, TracedOutput] = {}
        self._last = ""
        self._waiting: list[tuple[str, str, dict[str, str] | None]] = []
        self._is_away = False

    def heard(self, channel: str, data: bytes) -> None:
        if channel not in self._outputs:
            # The unterminated end of the output is left to the trace's own redaction.
            self._outputs[channel] = TracedOutput(lambda text: self._add(channel, text), lambda _, state: ("", state))
        if data and self._last not in ("", channel):
            self._outputs[self._last].add(b"")  # keep the order
        self._last = channel if data else self._last
        self._outputs[channel].add(data)

    def end(self, code: int) -> None:
        """Flush the buffer; waits up to half a minute for the store, then raises."""
        for output in self._outputs.values():
            output.end()
        self._waiting.append((RUN, f"exit code {code}", None))
        retry_while_unavailable(self._flush, threading.Event())

    def _add(self, channel: str, text: str) -> None:
        self._waiting.append((_KINDS[channel], text, {"stream": channel}))
        if not self._is_away:
            try:
                self._flush()
            except CliaError:
                self._is_away = True  # retried at the end: the program must not block

    def _flush(self) -> None:
        while self._waiting:
            kind, text, data = self._waiting[0]
            self._space.trace(self._agent, kind, text, data=data)
            del self._waiting[0]


def _is_of_a_run(entry: Mapping[str, Any]) -> bool:
    return entry.get("kind") == RUN or (entry.get("data") or {}).get("stream") in _KINDS


def _counted(space: Space, report: RunReport) -> RunReport:
    """The report with the results of its commit."""
    if report.commit is not None:
        with suppress(CliaError):  # the run is recorded; the counts are optional
            trace = space.traces.of(report.commit)
            entries = trace.entries if trace else ()
            notes = [entry for entry in entries if "left_out" in (entry.get("data") or {})]
            left_out = dict.fromkeys(line for note in notes for line in str(note["text"]).splitlines()[1:])
            adopted = space.captures.adopted(report.commit)
            files = space.history.changed(space.show((*adopted, report.commit)[0]).parents[0], report.commit)
            kept_commits = space.show(report.commit).kept
            own = [*adopted, *(cid for cid in space.captures.adopted_beside(report.commit) if cid not in adopted)]
            counts = report._replace(files=len(files), traced=len(entries), adopted=len(own))
            return counts._replace(kept=kept_commits, left_out=tuple(left_out))
    return report


def _one_line(text: str) -> str:
    """A subject line: redacted before it is cut."""
    line = " ".join(text.split())
    return line if len(line) <= _SUBJECT else f"{line[: _SUBJECT - 1]}…"


def _shown(text: str) -> str:
    """A command-line argument as text, whatever its bytes."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")
